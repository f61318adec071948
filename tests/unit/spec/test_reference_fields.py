"""Each field that the reference documents is taken, kept with a warning, ignored or refused, as our page says.

The table is the reference's, row by row; docs/evidence/managed-services-fields.md has the same rows for people.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import spec
from holdfast._sdk import json_view
from holdfast.errors import InvalidSpec
from holdfast.spec.models.references import unusable_packages

PAGE = Path(__file__).parents[3] / "docs/evidence/managed-services-fields.md"
TAKEN, KEPT, IGNORED, REFUSED = "taken", "kept", "ignored", "refused"


@dataclass(frozen=True)
class Row:
    """A field with a value as the reference has it, and what becomes of it."""

    path: str
    value: Any
    outcome: str = TAKEN
    words: str = ""
    """Of the warning or of the refusal."""
    page: str = ""
    """The row's name on the page, where a field has several values."""
    printed: Any = None
    """The value as it is printed back, where that is another form of it."""


POOL = "jobSpec.workerPoolSpecs[0]"
MACHINE = f"{POOL}.machineSpec"
CONTAINER = f"{POOL}.containerSpec"
PACKAGE = "jobSpec.workerPoolSpecs[1].pythonPackageSpec"
SCHEDULING = "jobSpec.scheduling"
NETWORK = "ranks use their host's network"
ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A) $$(A)"}]
STRATEGY = "SCHEDULING_STRATEGY_"

TABLE = [
    Row("name", "projects/p/locations/l/customJobs/1", IGNORED),
    Row("displayName", "d" * 128),
    Row("displayName", "d" * 129, REFUSED, "has 129 characters; at most 128", "displayName of 129 characters"),
    Row("state", "JOB_STATE_PENDING", IGNORED),
    Row("createTime", "2020-09-15T19:09:54.342080Z", IGNORED),
    Row("startTime", "2020-09-15T19:13:42.991045Z", IGNORED),
    Row("endTime", "2020-09-15T19:13:42.991045Z", IGNORED),
    Row("updateTime", "2020-09-15T19:13:42.991045Z", IGNORED),
    Row("error", {"code": 3, "message": "m", "details": []}, IGNORED),
    Row("webAccessUris", {"workerpool0-0": "https://x"}, IGNORED),
    Row("satisfiesPzs", True, IGNORED),
    Row("satisfiesPzi", True, IGNORED),
    Row("labels", {"k" * 64: "v" * 64}),
    Row("labels", {"k": "v" * 65}, REFUSED, "has 65 characters; at most 64", "labels of 65 characters"),
    Row("encryptionSpec.kmsKeyName", "projects/p/k", KEPT, "nothing is encrypted for a job"),
    Row("jobSpec.serviceAccount", "a@example.org", KEPT, "a bare host has no service accounts"),
    Row("jobSpec.network", "projects/1/global/networks/n", KEPT, NETWORK),
    Row("jobSpec.reservedIpRanges", ["r"], KEPT, "ranks use their host's addresses"),
    Row("jobSpec.pscInterfaceConfig.networkAttachment", "n", KEPT, NETWORK),
    Row(
        "jobSpec.pscInterfaceConfig.dnsPeeringConfigs",
        [{"domain": "d.", "targetProject": "p", "targetNetwork": "n"}],
        KEPT,
        NETWORK,
    ),
    Row("jobSpec.persistentResourceId", "r", KEPT, "the cluster's hosts are there already"),
    Row("jobSpec.tensorboard", "t", KEPT, "there is no TensorBoard service"),
    Row("jobSpec.enableWebAccess", True),
    Row("jobSpec.enableDashboardAccess", True, KEPT, "there is no dashboard"),
    Row("jobSpec.experiment", "e", KEPT, "there are no experiments"),
    Row("jobSpec.experimentRun", "e", KEPT, "there are no experiments"),
    Row("jobSpec.models", ["m"], KEPT, "there is no model registry"),
    Row("jobSpec.protectedArtifactLocationId", "l", KEPT, "stays where it writes it"),
    Row("jobSpec.baseOutputDirectory.outputUriPrefix", "/data/out"),
    Row(
        "jobSpec.baseOutputDirectory.outputUriPrefix",
        "gs://bucket/out",
        KEPT,
        "nothing is copied there",
        "jobSpec.baseOutputDirectory.outputUriPrefix with gs://",
    ),
    Row(f"{SCHEDULING}.timeout", "3600s"),
    Row(f"{SCHEDULING}.restartJobOnWorkerRestart", True),
    Row(f"{SCHEDULING}.disableRetries", True),
    Row(
        SCHEDULING,
        {"disableRetries": True, "restartJobOnWorkerRestart": True},
        KEPT,
        "jobSpec.scheduling.restartJobOnWorkerRestart: is taken as false",
        "jobSpec.scheduling with both",
    ),
    Row(f"{SCHEDULING}.maxWaitDuration", "0s"),
    *(
        Row(f"{SCHEDULING}.strategy", name, page=f"jobSpec.scheduling.strategy {name}", printed=STRATEGY + means)
        for name, means in (
            *((each, each) for each in ("STANDARD", "SPOT", "FLEX_START", "ON_DEMAND", "LOW_COST")),
            ("STRATEGY_UNSPECIFIED", "STANDARD"),
        )
    ),
    Row(f"{MACHINE}.machineType", "n1-standard-4", KEPT, "hosts have no machine types"),
    Row(f"{MACHINE}.acceleratorType", "NVIDIA_H100_80GB"),
    Row(
        f"{MACHINE}.acceleratorType",
        "ACCELERATOR_TYPE_UNSPECIFIED",
        page="jobSpec.workerPoolSpecs[].machineSpec.acceleratorType ACCELERATOR_TYPE_UNSPECIFIED",
        printed="",
    ),
    Row(
        f"{MACHINE}.acceleratorType",
        "TPU_V5_LITEPOD",
        REFUSED,
        "names a TPU",
        "jobSpec.workerPoolSpecs[].machineSpec.acceleratorType TPU_V5_LITEPOD",
    ),
    Row(f"{MACHINE}.acceleratorCount", 8),
    Row(
        MACHINE,
        {"acceleratorType": "NVIDIA_L4"},
        REFUSED,
        "is 0, though acceleratorType names a GPU",
        "jobSpec.workerPoolSpecs[].machineSpec.acceleratorType without a count",
    ),
    Row(f"{MACHINE}.gpuPartitionSize", "1g.10gb"),
    Row(f"{MACHINE}.tpuTopology", "2x2x1", REFUSED, "has no counterpart here"),
    Row(f"{MACHINE}.multihostGpuNodeCount", 2, KEPT, "a worker has one host"),
    Row(f"{MACHINE}.minGpuDriverVersion", "550", KEPT, "hosts have the driver that they have"),
    Row(
        f"{MACHINE}.reservationAffinity",
        {"reservationAffinityType": "SPECIFIC_RESERVATION", "key": "k", "values": ["v"]},
        KEPT,
        "the hosts are there already",
    ),
    Row(f"{POOL}.replicaCount", 1),
    Row(f"{POOL}.replicaCount", "1", page="jobSpec.workerPoolSpecs[].replicaCount as text", printed=1),
    Row(
        f"{POOL}.replicaCount",
        2,
        REFUSED,
        "must be 1, not 2: pool 0 is the primary",
        "jobSpec.workerPoolSpecs[0].replicaCount of 2",
    ),
    Row("jobSpec.workerPoolSpecs[2]", {}, page="jobSpec.workerPoolSpecs[] {}"),
    Row(POOL, {}, REFUSED, "is missing", "jobSpec.workerPoolSpecs[0] {}"),
    Row(f"{POOL}.nfsMounts", [{"server": "s", "path": "/p", "mountPoint": "m"}], KEPT, "nothing is mounted"),
    Row(
        f"{POOL}.lustreMounts",
        [{"instanceIp": "10.0.0.1", "volumeHandle": "v", "filesystem": "f", "mountPoint": "m"}],
        KEPT,
        "nothing is mounted",
    ),
    Row(f"{POOL}.diskSpec.bootDiskType", "pd-ssd", KEPT, "ranks use their host's disks"),
    Row(f"{POOL}.diskSpec.bootDiskSizeGb", 100, KEPT, "ranks use their host's disks"),
    Row(f"{CONTAINER}.imageUri", "registry.example/x:1"),
    Row(f"{CONTAINER}.command", ["a", "b"]),
    Row(f"{CONTAINER}.args", ["x" * 50_000, "y" * 50_000]),
    Row(
        f"{CONTAINER}.args",
        ["x" * 50_000, "y" * 50_001],
        REFUSED,
        "have 100,001 characters together; at most 100,000",
        "jobSpec.workerPoolSpecs[].containerSpec.args of 100,001 characters",
    ),
    Row(f"{CONTAINER}.env", ENV),
    Row(
        f"{CONTAINER}.env",
        [{"name": f"V{number}", "value": ""} for number in range(101)],
        REFUSED,
        "has 101 entries; at most 100",
        "jobSpec.workerPoolSpecs[].containerSpec.env of 101",
    ),
    Row(
        f"{POOL}.pythonPackageSpec",
        {"executorImageUri": "i", "packageUris": ["https://x/y.whl"], "pythonModule": "m"},
        REFUSED,
        "is a second task",
        "jobSpec.workerPoolSpecs[] with both tasks",
    ),
    Row(f"{PACKAGE}.executorImageUri", "i", KEPT, "packages are installed on the host itself"),
    Row(f"{PACKAGE}.packageUris", [f"https://x/{number}.whl" for number in range(100)]),
    Row(
        f"{PACKAGE}.packageUris",
        [f"https://x/{number}.whl" for number in range(101)],
        REFUSED,
        "has 101 entries; at most 100",
        "jobSpec.workerPoolSpecs[].pythonPackageSpec.packageUris of 101",
    ),
    Row(
        f"{PACKAGE}.packageUris",
        ["gs://bucket/trainer-0.1.tar.gz"],
        REFUSED,
        "hosts can't fetch gs: URIs",
        "jobSpec.workerPoolSpecs[].pythonPackageSpec.packageUris with gs://",
    ),
    Row(f"{PACKAGE}.pythonModule", "trainer.task"),
    Row(f"{PACKAGE}.args", ["--model-dir=/out"]),
    Row(f"{PACKAGE}.env", ENV),
]


def page_name(row: Row) -> str:
    return row.page or re.sub(r"\[\d\]", "[]", row.path)


def steps(path: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]


def body() -> dict[str, Any]:
    """A job with a pool of each task of the reference, and a third pool to fill."""
    return {
        "displayName": "d",
        "jobSpec": {
            "workerPoolSpecs": [
                {"replicaCount": 1, "machineSpec": {"acceleratorCount": 1}, "containerSpec": {"imageUri": "i"}},
                {"replicaCount": 2, "pythonPackageSpec": {"packageUris": ["https://x/y.whl"], "pythonModule": "m"}},
            ]
        },
    }


def with_row(row: Row) -> dict[str, Any]:
    data = body()
    if "machineType" in row.path:  # with counts beside it it is a name for people
        del data["jobSpec"]["workerPoolSpecs"][0]["machineSpec"]
    *outer, last = steps(row.path)
    holder: Any = data
    for step in outer:
        holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
    if isinstance(last, int) and last == len(holder):
        holder.append(None)
    holder[last] = copy.deepcopy(row.value)
    return data


def at(data: Any, path: str) -> Any:
    for step in steps(path):
        data = data[step]
    return data


def refusals(data: dict[str, Any]) -> list[str]:
    try:
        read = spec.parse(data)
    except InvalidSpec as error:
        return list(map(str, error.violations))
    return list(map(str, unusable_packages(read.job_spec)))


def named(*outcomes: str) -> list[Any]:
    return [pytest.param(row, id=page_name(row)) for row in TABLE if row.outcome in outcomes]


@pytest.mark.parametrize("row", named(TAKEN, KEPT))
def test_a_field_that_is_taken_or_kept_is_printed_back_whichever_way_it_came(row: Row) -> None:
    read = spec.parse(with_row(row))
    assert not unusable_packages(read.job_spec)
    message = spec.job_to_proto(read)
    assert spec.job_from_proto(message) == read
    want = row.value if row.printed is None else row.printed
    if row.printed != "":
        assert at(json_view.job(message), row.path) == want
    assert at(spec.to_dict(read), row.path) == want


@pytest.mark.parametrize("row", named(TAKEN))
def test_a_field_that_is_taken_is_not_warned_about(row: Row) -> None:
    assert spec.warnings(spec.parse(with_row(row))) == spec.warnings(spec.parse(body()))


@pytest.mark.parametrize("row", named(KEPT))
def test_a_field_that_is_kept_is_warned_about_with_what_to_do_instead(row: Row) -> None:
    [warning] = spec.warnings(spec.parse(with_row(row)))
    assert row.words in str(warning)
    assert warning.fix
    inside = re.match(r"[\w.\[\]]+", warning.path)
    assert inside and row.path.startswith((inside[0].removesuffix("[0]"), SCHEDULING))


@pytest.mark.parametrize("row", named(IGNORED))
def test_a_field_that_only_the_service_sets_is_ignored(row: Row) -> None:
    assert spec.parse(with_row(row)) == spec.parse(body())


@pytest.mark.parametrize("row", named(REFUSED))
def test_a_field_that_is_refused_says_why(row: Row) -> None:
    found = refusals(with_row(row))
    assert any(row.words in each for each in found), found
    assert all(each.startswith(row.path.split(".")[0]) for each in found)


def with_variable(value: str) -> dict[str, Any]:
    data = body()
    data["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = [
        {"name": "MA_HANG_DETECT_TIME", "value": value}
    ]
    return data


def annotated(key: str, value: str) -> dict[str, Any]:
    return body() | {"kind": "job", "metadata": {"annotations": {f"fault-tolerance/{key}": value}}}


UNNAMED = {key: value for key, value in body().items() if key != "displayName"}
TOLERANCE = "jobSpec.faultTolerance"
SUSPENSION = [
    ("`kind`", body() | {"kind": "job"}, "displayName", "d"),
    ("`kind` other than job", body() | {"kind": "x"}, 'kind: must be "job"', None),
    ("`metadata.name`", UNNAMED | {"metadata": {"name": "n"}}, "displayName", "n"),
    ("`metadata.labels`", body() | {"metadata": {"labels": {"a": "b"}}}, "labels.a", "b"),
    ("`metadata.annotations`", body() | {"metadata": {"annotations": {"a": "b"}}}, "annotations.a", "b"),
    ("`fault-tolerance/job-retry-num`", annotated("job-retry-num", "128"), f"{TOLERANCE}.maxJobRetries", 128),
    (
        "`fault-tolerance/job-retry-num` of 129",
        annotated("job-retry-num", "129"),
        "must be a whole number from 1 to 128",
        None,
    ),
    (
        "`fault-tolerance/job-unconditional-retry`",
        annotated("job-unconditional-retry", "true"),
        f"{TOLERANCE}.unconditionalRetry",
        True,
    ),
    (
        "`fault-tolerance/hang-retry`",
        annotated("hang-retry", "true"),
        f"{TOLERANCE}.hangDetection.action",
        "HANG_ACTION_RESTART",
    ),
    ("`MA_HANG_DETECT_TIME`", with_variable("30"), f"{TOLERANCE}.hangDetection.timeout", "1800s"),
    ("`MA_HANG_DETECT_TIME` of 9", with_variable("9"), "must be whole minutes from 10 to 720", None),
]
"""What the service that restarts on suspension documents: its name, a job with it, and the field that it sets with its
value, or the words of the refusal."""


@pytest.mark.parametrize(("name", "data", "effect", "value"), SUSPENSION, ids=[row[0] for row in SUSPENSION])
def test_what_asks_for_a_restart_on_suspension_sets_a_field(
    name: str, data: dict[str, Any], effect: str, value: Any
) -> None:
    if value is None:
        assert any(effect in each for each in refusals(data))
    else:
        assert at(json_view.job(spec.job_to_proto(spec.parse(data))), effect) == value


def test_the_page_has_each_request_for_a_restart_on_suspension() -> None:
    rows = re.findall(
        r"^\| (.+?) \| (taken|refused)\b", PAGE.read_text().partition("## Suspension")[2], re.MULTILINE
    )
    assert rows == [(name, TAKEN if value is not None else REFUSED) for name, _, _, value in SUSPENSION]


def test_the_page_has_each_field_with_its_outcome() -> None:
    fields = PAGE.read_text().partition("## Options of the command")[0]
    rows = re.findall(r"^\| `(.+?)`(?: (.+?))? \| (taken|kept|ignored|refused)\b", fields, re.MULTILINE)
    page = {f"{name} {more}".strip().replace("`", ""): outcome for name, more, outcome in rows}
    assert page == {page_name(row): row.outcome for row in TABLE}
