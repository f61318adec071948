"""The filter language of ListJobs: terms such as ``state="RUNNING"``, joined by AND, OR and NOT, with parentheses.

As in the standard list filter of managed services: OR binds more tightly than AND. A value may stand without quotes
and then ends at the next AND or OR. Read from left to right, once; every step of it takes time in proportion to what
it reads. ``MAX_CHARS`` bounds the reading, ``MAX_TERMS`` what the answer costs for each job.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.job_blocks import BETWEEN_WORDS
from holdfast_controller.core.model.job_state import TERMINAL
from holdfast_controller.core.model.jobs import Known, words_of

Predicate = Callable[[Known], bool]
Sieve = Callable[[Sequence[Known]], Sequence[Known]]
"""Those of some jobs that match, in their order."""

MAX_CHARS = 4096
MAX_DEPTH = 20
MAX_TERMS = 64

_HELP = (
    'use state=RUNNING, id:train*, name:"TRAIN*", owner=NAME, project=NAME, array=ID, labels.KEY=VALUE, labels.KEY:*,'
    ' create_time>"2026-01-31T08:00:00Z" or active=true, joined by AND, OR and NOT'
)
_OPERATOR = re.compile(r"!=|<=|>=|[=<>:]")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_JOINT = re.compile(r"\s(AND|OR)\s+")
"""From the last blank before it on: one that began with all of them would be tried at each."""
_NOT = re.compile(r"NOT(?:\s+|(?=\())|-(?=[A-Za-z(])")
_QUOTED_KEY = re.compile(rf"labels?\.(?:{_QUOTED.pattern})")
_SPACE = re.compile(r"\s*")
_STATES = frozenset(name.removeprefix("JOB_STATE_") for name in job_pb2.JobState.DESCRIPTOR.values_by_name)
ENDED = frozenset(state.name for state in TERMINAL)
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Filter(NamedTuple):
    """A filter that was read: how jobs are found, and what is true of all of them, so of no others is looked at."""

    found: Sieve
    states: frozenset[str] = _STATES
    """Each is in one of these."""
    words: tuple[str, ...] = ()
    """All of these texts stand in the words of each, with ``BETWEEN_WORDS`` around them."""


class _Shortcut(NamedTuple):
    """Finds those of many jobs that a term is true of sooner than by a call for each; ``words`` as in ``Filter``."""

    found: Sieve
    words: str = ""


def read_filter(text: str) -> Filter:
    """Finds the jobs that ``text`` describes. An empty one matches every job. Raises ``InvalidInput``."""
    if len(text) > MAX_CHARS:
        raise _wrong(f"has {len(text):,} characters; at most {MAX_CHARS:,} are allowed")
    text = text.strip()
    if not text:
        return Filter(lambda jobs: jobs)
    return _Reader(text).whole()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._terms = 0
        self._term_states = _STATES
        """The term that was read last is true of no job in another state."""
        self._term_shortcut: _Shortcut | None = None
        """Of that term."""
        self._states = _STATES
        self._shortcuts: list[_Shortcut] = []
        """Of the whole: no job matches that one of them leaves out."""

    def whole(self) -> Filter:
        matches, sieves = self._conjunction(0), [each.found for each in self._shortcuts]
        if self._at < len(self._text):
            raise _wrong(f"{self._rest()!r} follows what is complete")

        def found(jobs: Sequence[Known]) -> Sequence[Known]:
            for sieve in sieves:
                jobs = sieve(jobs)
            return [job for job in jobs if matches(job)]

        return Filter(found, self._states, tuple(each.words for each in self._shortcuts if each.words))

    def _conjunction(self, depth: int) -> Predicate:
        """Terms joined by AND, each of which is one or several joined by OR."""
        every: list[list[Predicate]] = [[]]
        states: list[frozenset[str]] = [frozenset()]
        shortcuts: list[list[_Shortcut | None]] = [[]]
        while True:
            every[-1].append(self._term(depth))
            shortcuts[-1].append(self._term_shortcut)
            states[-1] |= self._term_states
            end = self._at
            self._skip()
            joint = _JOINT.match(self._text, self._at - 1) if self._at > end else None
            if joint is None:
                self._at = end
                break
            self._at = joint.end()
            if joint[1] == "AND":
                every.append([])
                states.append(frozenset())
                shortcuts.append([])
        self._states = _STATES.intersection(*states)
        self._shortcuts = [some[0] for some in shortcuts if len(some) == 1 and some[0] is not None]
        return _all([_any(some) for some in every])

    def _term(self, depth: int) -> Predicate:
        negated = False
        while found := _NOT.match(self._text, self._at):
            negated, self._at = not negated, found.end()
        term = self._group(depth + 1) if self._text.startswith("(", self._at) else self._comparison(depth)
        if negated:
            self._term_states, self._term_shortcut = _STATES, None
        return (lambda job: not term(job)) if negated else term

    def _group(self, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise _wrong(f"has more than {MAX_DEPTH} parentheses in each other")
        self._skip(1)
        found = self._conjunction(depth)
        self._skip()
        if not self._text.startswith(")", self._at):
            raise _wrong("lacks a closing parenthesis")
        self._at += 1
        self._term_states, self._term_shortcut = self._states, None
        return found

    def _comparison(self, depth: int) -> Predicate:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise _wrong(f"has more than {MAX_TERMS} terms")
        start = self._at
        quoted = _QUOTED_KEY.match(self._text, start)
        sign = _OPERATOR.search(self._text, quoted.end() if quoted else start)
        key = self._text[start : sign.start()].strip() if sign else ""
        if sign is None or not key:
            rest = self._rest()
            rest = rest.partition(")")[0] if depth else rest
            raise _wrong(f"{rest!r} is no term" if rest else "lacks a term")
        self._at = sign.end()
        self._skip()
        value = self._value(depth)
        self._term_states = _true_in(key, value) if sign[0] == "=" else _STATES
        self._term_shortcut = _shortcut(key, value) if sign[0] == "=" else None
        return _compared(key, sign[0], value)

    def _value(self, depth: int) -> str:
        if quoted := _QUOTED.match(self._text, self._at):
            self._at = quoted.end()
            return _within(quoted)
        joint = _JOINT.search(self._text, self._at)
        end = joint.start() if joint else len(self._text)
        if depth and (closed := self._text.find(")", self._at, end)) >= 0:
            end = closed
        found = self._text[self._at : end]
        self._at = end
        return found.rstrip()

    def _skip(self, more: int = 0) -> None:
        found = _SPACE.match(self._text, self._at + more)
        assert found is not None
        self._at = found.end()

    def _rest(self) -> str:
        """The unread text up to the next term, for a message."""
        joint = _JOINT.search(self._text, self._at)
        return self._text[self._at : joint.start() if joint else None].strip()[:100]


def _all(terms: Sequence[Predicate]) -> Predicate:
    def matches(job: Known) -> bool:
        for term in terms:  # noqa: SIM110  # all() takes three times as long, for each of many thousand jobs
            if not term(job):
                return False
        return True

    return terms[0] if len(terms) == 1 else matches


def _any(terms: Sequence[Predicate]) -> Predicate:
    def matches(job: Known) -> bool:
        for term in terms:  # noqa: SIM110
            if term(job):
                return True
        return False

    return terms[0] if len(terms) == 1 else matches


def _true_in(key: str, value: str) -> frozenset[str]:
    """The states of which any job has to be for ``key=value`` to be true of it."""
    match key, value:
        case "state", _:
            return _STATES & _states(value)
        case "active", "true":
            return _STATES - ENDED
        case "active", "false":
            return ENDED
    return _STATES


def _shortcut(key: str, value: str) -> _Shortcut | None:
    """For ``key=value``, where that is asked of many jobs often."""
    words = "" if BETWEEN_WORDS in value else f"{BETWEEN_WORDS}{value.casefold()}{BETWEEN_WORDS}"
    if key.startswith(("label.", "labels.")):
        label = _label(key)
        return _Shortcut(lambda jobs: [job for job in jobs if job.labels.get(label) == value], words)
    match key:
        case "state":
            states = _states(value)
            return _Shortcut(lambda jobs: [job for job in jobs if job.state._name_ in states])
        case "owner":
            return _Shortcut(lambda jobs: [job for job in jobs if job.owner == value], words)
        case "project":
            return _Shortcut(lambda jobs: [job for job in jobs if job.project == value], words)
        case _:
            return None


def _states(value: str) -> set[str]:
    return {name.removeprefix("JOB_STATE_") for name in value.upper().split("|")}


def _compared(key: str, sign: str, value: str) -> Predicate:
    if key.startswith(("label.", "labels.")):
        return _of_label(_label(key), sign, value)
    match key:
        case "state":
            states = _states(value)
            if unknown := sorted(states - _STATES):
                raise _wrong(f"no job is ever in state {unknown[0]!r}")
            return _equal(lambda job: job.state._name_ in states, key, sign)  # ``name`` takes three times as long
        case "id":
            if sign == ":":
                return _like(value, lambda job: job.id)
            return _equal(lambda job: job.id == value, key, sign)
        case "name" | "display_name" | "displayName":
            if sign == ":":
                return _like(value, lambda job: job.display_name)
            return _equal(lambda job: job.display_name == value, key, sign)
        case "create_time" | "createTime":
            return _of_time(sign, value)
        case "owner":
            return _equal(lambda job: job.owner == value, key, sign)
        case "array":
            return _equal(lambda job: job.element is not None and job.element.array == value, key, sign)
        case "project":
            return _equal(lambda job: job.project == value, key, sign)
        case "active" if value in ("true", "false"):
            return _equal(lambda job: job.terminal is (value == "false"), key, sign)
    raise _wrong(f"{key[:60]!r} can't be asked for")


def _equal(equal: Predicate, key: str, sign: str) -> Predicate:
    """The comparison, or its opposite for ``!=``."""
    if sign not in ("=", "!="):
        raise _wrong(f"{key[:60]!r} takes = and !=, not {sign}")
    return equal if sign == "=" else lambda job: not equal(job)


def _within(quoted: re.Match[str]) -> str:
    """The text between the quotes, in which a backslash stands before a quote or a backslash."""
    return re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2], flags=re.DOTALL)


def _label(key: str) -> str:
    """The label that a key such as ``labels.team`` or ``label."team"`` is of."""
    name = key.partition(".")[2]
    quoted = _QUOTED.fullmatch(name)
    return _within(quoted) if quoted else name


def _of_label(key: str, sign: str, value: str) -> Predicate:
    if sign == ":" and value == "*":
        return lambda job: key in job.labels
    return _equal(lambda job: job.labels.get(key) == value, f"labels.{key}", sign)


def _of_time(sign: str, value: str) -> Predicate:
    if sign not in _ORDER:
        raise _wrong(f"'create_time' takes =, !=, <, <=, > and >=, not {sign}")
    try:
        asked = datetime.datetime.fromisoformat(value)
        at = asked.replace(tzinfo=asked.tzinfo or datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        raise _wrong(f"{value[:60]!r} is no time such as 2026-01-31T08:00:00Z") from None
    return lambda job: _ORDER[sign](job.created_at, at)


def _like(pattern: str, named: Callable[[Known], str]) -> Predicate:
    """Names that hold the text; with ``*``, that are it from end to end, where each stands for any text."""
    if "*" not in pattern:
        return lambda job: pattern in named(job)
    first, *middle, last = pattern.split("*")

    def matches(job: Known) -> bool:
        name = named(job)
        if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
            return False
        at, end = len(first), len(name) - len(last)
        for part in middle:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True

    return matches


def folded(text: str) -> str:
    """The text that stands in the words of every job that a search for ``text`` finds."""
    return text.strip().casefold()


def searched(text: str) -> Sieve:
    """Finds among jobs those with ``text``, in any case, in what a list shows of them."""
    wanted = folded(text)
    if not wanted:
        return lambda jobs: jobs
    if BETWEEN_WORDS in wanted:
        return lambda jobs: ()

    def found(jobs: Sequence[Known]) -> Sequence[Known]:
        words = list(map(words_of, jobs))
        # Most jobs don't have it, and one look at the words of many costs less than one at those of each.
        if wanted not in BETWEEN_WORDS.join(words):
            return ()
        return [job for job, its in zip(jobs, words, strict=True) if wanted in its]

    return found


def _wrong(problem: str) -> InvalidInput:
    return InvalidInput([Violation("filter", problem, _HELP)])
