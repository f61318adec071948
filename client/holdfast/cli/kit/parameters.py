"""Kinds of values that options and arguments take."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast._base import config
from holdfast._base.proto_values import LONGEST_S
from holdfast.errors import InvalidInput, Violation
from holdfast.hang.pipeline import step_pattern

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
C = TypeVar("C", bound=Callable[..., object])


class Count(click.IntRange):
    """A whole number; ``min`` and ``max`` are included. Without ``max``, as large as a field of a message holds."""

    name = "n"

    def __init__(self, min: int | None = None, max: int | None = None, *, bits: int = 32) -> None:
        super().__init__(min, max)
        self._most = 2 ** (bits - 1) - 1 if max is None else max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Fails with the bounds for what is none, or is beyond them."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number; give {self._bounds}.", param, ctx)
        if number > self._most:
            bounds = self._bounds if self.max is not None else f"{self._most} at most"
            self.fail(f"{number} is too large; give {bounds}.", param, ctx)
        if self.min is not None and number < self.min:
            self.fail(f"{number} is too small; give {self._bounds}.", param, ctx)
        return number

    @property
    def _bounds(self) -> str:
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"

    def _describe_range(self) -> str:
        """For an option's help; nothing where any number does."""
        return "" if (self.min, self.max) == (0, None) else self._bounds


def wrong(where: str, problem: str, fix: str = "") -> InvalidInput:
    """The refusal of a part of the command line."""
    return InvalidInput([Violation(where, problem, fix)], what="The command line")


def duration(value: str | float) -> float:
    """Seconds, from ``90``, ``90s``, ``15m``, ``2h``."""
    try:
        seconds = config.duration_s(float(value) if isinstance(value, str) and value.isdecimal() else value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
    if seconds > LONGEST_S:
        raise click.BadParameter(f"{value!r:.80} is longer than ten thousand years.")
    return seconds


def pattern(value: str) -> str:
    """A regular expression with a group for the step, or nothing."""
    try:
        groups = step_pattern.compiled(value).groups if value else 0
    except step_pattern.BadPattern as error:
        raise click.BadParameter(f"{value[:80]!r} {error} ({error.fix}).") from error
    if value and not groups:
        raise click.BadParameter(f"{value!r} has no group for the step, such as step=(\\d+).")
    return value


def key_value(value: str) -> tuple[str, str]:
    """A label such as ``team=vision``."""
    key, equals, text = value.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
    return key, text


def conditions(value: str) -> str:
    """``gpu in (h100,h200),!old,rack!=r7``."""
    from holdfast._base.job_file.label_match import MATCH_FIX, read_match

    try:
        found = read_match(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}; {MATCH_FIX}.") from None
    if not found:
        raise click.BadParameter("it holds no condition.")
    return value


def host_label(value: str) -> tuple[str, str, str]:
    """Host, key and value from ``host-0:rack=a``."""
    host, colon, label = value.partition(":")
    key, equals, text = label.partition("=")
    if not (host and colon and equals and _LABEL.fullmatch(key) and _LABEL.fullmatch(text)):
        raise click.BadParameter(f"{value!r} is no label of a host; write host-0:rack=a.")
    return host, key, text


_DAYS = {"today": 0, "yesterday": 1}


def moment(value: str, now: datetime.datetime | None = None) -> float | datetime.datetime:
    """Seconds before now, or a time: ``2026-11-21T04:00:00Z``, or ``today`` and ``yesterday`` from midnight here."""
    if value in _DAYS:
        # Without a zone until the day is known: the offset at its midnight may not be that of now.
        day = (now or datetime.datetime.now()).astimezone().date() - datetime.timedelta(days=_DAYS[value])
        return datetime.datetime.combine(day, datetime.time()).astimezone(datetime.UTC)
    try:
        return config.duration_s(value)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        problem = f'{value!r} is neither a span such as "10m" or "1d" nor a time such as 2026-11-21T04:00:00Z.'
        raise click.BadParameter(problem) from error


def utc_day(value: str) -> float | datetime.datetime:
    """The same as ``moment``, but that a day without a time, ``today`` too, is one of UTC."""
    if value in _DAYS:
        day = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=_DAYS[value])
    else:
        try:
            day = datetime.datetime.strptime(value, "%Y-%m-%d").date()
        except ValueError:
            return moment(value)
    return datetime.datetime.combine(day, datetime.time(), datetime.UTC)


def job_state(value: str) -> str:
    """The name of a state of jobs, such as ``RUNNING``."""
    from holdfast.cli.kit.job_filters import unknown_state

    if wrong := unknown_state(value):
        raise click.BadParameter(f"{wrong[0]}; {wrong[1]}")
    return value


def is_utf8(word: str) -> bool:
    """Whether a word of the command line, or of the environment, was UTF-8: a message can hold no other."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def wrong_word(error: UnicodeEncodeError, words: Sequence[str]) -> InvalidInput | None:
    """The refusal of a word of the command line that no message can hold; None where the error has another cause."""
    for index, word in enumerate(words):
        if is_utf8(word) or not (error.object in word or word in error.object):
            continue
        option, equals, _ = word.partition("=")
        if not (equals and option.startswith("--")):
            option = words[index - 1] if index and words[index - 1].strip("-") != words[index - 1] else ""
        problem = f"{os.fsencode(word)!r:.80} is not UTF-8, as all texts of a cluster are"
        return wrong(option.rstrip("-"), problem, "write it in UTF-8")
    return None


def job_word(value: str) -> str:
    """An id, its beginning, a display name, or the name that ``-o json`` prints (``jobs/ID``)."""
    bare = value.removeprefix("jobs/")
    if not bare.strip() or not is_utf8(bare):
        raise click.BadParameter(f"{value!r} names no job; `holdfast ps` lists them.")
    return bare


def job_argument(**more: Any) -> Callable[[C], C]:
    """Adds the argument JOB: what ``job_names`` finds the job by."""
    several = "JOB..." if more.get("required") else "[JOB...]"
    one = "JOB" if more.get("required", True) else "[JOB]"
    metavar = several if more.get("nargs") == -1 else one
    return click.argument("word", metavar=metavar, type=job_word, **more)
