"""Shapes, spellings and single values: every complaint has the path as written, a sentence and a fix."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.spec import JobSpec, SuccessPolicy


def job(**spec_fields: Any) -> dict[str, Any]:
    pool = {"replicaCount": 1, "processSpec": {"command": ["x"]}}
    return {"displayName": "d", "jobSpec": {"workerPoolSpecs": [pool], **spec_fields}}


def with_pool(**fields: Any) -> dict[str, Any]:
    pool = {"replicaCount": 1, "processSpec": {"command": ["x"]}, **fields}
    return {"displayName": "d", "jobSpec": {"workerPoolSpecs": [{k: v for k, v in pool.items() if v != "absent"}]}}


def with_task(**fields: Any) -> dict[str, Any]:
    return with_pool(processSpec={"command": ["x"], **fields})


def complaints(data: object) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        spec.parse(data)
    return [str(violation) for violation in caught.value.violations]


POOL = "jobSpec.workerPoolSpecs[0]"
TASK = f"{POOL}.processSpec"


def test_unset_fields_have_the_documented_defaults() -> None:
    read = spec.parse(job())
    pool = read.job_spec.worker_pool_specs[0]

    assert read.labels == {}
    assert pool.processes_per_worker == 1
    assert pool.machine_spec == spec.MachineSpec()
    assert (pool.machine_spec.accelerator_count, pool.machine_spec.cpu_count, pool.machine_spec.memory_mb) == (
        0,
        0,
        0,
    )
    assert pool.process_spec == spec.ProcessSpec(command=("x",))
    scheduling = read.job_spec.scheduling
    assert (scheduling.timeout, scheduling.grace_period, scheduling.end_grace) == (604_800.0, 10.0, 0.0)
    assert read.job_spec.fault_tolerance.max_worker_restarts == 5
    assert read.job_spec.success_policy is SuccessPolicy.PRIMARY


def test_both_spellings_are_taken_even_mixed() -> None:
    mixed = {
        "display_name": "d",
        "jobSpec": {
            "worker_pool_specs": [{"replicaCount": "1", "process_spec": {"command": ["x"], "args": ["y"]}}]
        },
    }
    assert spec.to_dict(spec.parse(mixed)) == {
        "displayName": "d",
        "jobSpec": {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["x"], "args": ["y"]}}]},
    }


def test_complaints_spell_the_path_as_the_user_did() -> None:
    data = {"job_spec": {"workerPoolSpecs": [{"replica_count": 0, "process_spec": {"command": ["x"], "args": 1}}]}}
    assert complaints(data) == [
        "job_spec.workerPoolSpecs[0].replica_count: must be at least 1, not 0",
        "job_spec.workerPoolSpecs[0].process_spec.args: must be a list, not 1",
    ]


def test_a_bare_spec_is_known_by_its_pools_and_has_shorter_paths() -> None:
    bare = job()["jobSpec"]
    assert spec.parse(bare).job_spec == spec.parse(job()).job_spec
    assert spec.parse(bare).display_name == "job"
    assert complaints({**bare, "scheduling": 5}) == ["scheduling: must be a mapping of fields to values, not 5"]
    assert complaints({**bare, "displayName": "x"}) == [
        "displayName: is no known field (it belongs at the top, beside jobSpec)"
    ]
    assert complaints({"scheduling": {}})[0].startswith("workerPoolSpecs: is missing (such as workerPoolSpecs: [{")


def test_everything_wrong_is_reported_at_once() -> None:
    data = job(
        workerPoolSpecs=[
            {"replicaCount": 3, "processesPerWorker": 2, "processSpec": {"command": ["torchrun"], "args": [1]}},
            {"replicaCount": 1, "comand": ["x"], "processSpec": {"command": ["torchrun"]}, "processesPerWorker": 8},
            {"replicaCount": True, "containerSpec": {}, "processSpec": {"command": [""]}},
        ],
        scheduling={"timeout": "soon"},
    )
    paths = [line.split(":")[0] for line in complaints(data | {"labels": {"a": 1}})]
    assert paths == [
        "jobSpec.workerPoolSpecs[0].processSpec.args[0]",
        "jobSpec.workerPoolSpecs[1].comand",
        "jobSpec.workerPoolSpecs[2].replicaCount",
        "jobSpec.workerPoolSpecs[2].containerSpec.imageUri",
        "jobSpec.scheduling.timeout",
        "labels.a",
        "jobSpec.workerPoolSpecs[0].replicaCount",
        "jobSpec.workerPoolSpecs[1].processesPerWorker",
        "jobSpec.workerPoolSpecs[2].containerSpec",
        "jobSpec.workerPoolSpecs[2].processSpec.command[0]",
    ]


def test_what_job_show_prints_can_be_submitted_again() -> None:
    shown = {
        "name": "jobs/7",
        "id": "7",
        "state": "JOB_STATE_FAILED",
        "createTime": "2030-01-01T00:00:00Z",
        "end_time": "2030-01-01T00:00:00Z",
        "error": {"code": 3},
        "attempt": 1,
        "generation": 4,
        "waitReason": "",
        "waitsFor": [],
        "array": None,
        "summary": {"health": "Succeeded after 3 h"},
        "workers": [{"name": "workerpool0-0"}],
        "recoveries": [],
        "webAccessUris": {},
        "owner": "ada",
        "cursor": "9",
    }
    assert spec.parse(job() | shown) == spec.parse(job())
    assert complaints(job(state="JOB_STATE_FAILED"))[0].startswith("jobSpec.state: is no known field")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (job() | {"displayname": "x"}, "displayname: is no known field (did you mean displayName?)"),
        (with_task(comand=["x"]), f"{TASK}.comand: is no known field (did you mean command?)"),
        (with_task(working_dir="/x"), f"{TASK}.working_dir: is no known field (did you mean workingDirectory?)"),
        (with_pool(command=["x"]), f"{POOL}.command: is no known field (it belongs in {POOL[:-3]}[].processSpec)"),
        (job(gracePeriod=5), "jobSpec.gracePeriod: is no known field (it belongs in jobSpec.scheduling)"),
        (
            with_pool(tpuTopology="2x2"),
            f"{POOL}.tpuTopology: is no known field (a field of managed services that has no counterpart here; re",
        ),
        (
            job(quux=1),
            "jobSpec.quux: is no known field"
            " (fields here: workerPoolSpecs, scheduling, faultTolerance, successPolicy, baseOutputDirectory,"
            " enableWebAccess, notifications, runAs, progressTotal)",
        ),
        (
            job(gracePeriodd=5),
            "jobSpec.gracePeriodd: is no known field (did you mean gracePeriod? It belongs in jobSpec.scheduling)",
        ),
        (job(**{"a b\n": 1}), 'jobSpec["a b\\n"]: is no known field'),
        (job(**{"k" * 10_000: 1}), f'jobSpec["{"k" * 59}…"]: is no known field'),
        (dict[Any, Any](job()) | {5: 6}, "has 5 for a field's name; names are text"),
    ],
)
def test_unknown_fields_are_refused_with_a_guess(data: dict[str, Any], complaint: str) -> None:
    [line] = complaints(data)
    assert line.startswith(complaint)


def test_both_spellings_of_one_field_at_once_are_refused() -> None:
    assert complaints(with_pool(replica_count=1)) == [
        f"{POOL}.replicaCount: is given twice, as replicaCount and as replica_count (keep one of them)"
    ]


def test_null_means_unset_except_for_text() -> None:
    unset = with_pool(machineSpec=None, containerSpec=None, processesPerWorker=None)
    assert spec.parse(unset | {"labels": None}) == spec.parse(job())
    assert complaints(with_pool(replicaCount=None)) == [
        f"{POOL}.replicaCount: is missing (such as replicaCount: 1)"
    ]
    assert complaints(with_task(workingDirectory=None)) == [
        f'{TASK}.workingDirectory: must be text, not null (write "" for empty text)'
    ]


@pytest.mark.parametrize(
    ("written", "seconds", "printed"),
    [
        ("90s", 90.0, "90s"),
        ("15m", 900.0, "900s"),
        ("2h", 7200.0, "7200s"),
        ("1.5h", 5400.0, "5400s"),
        ("250ms", 0.25, "0.25s"),
        ("0.1s", 0.1, "0.1s"),
        (3600, 3600.0, "3600s"),
        ("3600s", 3600.0, "3600s"),
        (1.5, 1.5, "1.5s"),
        ("7d", 604_800.0, "604800s"),
    ],
)
def test_durations_are_kept_as_seconds_and_printed_with_an_s(written: object, seconds: float, printed: str) -> None:
    read = spec.parse(job(scheduling={"timeout": written}))
    assert read.job_spec.scheduling.timeout == seconds
    assert spec.to_dict(read)["jobSpec"]["scheduling"] == {"timeout": printed}


@pytest.mark.parametrize("written", [2, "2", 2.0])
def test_whole_numbers_may_be_numbers_or_strings(written: object) -> None:
    data = with_pool(machineSpec={"memoryMb": written})
    read = spec.parse(data)
    assert read.job_spec.worker_pool_specs[0].machine_spec.memory_mb == 2
    assert spec.to_dict(read)["jobSpec"]["workerPoolSpecs"][0]["machineSpec"] == {"memoryMb": 2}


@pytest.mark.parametrize("written", ["ALL", "SUCCESS_POLICY_ALL"])
def test_enums_may_leave_out_their_prefix_and_are_printed_with_it(written: str) -> None:
    read = spec.parse(job(successPolicy=written))
    assert read.job_spec.success_policy is SuccessPolicy.ALL
    assert spec.to_dict(read)["jobSpec"]["successPolicy"] == "SUCCESS_POLICY_ALL"


def test_an_unspecified_enum_is_the_default() -> None:
    assert spec.parse(job(successPolicy="SUCCESS_POLICY_UNSPECIFIED")) == spec.parse(job())


def test_only_what_was_set_is_printed() -> None:
    data = with_pool(machineSpec={}, processesPerWorker=1)
    assert spec.to_dict(spec.parse(data)) == data


def test_a_flood_of_complaints_is_cut_and_counted() -> None:
    found = complaints(with_task(args=[1] * 1000))
    assert len(found) == 50
    assert found[-1] == "and 951 more"


def test_the_message_names_the_source_and_counts() -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec.parse(with_pool(replicaCount=0), what="train.yaml")
    assert str(caught.value) == f"train.yaml has 1 problem:\n  {POOL}.replicaCount: must be at least 1, not 0"


def test_models_cannot_be_made_or_changed_into_something_invalid() -> None:
    valid = spec.parse(job()).job_spec
    with pytest.raises(ValidationError, match="frozen"):
        valid.success_policy = SuccessPolicy.ALL
    with pytest.raises(ValidationError, match="at least 1, not 0"):
        spec.WorkerPoolSpec(replica_count=0)
    with pytest.raises(ValidationError, match="at most 100 are allowed"):
        spec.ProcessSpec(command=("x",), env=tuple(spec.EnvVar(name=f"V{i}") for i in range(101)))
    with pytest.raises(ValidationError, match="has no task"):
        JobSpec(worker_pool_specs=(spec.WorkerPoolSpec(replica_count=1),))
