"""Translates annotations and variables of another service into the fields of this one.

``fault-tolerance/job-retry-num``, ``…/job-unconditional-retry`` and ``…/hang-retry`` become ``maxJobRetries``,
``unconditionalRetry`` and the action of ``hangDetection``; ``MA_HANG_DETECT_TIME`` in the primary's environment
becomes its timeout. They stay where they were written, so what is printed asks for the same again. Pure, on plain
mappings, as in ``rules``; places are counted from the job file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast.spec.rules.job import TASKS
from holdfast.spec.wording import Broken, Fields, Place, shown

PREFIX = "fault-tolerance/"
RETRIES = f"{PREFIX}job-retry-num"
UNCONDITIONAL = f"{PREFIX}job-unconditional-retry"
HANG_RETRY = f"{PREFIX}hang-retry"
KNOWN = (RETRIES, UNCONDITIONAL, HANG_RETRY)
MAX_RETRIES = 128
HANG_VARIABLE = "MA_HANG_DETECT_TIME"
HANG_MINUTES = range(10, 721)

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Requested:
    """A field of the job spec that something else asks for."""

    origin: Place
    """What asks, counted from the job file."""
    field: Place
    """The field, counted from the job spec."""
    value: Any
    """As a job file has it."""
    agrees: tuple[str, ...] = ()
    """Names of other values of the field that ask for no less."""
    yields: bool = False
    """Whether an explicit field wins silently; otherwise two that differ are a contradiction."""


def requested_by(job_file: Fields) -> Iterator[Requested | Broken]:
    """Yield each field value that an annotation or variable asks for, or what is wrong with it."""
    for key, value in (job_file.get("annotations") or {}).items():
        if key.startswith(PREFIX) and value is not None:
            yield _of_annotation(key, value)
    yield from _of_variable((job_file.get("job_spec") or {}).get("worker_pool_specs") or ())


def _of_annotation(key: str, value: str) -> Requested | Broken:
    origin: Place = ("annotations", key)
    if key not in KNOWN:
        endings = [known.removeprefix(PREFIX) for known in KNOWN]
        near = difflib.get_close_matches(key[:80].removeprefix(PREFIX), endings, n=1)
        return Broken(
            origin,
            f"is no known annotation of {PREFIX}",
            f"did you mean {PREFIX}{near[0]}?" if near else f"those are {', '.join(KNOWN)}",
        )
    if key == RETRIES:
        count = int(value) if _WHOLE.fullmatch(value) else 0
        if not 1 <= count <= MAX_RETRIES:
            fix = "" if value != "0" else "for none remove it, and write jobSpec.faultTolerance.maxJobRetries: 0"
            return Broken(origin, f"must be a whole number from 1 to {MAX_RETRIES}, not {shown(value)}", fix)
        return Requested(origin, ("fault_tolerance", "max_job_retries"), count)
    if value not in ("true", "false"):
        fix = f'write "{value.lower()}"' if value.lower() in ("true", "false") else ""
        return Broken(origin, f'must be "true" or "false", not {shown(value)}', fix)
    if key == UNCONDITIONAL:
        return Requested(origin, ("fault_tolerance", "unconditional_retry"), value == "true")
    action = ("fault_tolerance", "hang_detection", "action")
    return (
        Requested(origin, action, "RESTART")
        if value == "true"
        else Requested(origin, action, "NOTIFY", agrees=("OFF",))
    )


def _of_variable(pools: Any) -> Iterator[Requested | Broken]:
    primary = pools[0] if pools and pools[0] is not None else {}
    for kind in TASKS:
        for index, variable in enumerate((primary.get(kind) or {}).get("env") or ()):
            if variable and variable.get("name") == HANG_VARIABLE and variable.get("value") is not None:
                place = ("job_spec", "worker_pool_specs", 0, kind, "env", index, "value")
                yield _hang_time(place, variable.get("value", ""))


def _hang_time(origin: Place, value: str) -> Requested | Broken:
    minutes = int(value) if _WHOLE.fullmatch(value) else 0
    if minutes not in HANG_MINUTES:
        return Broken(
            origin,
            f"must be whole minutes from {HANG_MINUTES[0]} to {HANG_MINUTES[-1]}, not {shown(value)}",
            "or remove it, and write jobSpec.faultTolerance.hangDetection.timeout",
        )
    return Requested(origin, ("fault_tolerance", "hang_detection", "timeout"), minutes * 60.0, yields=True)
