"""Options that choose jobs, as a filter of the controller's."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterable

from holdfast._base.proto_values import showable


def job_filter(
    *,
    now: float,
    name: str | None = None,
    since: float | datetime.datetime | None = None,
    label: Iterable[tuple[str, str]] = (),
    state: Iterable[str] = (),
    owner: str | None = None,
    active: bool = False,
    filter: str = "",
) -> str:
    """The filter that all these hold for; empty for none. ``since`` is in seconds before ``now``, or a time."""
    terms: list[str] = []
    if name is not None:
        terms.append(f"name:{quoted(name)}")
    if since is not None:
        terms.append(f'create_time>="{_moment(since, now)}"')
    if states := [each.upper().removeprefix("JOB_STATE_") for each in state]:
        terms.append(f"state={quoted('|'.join(states))}")
    if owner is not None:
        terms.append(f"owner={quoted(owner)}")
    terms += [f"label.{_key(key)}={quoted(value)}" for key, value in label]
    if active:
        terms.append("active=true")
    if filter:
        terms.append(f"({filter})" if terms else filter)  # last, so that an error quotes nothing of the others
    return " AND ".join(terms)


def unknown_state(name: str) -> tuple[str, str] | None:
    """A name that no state has: what is wrong, and what to use instead; None for a state that jobs are in."""
    from holdfast._sdk import json_view
    from holdfast.v1 import job_pb2

    known = [json_view.state_name(each) for each in job_pb2.JobState.keys()[1:]]
    if name.upper().removeprefix("JOB_STATE_") in known:
        return None
    close = difflib.get_close_matches(name.upper(), known, n=1)
    return (
        f"{name!r:.80} is no state of a job",
        f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}",
    )


def quoted(value: str) -> str:
    """A value for a filter; in quotes where it could be taken for more than a value, or for none."""
    return value if value and not re.search(r"[\s\"'()\\]", value) else _in_quotes(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9._/-]+", key) else _in_quotes(key)


def _in_quotes(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _moment(since: float | datetime.datetime, now: float) -> str:
    at = (
        since
        if isinstance(since, datetime.datetime)
        else datetime.datetime.fromtimestamp(showable(now - since), datetime.UTC)
    )
    return at.isoformat()
