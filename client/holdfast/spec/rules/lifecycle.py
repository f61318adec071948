"""Rules that join fields of ``scheduling`` and ``faultTolerance``. Pure, on plain mappings, as in ``rules.job``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from holdfast.spec.rules.arrays import read_array
from holdfast.spec.wording import Broken, Fields, written_duration

DAY_S = 86_400.0
MINUTE_S = 60.0
DEFAULT_TIMEOUT_S = 7 * DAY_S
LONGEST_TIMEOUT_S = 3650 * DAY_S
DEFAULT_BACKOFF_LIMIT_S = 300.0

WARNING_SIGNALS: Mapping[str, int] = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGUSR1": 10,
    "SIGUSR2": 12,
    "SIGALRM": 14,
    "SIGTERM": 15,
    "SIGCONT": 18,
    "SIGURG": 23,
    "SIGXCPU": 24,
    "SIGWINCH": 28,
}
"""Signals that a program can take as a warning, with their numbers on Linux (x86-64 and arm64)."""

_SCHEDULING = "scheduling"
_TOLERANCE = "fault_tolerance"


def broken(job: Fields) -> Iterator[Broken]:
    """Every broken rule, at places counted from the spec."""
    scheduling, tolerance = job.get(_SCHEDULING) or {}, job.get(_TOLERANCE) or {}
    yield from _retries(scheduling, tolerance)
    yield from _restart_scope(scheduling, tolerance)
    yield from _spares(scheduling, tolerance)
    yield from _expected_duration(scheduling)
    yield from _warning_signal(scheduling)
    yield from _after(scheduling)
    yield from _array(scheduling)
    yield from _underuse(scheduling.get("underuse") or {})
    yield from _exit_codes(tolerance)
    yield from _backoff(tolerance.get("backoff") or {})


def _retries(scheduling: Fields, tolerance: Fields) -> Iterator[Broken]:
    """``disableRetries`` says no to everything that another field of ours may ask for.

    As in the reference it makes ``restartJobOnWorkerRestart`` false, which is warned about and not refused.
    """
    if not scheduling.get("disable_retries"):
        return
    for name in ("max_worker_restarts", "max_job_retries"):
        if (count := tolerance.get(name)) is not None and count > 0:
            yield Broken(
                (_TOLERANCE, name),
                f"is {count:,}, though scheduling.disableRetries allows no retry",
                "remove one of the two, or write 0 here",
            )
    if tolerance.get("unconditional_retry"):
        yield Broken(
            (_TOLERANCE, "unconditional_retry"),
            "is true, though scheduling.disableRetries allows no retry",
            "remove one of the two",
        )


def _restart_scope(scheduling: Fields, tolerance: Fields) -> Iterator[Broken]:
    scope = tolerance.get("restart_scope")
    if scope is not None and scope.name == "WORKER" and scheduling.get("restart_job_on_worker_restart"):
        yield Broken(
            (_TOLERANCE, "restart_scope"),
            "is WORKER, though scheduling.restartJobOnWorkerRestart restarts the whole job",
            "remove one of the two",
        )


def _spares(scheduling: Fields, tolerance: Fields) -> Iterator[Broken]:
    if not scheduling.get("spares"):
        return
    place = (_SCHEDULING, "spares")
    if scheduling.get("disable_retries"):
        yield Broken(
            place, "are of no use where scheduling.disableRetries allows no retry", "remove one of the two"
        )
    policy = tolerance.get("disconnect_policy")
    if policy is not None and policy.name == "KEEP":
        problem = "are of no use with the disconnectPolicy KEEP: a worker on a lost host is never replaced"
        yield Broken(place, problem, "write REPLACE_IF_ISOLATED or STOP_AND_REPLACE there, or ask for no spares")


def _warning_signal(scheduling: Fields) -> Iterator[Broken]:
    warning = scheduling.get("warning_signal") or {}
    place = (_SCHEDULING, "warning_signal")
    name = warning.get("signal")
    if name is not None and name not in WARNING_SIGNALS:
        yield _bad_signal(name)
    before, timeout = warning.get("before"), scheduling.get("timeout", DEFAULT_TIMEOUT_S)
    if before is not None and timeout is not None and before >= timeout:
        yield Broken(
            (*place, "before"),
            f"is {written_duration(before)}, not shorter than the timeout of {written_duration(timeout)}",
            "write a shorter time here, or a longer scheduling.timeout",
        )


def _expected_duration(scheduling: Fields) -> Iterator[Broken]:
    expected, timeout = scheduling.get("expected_duration"), scheduling.get("timeout", DEFAULT_TIMEOUT_S)
    if expected is not None and timeout is not None and expected > timeout:
        yield Broken(
            (_SCHEDULING, "expected_duration"),
            f"is {written_duration(expected)}, longer than the timeout of {written_duration(timeout)}",
            "write a shorter time here, or a longer scheduling.timeout",
        )


def _after(scheduling: Fields) -> Iterator[Broken]:
    named: set[str] = set()
    after = scheduling.get("after") or ()
    for index, each in enumerate(after):
        job = (each or {}).get("job")
        if job is None:
            continue
        if job in named:
            yield Broken(
                (_SCHEDULING, "after", index, "job"), f"{job} stands here twice", "leave one of the two out"
            )
        named.add(job)
    if scheduling.get("pause_if_unmet") and not after:
        yield Broken(
            (_SCHEDULING, "pause_if_unmet"), "goes with after", "name the jobs to wait for, or leave it out"
        )


def _array(scheduling: Fields) -> Iterator[Broken]:
    try:
        read_array(scheduling.get("array") or "")
    except ValueError as error:
        yield Broken((_SCHEDULING, "array"), str(error), "write 1-20, 1,3,7 or 1-20:2; 1-20%4 runs four at once")


def _underuse(underuse: Fields) -> Iterator[Broken]:
    duration = underuse.get("duration")
    if duration is not None and duration < MINUTE_S:
        yield Broken(
            (_SCHEDULING, "underuse", "duration"),
            f"is {written_duration(duration)}; GPUs are looked at once a minute",
            'write "1m" or more, such as "2h"',
        )


def _bad_signal(name: str) -> Broken:
    place = (_SCHEDULING, "warning_signal", "signal")
    full = f"SIG{name.upper().removeprefix('SIG')}"
    if full in ("SIGKILL", "SIGSTOP"):
        return Broken(place, f"must not be {full}: no program can take it as a warning", "use SIGUSR1 or SIGTERM")
    near = [known for known, number in WARNING_SIGNALS.items() if full == known or name == str(number)]
    if not near and not name.isdecimal():
        near = difflib.get_close_matches(full[:32], WARNING_SIGNALS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(WARNING_SIGNALS)}"
    return Broken(place, "names no signal that can warn a program", hint)


def _exit_codes(tolerance: Fields) -> Iterator[Broken]:
    permanent = set(tolerance.get("permanent_exit_codes") or ())
    for index, code in enumerate(tolerance.get("transient_exit_codes") or ()):
        if code is not None and code in permanent:
            yield Broken(
                (_TOLERANCE, "transient_exit_codes", index),
                f"{code} is in permanentExitCodes as well",
                "remove it from one of them",
            )


def _backoff(backoff: Fields) -> Iterator[Broken]:
    initial, limit = backoff.get("initial"), backoff.get("limit", DEFAULT_BACKOFF_LIMIT_S)
    if initial is not None and limit is not None and initial > limit:
        yield Broken(
            (_TOLERANCE, "backoff", "initial"),
            f"is {written_duration(initial)}, longer than the limit of {written_duration(limit)}",
            "write a shorter time here, or a longer limit beside it",
        )
