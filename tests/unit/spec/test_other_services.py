"""Jobs as two managed services take them: their bodies as they stand, what their annotations ask for, warnings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.spec import HangAction, JobFile

BODY = """
{ "displayName": "digits",
  "jobSpec": {
    "workerPoolSpecs": [
      { "machineSpec": {"machineType": "n1-standard-4",
                        "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1},
        "replicaCount": "1",
        "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
        "nfsMounts": [{"server": "10.0.0.2", "path": "/exports", "mountPoint": "data"}],
        "containerSpec": {"imageUri": "registry.example/train:1", "command": ["python"], "args": ["train.py"]} },
      { "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "3",
        "pythonPackageSpec": {
          "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/training-tf-cpu.2-1:latest",
          "packageUris": ["gs://bucket/training/hello-custom-training-1.0.tar.gz"],
          "pythonModule": "trainer.task", "args": ["--model-dir=gs://bucket/output/"] } }
    ],
    "scheduling": {"timeout": "3600s", "restartJobOnWorkerRestart": false, "disableRetries": false,
                   "strategy": "ON_DEMAND", "maxWaitDuration": "0s"},
    "serviceAccount": "trainer@example.org", "network": "projects/1/global/networks/n",
    "reservedIpRanges": ["range-1"], "persistentResourceId": "pr", "tensorboard": "projects/1/tensorboards/2",
    "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/out"}, "enableWebAccess": true,
    "enableDashboardAccess": true, "experiment": "e", "experimentRun": "r", "models": ["m"]
  },
  "labels": {"team": "vision"} }
"""


def job(**fields: Any) -> dict[str, Any]:
    pool = {"replicaCount": "1", "processSpec": {"command": ["x"]}}
    return {"displayName": "d", "jobSpec": {"workerPoolSpecs": [pool], **fields}}


def wrapped(annotations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "job", "metadata": {"annotations": annotations}, **job(**fields)}


def with_env(value: str, **fields: Any) -> dict[str, Any]:
    data = job(**fields)
    data["jobSpec"]["workerPoolSpecs"][0]["processSpec"]["env"] = [{"name": "MA_HANG_DETECT_TIME", "value": value}]
    return data


def complaints(data: object) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        spec.parse(data)
    return [str(violation) for violation in caught.value.violations]


def warned(read: JobFile) -> list[str]:
    return [violation.path for violation in spec.warnings(read.job_spec)]


# Bodies and files of a service with CustomJobs


def test_a_request_body_is_taken_as_it_stands_and_printed_back() -> None:
    read = spec.parse_text(BODY, source="request.json")
    first, second = read.job_spec.worker_pool_specs
    assert (first.replica_count, second.replica_count) == (1, 3)
    assert first.disk_spec == spec.DiskSpec(boot_disk_type="pd-ssd", boot_disk_size_gb=100)

    printed = spec.to_dict(read)["jobSpec"]
    meant = json.loads(BODY)["jobSpec"]
    for name in meant.keys() - {"workerPoolSpecs", "scheduling"}:
        assert printed[name] == meant[name], name
    assert printed["workerPoolSpecs"][0]["nfsMounts"] == meant["workerPoolSpecs"][0]["nfsMounts"]
    assert spec.job_from_proto(spec.job_to_proto(read)) == read


def test_a_bare_spec_in_yaml_is_taken_as_it_stands() -> None:
    text = """
workerPoolSpecs:
- machineSpec: {machineType: n1-highmem-2}
  replicaCount: 1
  containerSpec: {imageUri: registry.example/ubuntu, args: [-c, echo hello]}
serviceAccount: trainer@example.org
"""
    read = spec.parse_text(text, source="config.yaml")
    assert read.display_name == "config"
    assert read.job_spec.service_account == "trainer@example.org"


def test_each_field_without_a_meaning_here_is_warned_about() -> None:
    read = spec.parse_text(BODY, source="request.json")
    fields = ("serviceAccount", "network", "reservedIpRanges", "persistentResourceId", "tensorboard")
    more = ("enableDashboardAccess", "experiment", "experimentRun", "models")
    assert warned(read) == [
        "jobSpec.workerPoolSpecs[0].nfsMounts[0]",
        "jobSpec.workerPoolSpecs[0].diskSpec.bootDiskType",
        "jobSpec.workerPoolSpecs[0].diskSpec.bootDiskSizeGb",
        "jobSpec.workerPoolSpecs[1].machineSpec.machineType",
        "jobSpec.workerPoolSpecs[1].pythonPackageSpec.executorImageUri",
        "jobSpec.baseOutputDirectory.outputUriPrefix",
        *(f"jobSpec.{name}" for name in (*fields, *more)),
    ]
    assert all(violation.fix for violation in spec.warnings(read.job_spec))


def test_a_warning_says_why_and_what_to_do_instead() -> None:
    read = spec.parse(job(serviceAccount="a@example.org"))
    assert list(map(str, spec.warnings(read.job_spec))) == [
        "jobSpec.serviceAccount: is kept, but changes nothing: a bare host has no service accounts"
        " (name an account of the hosts under runAs)"
    ]


def test_fields_that_ask_for_nothing_are_not_warned_about() -> None:
    nothing = job(enableWebAccess=False, network="", models=[], baseOutputDirectory={"outputUriPrefix": "/out"})
    assert warned(spec.parse(nothing)) == []
    nothing["jobSpec"]["workerPoolSpecs"][0]["machineSpec"] = {"machineType": "big", "cpuCount": 4}
    assert warned(spec.parse(nothing)) == []


@pytest.mark.parametrize("prefix", ["out", "file://host/out", "file:/out", "./out", "://x"])
def test_results_go_to_a_path_or_a_uri(prefix: str) -> None:
    [found] = complaints(job(baseOutputDirectory={"outputUriPrefix": prefix}))
    assert found.startswith("jobSpec.baseOutputDirectory.outputUriPrefix: must be an absolute path such as")


@pytest.mark.parametrize("prefix", ["/out", "file:///out", "gs://bucket/out", "s3://bucket"])
def test_prefixes_of_results(prefix: str) -> None:
    read = spec.parse(job(baseOutputDirectory={"outputUriPrefix": prefix}))
    assert read.job_spec.base_output_directory == spec.OutputDirectory(output_uri_prefix=prefix)


# Metadata and annotations of the other


RETRIES = "fault-tolerance/job-retry-num"
UNCONDITIONAL = "fault-tolerance/job-unconditional-retry"
HANG = "fault-tolerance/hang-retry"


def test_metadata_becomes_the_jobs_own() -> None:
    data = job()
    del data["displayName"]
    metadata = {"name": "n", "labels": {"a": "b"}, "annotations": {"note": "hello\nworld"}}
    read = spec.parse({"kind": "job", "metadata": metadata, **data})
    assert (read.display_name, read.labels, read.annotations) == ("n", {"a": "b"}, {"note": "hello\nworld"})
    bare = spec.parse({"kind": "job", "metadata": metadata, **data["jobSpec"]})
    assert bare == read


@pytest.mark.parametrize(
    ("outer", "complaint"),
    [
        ({"kind": "hyperparameter"}, 'kind: must be "job", not "hyperparameter"'),
        ({"kind": 1}, 'kind: must be text, not 1 (put it in quotes: "1")'),
        ({"metadata": {"nam": "x"}}, "metadata.nam: is no known field (did you mean name?)"),
        ({"metadata": []}, "metadata: must be a mapping of fields to values, not a list"),
        ({"metadata": {"name": "other"}}, "metadata.name: differs from displayName (remove one of the two)"),
        (
            {"metadata": {"annotations": {"a": "1"}}, "annotations": {"a": "2"}},
            "metadata.annotations.a: differs from annotations.a (remove one of the two)",
        ),
        (
            {"metadata": {"annotations": {"a": 3}}},
            'metadata.annotations.a: must be text, not 3 (put it in quotes: "3")',
        ),
    ],
)
def test_a_wrong_envelope_is_refused(outer: dict[str, Any], complaint: str) -> None:
    assert complaints(job() | outer) == [complaint]


def test_annotations_set_the_fields_that_they_stand_for() -> None:
    read = spec.parse(wrapped({RETRIES: "8", UNCONDITIONAL: "true", HANG: "true"}))
    tolerance = read.job_spec.fault_tolerance
    assert (tolerance.max_job_retries, tolerance.unconditional_retry) == (8, True)
    assert tolerance.hang_detection.action is HangAction.RESTART
    assert read.annotations == {RETRIES: "8", UNCONDITIONAL: "true", HANG: "true"}
    assert spec.parse(spec.to_dict(read)) == read
    assert spec.job_from_proto(spec.job_to_proto(read)) == read


def test_annotations_beside_the_spec_count_as_those_of_metadata() -> None:
    assert spec.parse(job() | {"annotations": {HANG: "true"}}) == spec.parse(wrapped({HANG: "true"}))


def test_no_restart_upon_suspension_still_tells_of_it() -> None:
    def action(**fields: Any) -> HangAction | None:
        read = spec.parse(wrapped({HANG: "false"}, **fields))
        return read.job_spec.fault_tolerance.hang_detection.action

    assert action() is HangAction.NOTIFY
    assert action(faultTolerance={"hangDetection": {"action": "OFF"}}) is HangAction.OFF


@pytest.mark.parametrize("count", ["1", "128"])
def test_retries_at_their_bounds(count: str) -> None:
    assert spec.parse(wrapped({RETRIES: count})).job_spec.fault_tolerance.max_job_retries == int(count)


@pytest.mark.parametrize(
    ("annotations", "complaint"),
    [
        (
            {RETRIES: "0"},
            f'metadata.annotations["{RETRIES}"]: must be a whole number from 1 to 128, not "0"'
            " (for none remove it, and write jobSpec.faultTolerance.maxJobRetries: 0)",
        ),
        ({RETRIES: "129"}, f'metadata.annotations["{RETRIES}"]: must be a whole number from 1 to 128, not "129"'),
        ({RETRIES: "-1"}, f'metadata.annotations["{RETRIES}"]: must be a whole number from 1 to 128, not "-1"'),
        ({RETRIES: "many"}, f'metadata.annotations["{RETRIES}"]: must be a whole number from 1 to 128, not "many"'),
        ({HANG: "True"}, f'metadata.annotations["{HANG}"]: must be "true" or "false", not "True" (write "true")'),
        ({HANG: ""}, f'metadata.annotations["{HANG}"]: must be "true" or "false", not ""'),
        (
            {"fault-tolerance/job-retrynum": "3"},
            'metadata.annotations["fault-tolerance/job-retrynum"]: is no known annotation of fault-tolerance/'
            f" (did you mean {RETRIES}?)",
        ),
        (
            {"fault-tolerance/x": "3"},
            'metadata.annotations["fault-tolerance/x"]: is no known annotation of fault-tolerance/'
            f" (those are {RETRIES}, {UNCONDITIONAL}, {HANG})",
        ),
    ],
)
def test_wrong_annotations_are_refused(annotations: dict[str, str], complaint: str) -> None:
    assert complaints(wrapped(annotations)) == [complaint]


@pytest.mark.parametrize(
    ("annotations", "tolerance", "complaint"),
    [
        ({RETRIES: "3"}, {"maxJobRetries": 5}, "asks for 3, but jobSpec.faultTolerance.maxJobRetries is 5"),
        (
            {HANG: "true"},
            {"hangDetection": {"action": "NOTIFY"}},
            "asks for RESTART, but jobSpec.faultTolerance.hangDetection.action is NOTIFY",
        ),
        (
            {HANG: "false"},
            {"hangDetection": {"action": "RESTART"}},
            "asks for NOTIFY, but jobSpec.faultTolerance.hangDetection.action is RESTART",
        ),
        (
            {UNCONDITIONAL: "true"},
            {"unconditionalRetry": False},
            "asks for true, but jobSpec.faultTolerance.unconditionalRetry is false",
        ),
    ],
)
def test_a_contradiction_names_both_places(
    annotations: dict[str, str], tolerance: dict[str, Any], complaint: str
) -> None:
    [key] = annotations
    assert complaints(wrapped(annotations, faultTolerance=tolerance)) == [
        f'metadata.annotations["{key}"]: {complaint} (remove one of the two)'
    ]


def test_a_rule_that_an_annotation_breaks_names_the_annotation() -> None:
    [found] = complaints(wrapped({RETRIES: "3"}, scheduling={"disableRetries": True}))
    assert found.startswith(f'metadata.annotations["{RETRIES}"]: is 3, though scheduling.disableRetries allows no')


def test_places_in_a_bare_spec_are_those_of_the_file() -> None:
    data = with_env("5")["jobSpec"] | {"faultTolerance": {"maxJobRetries": 5}}
    assert [
        each.partition(":")[0] for each in complaints({"metadata": {"annotations": {RETRIES: "3"}}, **data})
    ] == [
        f'metadata.annotations["{RETRIES}"]',
        "workerPoolSpecs[0].processSpec.env[0].value",
    ]
    [found] = complaints({"metadata": {"annotations": {RETRIES: "3"}}, **data, **job()["jobSpec"]})
    assert "but faultTolerance.maxJobRetries is 5" in found


def test_a_field_that_was_refused_already_contradicts_nothing() -> None:
    assert complaints(wrapped({RETRIES: "3"}, faultTolerance={"maxJobRetries": "x"})) == [
        'jobSpec.faultTolerance.maxJobRetries: must be a whole number, not "x" (from 0 to 1,000)'
    ]
    assert len(complaints(wrapped({HANG: "true"}, faultTolerance=5))) == 1


# The time after which a suspension is one


def test_the_suspension_time_of_the_environment_is_honoured() -> None:
    read = spec.parse(with_env("30"))
    assert read.job_spec.fault_tolerance.hang_detection.timeout == 1800.0
    assert spec.parse(spec.to_dict(read)) == read


def test_an_explicit_timeout_wins_over_the_environment() -> None:
    read = spec.parse(with_env("30", faultTolerance={"hangDetection": {"timeout": "5m"}}))
    assert read.job_spec.fault_tolerance.hang_detection.timeout == 300.0


@pytest.mark.parametrize("value", ["9", "721", "0", "soon", "", "30.5"])
def test_a_suspension_time_out_of_range_is_refused(value: str) -> None:
    [found] = complaints(with_env(value))
    assert found == (
        "jobSpec.workerPoolSpecs[0].processSpec.env[0].value: must be whole minutes from 10 to 720,"
        f' not "{value}" (or remove it, and write jobSpec.faultTolerance.hangDetection.timeout)'
    )
