"""What a job may say about hangs: defaults, spellings, and every wrong value with its path and a fix."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidSpec, Violation

TOLERANCE = "jobSpec.faultTolerance"
HANG = f"{TOLERANCE}.hangDetection"


def job(**tolerance: Any) -> dict[str, Any]:
    pool = {"replicaCount": 1, "processSpec": {"command": ["x"]}}
    return {"displayName": "d", "jobSpec": {"workerPoolSpecs": [pool], "faultTolerance": tolerance}}


def with_hang(**fields: Any) -> dict[str, Any]:
    return job(hangDetection=fields)


def test_what_is_unset_is_left_to_the_cluster_and_to_the_job_s_rhythm() -> None:
    tolerance = spec.parse(job()).job_spec.fault_tolerance
    hang = tolerance.hang_detection
    assert tolerance.max_hang_restarts == 3
    assert (hang.action, hang.step_pattern) == (None, "")
    assert (
        hang.timeout,
        hang.floor,
        hang.ceiling,
        hang.startup_timeout,
        hang.lone_work_timeout,
        hang.external_timeout,
    ) == (None,) * 6


def test_what_job_show_prints_about_hangs_can_be_submitted_again() -> None:
    now = "2030-01-01T00:00:00Z"
    shown = {"hangs": [{"number": 1}], "heldUntil": now, "held_until": now, "health": "all is well"}
    assert spec.parse(job() | shown) == spec.parse(job())


@pytest.mark.parametrize("unset", [None, "UNSPECIFIED", "HANG_ACTION_UNSPECIFIED"])
def test_an_unspecified_action_is_unset(unset: str | None) -> None:
    read = spec.parse(with_hang(action=unset))
    assert read.job_spec.fault_tolerance.hang_detection.action is None
    assert spec.to_dict(read) == spec.to_dict(spec.parse(with_hang()))


def test_times_of_a_hang_are_unset_or_seconds() -> None:
    read = spec.parse(with_hang(timeout="10m", floor=None, action="RESTART"))
    hang = read.job_spec.fault_tolerance.hang_detection
    assert (hang.timeout, hang.floor, hang.action) == (600.0, None, spec.HangAction.RESTART)
    assert spec.to_dict(read)["jobSpec"]["faultTolerance"] == {
        "hangDetection": {"action": "HANG_ACTION_RESTART", "timeout": "600s"}
    }


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (
            job(maxHangRestarts=-1),
            f"{TOLERANCE}.maxHangRestarts: must be at least 0, not -1",
        ),
        (
            job(maxHangRestarts=1001),
            f"{TOLERANCE}.maxHangRestarts: must be at most 1,000, not 1001",
        ),
        (
            job(maxHangRestarts="three"),
            f'{TOLERANCE}.maxHangRestarts: must be a whole number, not "three"',
        ),
        (
            job(hangDetection="RESTART"),
            f'{TOLERANCE}.hangDetection: must be a mapping of fields to values, not "RESTART"',
        ),
        (with_hang(patience=1), f"{HANG}.patience: is no known field (fields here: action, timeout, floor, ceili"),
        (with_hang(action="KILL"), f'{HANG}.action: must be NOTIFY or RESTART or OFF, not "KILL"'),
        (with_hang(action=True), f"{HANG}.action: must be NOTIFY or RESTART or OFF, not true"),
        *(
            (with_hang(**{name: value}), f"{HANG}.{name}: {problem}")
            for name in ("timeout", "floor", "ceiling", "startupTimeout", "loneWorkTimeout", "externalTimeout")
            for value, problem in [
                (0, "must be longer than 0 seconds"),
                ("-5s", 'must be a duration, not "-5s" (write seconds, or "90s", "15m", "2h")'),
                ("soon", 'must be a duration, not "soon" (write seconds, or "90s", "15m", "2h")'),
                ("31d", 'must be at most 30 days, not "31d"'),
            ]
        ),
        (with_hang(stepPattern=5), f'{HANG}.stepPattern: must be text, not 5 (put it in quotes: "5")'),
        (with_hang(stepPattern="(x)\n"), f"{HANG}.stepPattern: contains a control character"),
        (
            with_hang(stepPattern="(x)" * 342),
            f"{HANG}.stepPattern: has 1,026 characters; at most 1,024 are allowed",
        ),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(data: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec.parse(data)
    [violation] = caught.value.violations
    assert str(violation).startswith(complaint)


@pytest.mark.parametrize(
    "pattern", [r"step=(\d+)", r"(?P<step>[0-9.]+)/100", r"it(?:er)? (\d+)", r"(\d+)+ steps", ""]
)
def test_a_step_pattern_has_a_group_for_the_step(pattern: str) -> None:
    assert pattern_violations(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("step", "has no group for the step"),
        (r"step=(?:\d+)", "has no group for the step"),
        ("step=(", "is no regular expression: missing ), unterminated subpattern at position 5"),
        (r"\q(1)", r"is no regular expression: bad escape \q at position 0"),
        ("(x{1,99999999999})", "is no regular expression: the repetition number is too large"),
        ("(((x{90}){90}){90})", "is no regular expression: "),
        (r"(\d+) of \1", "refers back to one of its groups, which step patterns (RE2 syntax) cannot do"),
        (r"(?<=step )(\d+)", "has a look-ahead, look-behind or atomic group, which step patterns (RE2 syntax)"),
    ],
)
def test_a_step_pattern_that_cannot_be_used_is_refused(pattern: str, problem: str) -> None:
    [found] = pattern_violations(pattern)
    assert found.path == "jobSpec.faultTolerance.hangDetection.stepPattern"
    assert found.problem.startswith(problem)
    assert "step=(" in found.fix


def pattern_violations(pattern: str) -> list[Violation]:
    try:
        spec.parse(with_hang(stepPattern=pattern))
    except InvalidSpec as error:
        return list(error.violations)
    return []
