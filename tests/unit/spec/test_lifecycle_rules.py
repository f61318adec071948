"""What a job may say about retries, queue, hosts and signals: defaults, limits, contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.spec import RestartScope, SchedulingStrategy
from holdfast.spec.rules.lifecycle import WARNING_SIGNALS

SCHEDULING = "jobSpec.scheduling"
TOLERANCE = "jobSpec.faultTolerance"


def job(scheduling: Any = None, tolerance: Any = None, **outside: Any) -> dict[str, Any]:
    pool = {"replicaCount": 1, "processSpec": {"command": ["x"]}}
    data: dict[str, Any] = {"workerPoolSpecs": [pool]}
    if scheduling is not None:
        data["scheduling"] = scheduling
    if tolerance is not None:
        data["faultTolerance"] = tolerance
    return {"displayName": "d", "jobSpec": data, **outside}


def complaints(data: object) -> list[str]:
    try:
        spec.parse(data)
    except InvalidSpec as error:
        return [str(violation) for violation in error.violations]
    return []


def test_defaults_are_those_of_the_services_that_had_these_fields_first() -> None:
    read = spec.parse(job())
    scheduling, tolerance = read.job_spec.scheduling, read.job_spec.fault_tolerance
    assert (scheduling.restart_job_on_worker_restart, scheduling.disable_retries) == (False, False)
    assert (scheduling.max_wait_duration, scheduling.strategy) == (86_400.0, SchedulingStrategy.STANDARD)
    assert (scheduling.priority, scheduling.warning_signal, scheduling.wait_for_resources) == (1, None, True)
    assert scheduling.host_selector == spec.HostSelector()
    assert (tolerance.restart_scope, tolerance.max_job_retries) == (RestartScope.GANG, 3)
    assert (tolerance.permanent_exit_codes, tolerance.transient_exit_codes) == ((), ())
    assert (tolerance.backoff.initial, tolerance.backoff.limit) == (0.0, 300.0)
    assert (tolerance.unconditional_retry, tolerance.no_progress_limit) == (False, 3)
    assert tolerance.disconnect_policy is None
    assert (read.annotations, read.project) == ({}, "default")


def test_what_is_set_is_read_and_printed() -> None:
    scheduling = {
        "restartJobOnWorkerRestart": True,
        "maxWaitDuration": 0,
        "strategy": "LOW_COST",
        "priority": "3",
        "warningSignal": {"signal": "SIGUSR1", "before": "10m"},
        "waitForResources": False,
        "hostSelector": {"hosts": ["a"], "avoidHosts": ["b"], "labels": {"k": "v"}, "avoidLabels": {"k": "w"}},
    }
    tolerance = {
        "restartScope": "WORKER",
        "maxJobRetries": 0,
        "permanentExitCodes": [1, 255],
        "transientExitCodes": ["2"],
        "backoff": {"initial": "5s", "limit": 5},
        "unconditionalRetry": True,
        "noProgressLimit": 0,
        "disconnectPolicy": "STOP_AND_REPLACE",
    }
    printed = spec.to_dict(spec.parse(job(scheduling | {"restartJobOnWorkerRestart": False}, tolerance)))["jobSpec"]
    assert printed["scheduling"] == scheduling | {
        "restartJobOnWorkerRestart": False,
        "maxWaitDuration": "0s",
        "strategy": "SCHEDULING_STRATEGY_LOW_COST",
        "priority": 3,
        "warningSignal": {"signal": "SIGUSR1", "before": "600s"},
    }
    assert printed["faultTolerance"] == tolerance | {
        "restartScope": "RESTART_SCOPE_WORKER",
        "transientExitCodes": [2],
        "backoff": {"initial": "5s", "limit": "5s"},
        "disconnectPolicy": "DISCONNECT_POLICY_STOP_AND_REPLACE",
    }


def test_old_names_of_a_strategy_mean_the_new_ones() -> None:
    assert {each.name: each.current.name for each in SchedulingStrategy} == {
        "STANDARD": "STANDARD",
        "SPOT": "SPOT",
        "FLEX_START": "FLEX_START",
        "ON_DEMAND": "STANDARD",
        "LOW_COST": "SPOT",
    }


@pytest.mark.parametrize("name", ["timeout", "gracePeriod", "endGrace", "maxWaitDuration"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("-1s", 'must be a duration, not "-1s" (write seconds, or "90s", "15m", "2h")'),
        (-1, "must be a duration of 0 or more, not -1"),
        ("99999d", "must be at most"),
    ],
)
def test_times_are_not_negative_and_not_endless(name: str, value: Any, problem: str) -> None:
    [found] = complaints(job({name: value}))
    assert found.startswith(f"{SCHEDULING}.{name}: {problem}")


@pytest.mark.parametrize(
    ("scheduling", "complaint"),
    [
        ({"strategy": "SPOTT"}, "strategy: must be STANDARD or SPOT or FLEX_START or ON_DEMAND or LOW_COST,"),
        ({"priority": 0}, "priority: must be at least 1, not 0"),
        ({"priority": 4}, "priority: must be at most 3, not 4"),
        (
            {"disableRetries": "true"},
            'disableRetries: must be true or false, not "true" (write true without quotes)',
        ),
        ({"expectedDuration": "8d"}, "expectedDuration: is 8 days, longer than the timeout of 7 days (write"),
        ({"expectedDuration": "1000001s"}, "expectedDuration: is 1000001 s, longer than the timeout of 7 days"),
        ({"expectedDuration": 0}, "expectedDuration: must be longer than 0 seconds"),
        (
            {"after": [{"job": "a"}, {"job": "a", "end": "ANY"}]},
            "after[1].job: a stands here twice (leave one of the",
        ),
        ({"after": [{"end": "OK"}]}, "after[0].job: is missing"),
        ({"after": [{"job": "a", "end": "STARTED"}]}, "after[0].end: must be OK or ANY or FAILED,"),
        ({"after": [{"job": str(n)} for n in range(101)]}, "after: has 101 entries; at most 100 are allowed"),
        ({"array": "1-20;3"}, "array: '1-20;3' is no index or range (write 1-20, 1,3,7 or 1-20:2"),
        (
            {"underuse": {"duration": "30s"}},
            'underuse.duration: is 30 s; GPUs are looked at once a minute (write "1m" or more, such as "2h")',
        ),
        ({"pauseIfUnmet": True}, "pauseIfUnmet: goes with after (name the jobs to wait for, or leave it out)"),
        ({"waitForResources": 1}, "waitForResources: must be true or false, not 1"),
        ({"warningSignal": {"signal": "SIGUSR1"}}, 'warningSignal.before: is missing (such as before: "10m")'),
        ({"warningSignal": {"before": 5}}, 'warningSignal.signal: is missing (such as signal: "SIGUSR1")'),
        ({"hostSelector": {"host": ["a"]}}, "hostSelector.host: is no known field (did you mean hosts?)"),
        ({"hostSelector": {"hosts": "a"}}, 'hostSelector.hosts: must be a list, not "a" (such as ["a"])'),
        (
            {"hostSelector": {"labels": {"rack": 7}}},
            "hostSelector.labels.rack: must be text, not 7 (put it in quotes",
        ),
    ],
)
def test_wrong_values_of_scheduling(scheduling: dict[str, Any], complaint: str) -> None:
    [found] = complaints(job(scheduling))
    assert found.startswith(f"{SCHEDULING}.{complaint}")


@pytest.mark.parametrize("written", ["SPOTT", "spot", "SPO", "scheduling_strategy_spot"])
def test_a_strategy_is_guessed(written: str) -> None:
    [found] = complaints(job({"strategy": written}))
    assert found.endswith("(did you mean SPOT?)")


@pytest.mark.parametrize(
    ("tolerance", "complaint"),
    [
        ({"maxJobRetries": -1}, "maxJobRetries: must be at least 0, not -1"),
        ({"maxJobRetries": 1001}, "maxJobRetries: must be at most 1,000, not 1001"),
        ({"noProgressLimit": -1}, "noProgressLimit: must be at least 0, not -1"),
        ({"warm": {"preload": ["a b"]}}, "warm.preload[0]: must be a module's name, such as"),
        ({"warm": {"never": ["torch", "scikit-learn"]}}, "warm.never[1]: must be a module's name, such as"),
        ({"permanentExitCodes": [0]}, "permanentExitCodes[0]: must be at least 1, not 0"),
        ({"transientExitCodes": [1, 256]}, "transientExitCodes[1]: must be at most 255, not 256"),
        ({"permanentExitCodes": 7}, "permanentExitCodes: must be a list, not 7"),
        ({"restartScope": "WORKERS"}, 'restartScope: must be GANG or WORKER, not "WORKERS" (did you mean WORKER?)'),
        (
            {"disconnectPolicy": "STOP"},
            'disconnectPolicy: must be KEEP or STOP_AND_REPLACE or REPLACE_IF_ISOLATED, not "STOP"',
        ),
        (
            {"permanentExitCodes": [3, 4], "transientExitCodes": [5, 4]},
            "transientExitCodes[1]: 4 is in permanentExitCodes as well (remove it from one of them)",
        ),
        (
            {"backoff": {"initial": "10m"}},
            "backoff.initial: is 10 min, longer than the limit of 5 min (write a shorter time here, or a longer",
        ),
        ({"backoff": {"initial": 2, "limit": 1}}, "backoff.initial: is 2 s, longer than the limit of 1 s"),
    ],
)
def test_wrong_values_of_fault_tolerance(tolerance: dict[str, Any], complaint: str) -> None:
    [found] = complaints(job(tolerance=tolerance))
    assert found.startswith(f"{TOLERANCE}.{complaint}")


@pytest.mark.parametrize(
    ("scheduling", "tolerance", "complaint"),
    [
        (
            {"disableRetries": True},
            {"maxJobRetries": 2},
            f"{TOLERANCE}.maxJobRetries: is 2, though scheduling.disableRetries allows no retry",
        ),
        (
            {"disableRetries": True},
            {"maxWorkerRestarts": 1},
            f"{TOLERANCE}.maxWorkerRestarts: is 1, though scheduling.disableRetries allows no retry",
        ),
        (
            {"disableRetries": True},
            {"unconditionalRetry": True},
            f"{TOLERANCE}.unconditionalRetry: is true, though scheduling.disableRetries allows no retry",
        ),
        (
            {"restartJobOnWorkerRestart": True},
            {"restartScope": "WORKER"},
            f"{TOLERANCE}.restartScope: is WORKER, though scheduling.restartJobOnWorkerRestart restarts the whole",
        ),
    ],
)
def test_contradictions_are_refused(scheduling: dict[str, Any], tolerance: dict[str, Any], complaint: str) -> None:
    [found] = complaints(job(scheduling, tolerance))
    assert found.startswith(complaint)
    assert "(remove one of the two" in found


def test_no_retries_beside_explicit_zeros_and_defaults() -> None:
    zeros = {"maxJobRetries": 0, "maxWorkerRestarts": 0, "unconditionalRetry": False}
    assert complaints(job({"disableRetries": True, "restartJobOnWorkerRestart": False}, zeros)) == []
    assert complaints(job({"disableRetries": True})) == []


def test_one_worker_restarts_alone_under_either_success_policy() -> None:
    for policy in ("PRIMARY", "ALL"):
        data = job(tolerance={"restartScope": "WORKER"})
        data["jobSpec"]["successPolicy"] = policy
        assert complaints(data) == []


@pytest.mark.parametrize(
    ("signal", "fix"),
    [
        ("SIGKILL", "must not be SIGKILL: no program can take it as a warning (use SIGUSR1 or SIGTERM)"),
        ("kill", "must not be SIGKILL"),
        ("SIGSTOP", "must not be SIGSTOP"),
        ("USR1", "names no signal that can warn a program (did you mean SIGUSR1?)"),
        ("sigusr2", "names no signal that can warn a program (did you mean SIGUSR2?)"),
        ("SIGSUR1", "names no signal that can warn a program (did you mean SIGUSR1?)"),
        ("hello", "names no signal that can warn a program (use one of SIGHUP, SIGINT,"),
        ("10", "names no signal that can warn a program (did you mean SIGUSR1?)"),
        ("11", "names no signal that can warn a program (use one of"),
    ],
)
def test_a_warning_is_a_signal_that_a_program_can_catch(signal: str, fix: str) -> None:
    [found] = complaints(job({"warningSignal": {"signal": signal, "before": "1m"}}))
    assert found.startswith(f"{SCHEDULING}.warningSignal.signal: {fix}")


@pytest.mark.parametrize("signal", sorted(WARNING_SIGNALS))
def test_signals_that_warn(signal: str) -> None:
    assert complaints(job({"warningSignal": {"signal": signal, "before": "1m"}})) == []


def test_a_warning_comes_within_the_jobs_time() -> None:
    def warned(before: Any, **scheduling: Any) -> list[str]:
        return complaints(job({"warningSignal": {"signal": "SIGUSR1", "before": before}, **scheduling}))

    assert warned("59m", timeout="1h") == []
    assert warned("1h", timeout="1h") == [
        f"{SCHEDULING}.warningSignal.before: is 1 h, not shorter than the timeout of 1 h"
        " (write a shorter time here, or a longer scheduling.timeout)"
    ]
    assert len(warned("7d")) == 1
    assert warned("6d") == []
    assert warned(0) == [f"{SCHEDULING}.warningSignal.before: must be longer than 0 seconds"]


def test_a_host_is_not_wanted_and_avoided_at_once() -> None:
    selector = {"hosts": ["a", "b"], "avoidHosts": ["c", "b"], "labels": {"x": "1"}, "avoidLabels": {"x": "1"}}
    place = f"{SCHEDULING}.hostSelector"
    assert complaints(job({"hostSelector": selector})) == [
        f"{place}.avoidHosts[1]: b is in hosts as well (remove it from one of them)",
        f"{place}.avoidLabels.x: is asked for in labels (remove it from one of them)",
    ]


@pytest.mark.parametrize("name", ["Vision", "a_b", "a b", "-a", "a" * 64, "ä", "a.b"])
def test_a_project_is_a_plain_name(name: str) -> None:
    [found] = complaints(job(project=name))
    assert found.startswith("project: ")


def test_projects() -> None:
    assert spec.parse(job(project="vision-2")).project == "vision-2"
    assert complaints(job(project="")) == ["project: must not be empty"]
    assert complaints(job(project=7)) == ['project: must be text, not 7 (put it in quotes: "7")']


@pytest.mark.parametrize(
    ("line", "path", "fix"),
    [
        ("labels: {version: 1.10}", "labels.version", '"1.10"'),
        ("labels: {on: yes}", "labels.on", '"yes"'),
        ("annotations: {retries: 3}", "annotations.retries", '"3"'),
        ("project: 007", "project", '"007"'),
    ],
)
def test_yaml_without_quotes_is_told_which_quotes(line: str, path: str, fix: str) -> None:
    text = f"""
displayName: d
{line}
jobSpec:
  workerPoolSpecs:
  - replicaCount: 1
    processSpec: {{command: [x]}}
"""
    with pytest.raises(InvalidSpec) as caught:
        spec.parse_text(text, source="job.yaml")
    [violation] = caught.value.violations
    assert violation.path == path
    assert violation.fix == f"put it in quotes: {fix}"


def test_yaml_booleans_are_flags_however_they_are_written() -> None:
    text = """
workerPoolSpecs:
- {replicaCount: 1, processSpec: {command: [x]}}
scheduling: {disableRetries: yes, waitForResources: off}
"""
    scheduling = spec.parse_text(text, source="job.yaml").job_spec.scheduling
    assert (scheduling.disable_retries, scheduling.wait_for_resources) == (True, False)


def test_everything_wrong_is_told_at_once() -> None:
    found = complaints(
        job(
            {"priority": 4, "disableRetries": True, "timeout": -1, "warningSignal": {"signal": "X", "before": 1}},
            {"maxJobRetries": 2, "backoff": {"initial": 5, "limit": "x"}, "permanentExitCodes": [0, 300]},
        )
    )
    assert [each.partition(":")[0] for each in found] == [
        f"{SCHEDULING}.priority",
        f"{SCHEDULING}.timeout",
        f"{TOLERANCE}.backoff.limit",
        f"{TOLERANCE}.permanentExitCodes[0]",
        f"{TOLERANCE}.permanentExitCodes[1]",
        f"{TOLERANCE}.maxJobRetries",
        f"{SCHEDULING}.warningSignal.signal",
    ]


@pytest.mark.parametrize(
    ("scheduling", "tolerance", "complaint"),
    [
        ({"spares": -1}, None, "spares: must be at least 0"),
        ({"spares": 10_001}, None, "spares: must be at most 10,000"),
        ({"spares": "two"}, None, "spares: must be a whole number"),
        (
            {"spares": 1, "disableRetries": True},
            None,
            "spares: are of no use where scheduling.disableRetries allows no",
        ),
        (
            {"spares": 1},
            {"disconnectPolicy": "KEEP"},
            "spares: are of no use with the disconnectPolicy KEEP: a worker on",
        ),
        (
            {"spares": 1, "placement": {"segment": {"size": 1, "within": "rack"}}},
            None,
            "spares: can't be near each segment of scheduling.placement (remove one of the two)",
        ),
    ],
)
def test_spares_that_can_never_be_used_are_refused(scheduling: Any, tolerance: Any, complaint: str) -> None:
    (found,) = complaints(job(scheduling, tolerance))
    assert found.startswith(f"{SCHEDULING}.{complaint}"), found


@pytest.mark.parametrize("wrong", ["SOCKET", "nod", 1, ["NODE"], {"mode": "NODE"}])
def test_a_binding_that_is_none_is_refused_with_those_that_are(wrong: Any) -> None:
    (found,) = complaints(job({"numaBinding": wrong}))
    assert found.startswith(f"{SCHEDULING}.numaBinding: must be "), found
    assert isinstance(wrong, (int, list, dict)) or "EXCLUSIVE" in found


def test_spares_for_workers_with_several_gpu_models_are_refused() -> None:
    machines = [{"acceleratorType": model, "acceleratorCount": 1} for model in ("NVIDIA_H100_80GB", "NVIDIA_L4")]
    pools = [{"replicaCount": 1, "machineSpec": machine, "processSpec": {"command": ["x"]}} for machine in machines]
    (found,) = complaints({"displayName": "d", "jobSpec": {"workerPoolSpecs": pools, "scheduling": {"spares": 1}}})
    assert "spares: do for every worker, and these ask for NVIDIA_H100_80GB and NVIDIA_L4" in found


def test_spares_do_for_one_mig_profile_alone() -> None:
    data = job({"spares": 1})
    pool = data["jobSpec"]["workerPoolSpecs"][0]
    other = {**pool, "machineSpec": {"acceleratorCount": 1}}
    data["jobSpec"]["workerPoolSpecs"] = [
        {**pool, "machineSpec": {"acceleratorCount": 1, "gpuPartitionSize": "1g.10gb"}},
        other,
    ]
    words = "do for every worker, and these ask for 1g.10gb and whole GPUs"
    assert complaints(data) == [
        f"{SCHEDULING}.spares: {words} (ask for one gpuPartitionSize in all workerPoolSpecs, or for no spares)"
    ]
