"""Whatever is valid survives every way round; whatever is not ends in ``InvalidSpec`` and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import spec
from holdfast.errors import InvalidSpec, Violation
from holdfast.spec import FaultTolerance, HostSelector, Scheduling
from holdfast.spec.compat import annotations as annotation_keys
from holdfast.spec.compat.envelope import Envelope, Metadata
from holdfast.spec.models.base import both_spellings
from holdfast.spec.models.job import JobFile, JobSpec, ProcessSpec, WorkerPoolSpec
from holdfast.v1 import job_pb2

RELAXED = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
printable = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=12)
solid = printable.filter(lambda value: value.strip())
image = st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1, max_size=12)
integers = st.one_of(st.integers(1, 20), st.integers(1, 20).map(str))
durations = st.one_of(
    st.floats(1e-9, 3600, allow_nan=False),
    st.integers(1, 3600),
    st.integers(1, 3600).map("{}s".format),
    st.integers(1, 60).map("{}m".format),
)


def is_a_nanosecond(duration: object) -> bool:
    """Whether it is read as the shortest one: what is finer than a nanosecond is rounded."""
    return isinstance(duration, float) and round(duration, 9) == 1e-9


env = st.lists(
    st.fixed_dictionaries(
        {"name": st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)}, optional={"value": text}
    ),
    max_size=4,
    unique_by=lambda variable: variable["name"],
)
command = st.lists(text, max_size=3).map(lambda rest: ["train", *rest])  # what Python is to run could be a launcher
process = st.fixed_dictionaries(
    {"command": command},
    optional={
        "args": st.lists(text, max_size=3),
        "env": env,
        "workingDirectory": st.sampled_from(["/", "/a b", ""]),
    },
)
container = st.fixed_dictionaries(
    {"imageUri": image}, optional={"command": command, "args": st.lists(text), "env": env}
)
package = st.fixed_dictionaries(
    {"executorImageUri": solid, "packageUris": st.lists(solid, min_size=1, max_size=3), "pythonModule": solid},
    optional={"args": st.lists(text, max_size=3), "env": env},
)
machine = st.fixed_dictionaries(
    {"acceleratorCount": integers},
    optional={"machineType": printable, "acceleratorType": printable, "cpuCount": integers, "memoryMb": integers},
)

module = st.from_regex(r"[A-Za-z_]\w{0,9}(\.[A-Za-z_]\w{0,9}){0,2}", fullmatch=True)
learned = st.one_of(durations, st.none())
tolerance = st.fixed_dictionaries(
    {},
    optional={
        "maxWorkerRestarts": st.integers(0, 1000),
        "maxHangRestarts": st.one_of(st.integers(0, 1000), st.none()),
        "hangDetection": st.fixed_dictionaries(
            {},
            optional={
                "action": st.sampled_from(
                    ["NOTIFY", "HANG_ACTION_RESTART", "OFF", "HANG_ACTION_UNSPECIFIED", "UNSPECIFIED", None]
                ),
                **dict.fromkeys(
                    ("timeout", "floor", "ceiling", "startupTimeout", "loneWorkTimeout", "externalTimeout"), learned
                ),
                "stepPattern": st.sampled_from(["", r"step=(\d+)", "(?i)iter (?P<step>[0-9.]+)"]),
            },
        ),
        "restartScope": st.sampled_from(["GANG", "RESTART_SCOPE_WORKER", "UNSPECIFIED"]),
        "maxJobRetries": st.one_of(st.integers(0, 1000), st.none()),
        "permanentExitCodes": st.lists(st.integers(1, 99), max_size=3),
        "transientExitCodes": st.lists(st.integers(100, 255).map(str), max_size=3),
        "backoff": st.fixed_dictionaries({}, optional={"initial": st.integers(0, 300), "limit": st.just("1h")}),
        "unconditionalRetry": st.booleans(),
        "noProgressLimit": st.integers(0, 1000),
        "disconnectPolicy": st.sampled_from(["KEEP", "DISCONNECT_POLICY_STOP_AND_REPLACE"]),
        "warm": st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from(["AUTO", "IN_PROCESS", "WARM_MODE_OFF", "UNSPECIFIED"]),
                "preload": st.lists(module, max_size=2),
                "never": st.lists(module, max_size=2),
            },
        ),
    },
)
host = st.from_regex(r"[A-Za-z0-9._@-]{1,20}", fullmatch=True)
host_labels = st.dictionaries(solid, printable, max_size=2)
selector = st.fixed_dictionaries(
    {},
    optional={
        "hosts": st.lists(host.map("a".__add__), max_size=2),
        "avoidHosts": st.lists(host.map("b".__add__), max_size=2),
        "labels": host_labels,
        "match": st.sampled_from(["key-of-match in (a,b)", "!key-of-match", ""]),
        "avoidLabels": host_labels.map(lambda labels: {key: f"not {value}" for key, value in labels.items()}),
    },
)
scheduling = st.fixed_dictionaries(
    {},
    optional={
        "timeout": durations,
        "gracePeriod": durations,
        "endGrace": durations,
        "disableRetries": st.just(False),
        "restartJobOnWorkerRestart": st.just(False),
        "maxWaitDuration": st.one_of(st.just(0), durations),
        "strategy": st.sampled_from([*spec.SchedulingStrategy.__members__, "SCHEDULING_STRATEGY_SPOT"]),
        "priority": st.sampled_from([1, 2, "3"]),
        "warningSignal": st.just({"signal": "SIGUSR1", "before": 1e-9}),
        "waitForResources": st.booleans(),
        "hostSelector": selector,
        "expectedDuration": st.just(1e-9),
        "after": st.just([{"job": "prep-1"}, {"job": "prep-2", "end": "ANY"}]),
        "array": st.sampled_from(["0-9", "1,3,7", "1-20:2%4"]),
    },
).filter(lambda drawn: "warningSignal" not in drawn or not is_a_nanosecond(drawn.get("timeout")))


@st.composite
def pools(draw: st.DrawFn) -> list[dict[str, Any]]:
    drawn = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["processSpec", "containerSpec", "pythonPackageSpec"]))
        pool: dict[str, Any] = {
            "replicaCount": 1 if index == 0 else draw(integers),
            kind: draw({"processSpec": process, "containerSpec": container, "pythonPackageSpec": package}[kind]),
        }
        if draw(st.booleans()):
            pool["machineSpec"] = draw(machine)
            pool["hostSelector"] = {
                "match": draw(st.sampled_from(["other-key", "!other-key", "other-key in (a,b)"]))
            }
            pool["nfsMounts"] = draw(st.lists(st.fixed_dictionaries({"server": printable, "path": printable})))
            pool["diskSpec"] = {"bootDiskType": draw(printable), "bootDiskSizeGb": draw(integers)}
        drawn.append(pool)
    return drawn


jobs = st.fixed_dictionaries(
    {
        "displayName": solid,
        "jobSpec": st.fixed_dictionaries(
            {"workerPoolSpecs": pools()},
            optional={
                "scheduling": scheduling,
                "faultTolerance": tolerance,
                "successPolicy": st.sampled_from(["ALL", "SUCCESS_POLICY_PRIMARY"]),
                "baseOutputDirectory": st.sampled_from(
                    [{"outputUriPrefix": "/o"}, {"output_uri_prefix": "gs://b"}]
                ),
                **dict.fromkeys(("serviceAccount", "network", "experiment", "tensorboard"), printable),
                **dict.fromkeys(("reservedIpRanges", "models"), st.lists(printable, max_size=2)),
                "enableWebAccess": st.booleans(),
            },
        ),
    },
    optional={
        "labels": st.dictionaries(solid, printable, max_size=3),
        "annotations": st.dictionaries(solid, text, max_size=3),
        "project": st.sampled_from(["default", "vision-2", "0"]),
    },
)


@RELAXED
@given(jobs)
def test_valid_jobs_survive_printing_yaml_json_and_protobuf(data: dict[str, Any]) -> None:
    job = spec.parse(data)
    printed = spec.to_dict(job)

    assert spec.parse(printed) == job
    assert spec.to_dict(spec.parse(printed)) == printed
    assert spec.parse_text(json.dumps(printed), source="job.json") == job
    assert spec.parse_text(yaml.safe_dump(printed), source="job.yaml") == job
    assert spec.parse(spec.to_dict(job.job_spec)).job_spec == job.job_spec
    assert spec.from_proto(spec.to_proto(job.job_spec)) == job.job_spec
    assert spec.job_from_proto(spec.job_to_proto(job)) == job
    assert spec.job_to_proto(job) == json_format.ParseDict(printed, job_pb2.CustomJob())
    assert JobFile.model_validate(job.model_dump()) == job


MODELS = (
    JobFile,
    JobSpec,
    WorkerPoolSpec,
    ProcessSpec,
    Envelope,
    Metadata,
    Scheduling,
    FaultTolerance,
    HostSelector,
)
FIELDS = [*(name for model in MODELS for name in both_spellings(model.model_fields)), *annotation_keys.KNOWN]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def refusals(parse: Callable[[], object]) -> tuple[Violation, ...]:
    """What is wrong, if anything; any other error passes through."""
    try:
        parse()
    except InvalidSpec as error:
        return error.violations
    return ()


@RELAXED
@given(anything)
def test_no_data_ends_in_another_error(data: object) -> None:
    task = {"processSpec": data}
    for whole in (data, {"jobSpec": data}, {"workerPoolSpecs": [data]}, {"workerPoolSpecs": [task]}):
        found = refusals(lambda whole=whole: spec.parse(whole))  # type: ignore[misc]
        assert found
        assert all(len(str(violation)) < 600 for violation in found)


@RELAXED
@given(jobs, anything, st.data())
def test_a_valid_job_with_one_thing_replaced_ends_in_no_other_error(
    data: dict[str, Any], wrong: object, choose: st.DataObject
) -> None:
    place: Any = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = choose.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or choose.draw(st.booleans()):
            break
        place = place[key]
    place[key] = wrong
    refusals(lambda: spec.parse(data))


@RELAXED
@given(st.text(st.sampled_from("a1: -?[]{},&*!<|>'\"\n\t#%~\0\ud800é"), max_size=60) | st.text(max_size=60))
def test_no_text_ends_in_another_error(written: str) -> None:
    for source in ("job.yaml", "job.json"):
        assert refusals(lambda source=source: spec.parse_text(written, source=source))  # type: ignore[misc]
