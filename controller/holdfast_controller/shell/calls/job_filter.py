"""The filter language of ListJobs: terms joined by AND, such as ``state=RUNNING AND label.team=vision``."""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState

Predicate = Callable[[Job], bool]

_HELP = "use state=RUNNING, owner=NAME, name=NAME, project=NAME, label.KEY=VALUE, active=true, joined by AND"


def parse_filter(text: str) -> Predicate:
    """The predicate that ``text`` describes; an empty text matches every job. Raises ``InvalidInput``."""
    terms = [_term(part) for part in re.split(r"\s+AND\s+", text.strip())] if text.strip() else []
    return lambda job: all(term(job) for term in terms)


def _term(text: str) -> Predicate:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise _wrong(f"{text!r} is no term")
    if key == "state":
        states = {name.removeprefix("JOB_STATE_") for name in value.upper().split("|")}
        if unknown := sorted(states - set(JobState.__members__)):
            raise _wrong(f"no job is ever in state {unknown[0]!r}")
        return lambda job: job.state.name in states
    if key == "owner":
        return lambda job: job.owner == value
    if key == "name":
        return lambda job: job.display_name == value
    if key == "project":
        return lambda job: job.gang.project == value
    if key == "active" and value in ("true", "false"):
        return lambda job: job.terminal is (value == "false")
    if key.startswith("label."):
        return lambda job: job.labels.get(key.removeprefix("label.")) == value
    raise _wrong(f"{key!r} can't be asked for")


def _wrong(problem: str) -> InvalidInput:
    return InvalidInput([Violation("filter", problem, _HELP)])
