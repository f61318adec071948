"""Readings of the hardware become findings, which open and close.

Theory of operation. A reading is one figure of one subject, such as the width of a GPU's link. Its rule says when it is
bad, and for how long it has to be so. Three kinds of rules are all there is:

- ``Level``: the figure is at least so much, for so long; it closes once it has been below for ``clear_s``.
- ``Growth``: a counter has grown by so much within a time; it closes when it has grown by less than half of that.
  A counter that falls, or whose ``epoch`` is another, was started again: that is no growth.
- ``Drop``: the figure is below the most that was seen in this epoch. What was never there is not missed. A finding
  that stands outlasts the epoch: a driver that is loaded again repairs no cable.

What can't be read is neither good nor bad: a finding stands, and no time passes for it. A finding of class FAIL never
closes: the next boot begins without it, and an admin may waive it. A subject that isn't read for a day is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.health import Health, shown
from holdfast.doctor.findings import Finding, Status

GAP_S = 150.0
"""Readings that lie further apart, more than two rounds, say nothing of the time between them."""
GONE_S = 86_400.0
MOST_WATCHED = 4096
MOST_FINDINGS = 32
"""Findings of one host that are reported, the worst first."""
_WORST_FIRST = list(Health)
_NOT_READ = float("-inf")


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure. ``saw`` is the sentence for it; of a counter, the name of what is counted, ``one`` that of one."""

    rule: str
    subject: str
    value: float
    saw: str
    epoch: str = ""
    one: str = ""


def counted(rule: str, subject: str, value: float, what: str, epoch: str = "") -> Reading:
    """The reading of a counter; {} in ``what`` stands for the s of more than one."""
    return Reading(rule, subject, value, what.format("s"), epoch, what.format(""))


@dataclass(frozen=True, slots=True)
class Level:
    """Bad at ``at_least`` and above."""

    at_least: float = 1.0
    for_s: float = 60.0
    clear_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Bad once it has grown by ``at_least`` within that time."""

    at_least: float
    within_s: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Bad below the most that was seen."""

    for_s: float = 60.0
    clear_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Rule:
    """When readings are bad, and what that means. SUBJECT in ``fix`` stands for the reading's subject."""

    when: Level | Growth | Drop
    health: Health
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A finding that stands, for the agent's next run in this boot. Times are those since the boot."""

    rule: str
    subject: str
    saw: str
    most: float
    epoch: str = ""
    grown: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class _Watched:
    """Memory of one subject under one rule."""

    seen_s: float
    value: float
    most: float
    epoch: str
    saw: str = ""
    bad_since: float | None = None
    good_since: float | None = None
    grown: list[tuple[float, float]] = field(default_factory=list)
    """(When, by how much), while it counts."""
    open: bool = False


class Engine:
    """The health of one host, in one boot. Times are seconds since the boot."""

    def __init__(self, rules: Mapping[str, Rule], kept: Iterable[Kept] = (), now: float = 0.0) -> None:
        self._rules = rules
        self._watched: dict[tuple[str, str], _Watched] = {}
        for each in kept:
            if each.rule in rules:
                made = _Watched(now, _NOT_READ, each.most, each.epoch, each.saw, grown=list(each.grown), open=True)
                self._watched[each.rule, each.subject] = made

    def take(self, readings: Iterable[Reading], now: float) -> bool:
        """Judge a round of readings. Returns whether any finding has opened, closed, or grown and so stands longer."""
        before = self._open_errors()
        for reading in readings:
            key = reading.rule, reading.subject
            watched = self._watched.get(key)
            if watched is None:
                if len(self._watched) >= MOST_WATCHED and not self._make_room(now):
                    continue
                watched = _Watched(now, reading.value, reading.value, reading.epoch)
                self._watched[key] = watched
            self._judge(self._rules[reading.rule], watched, reading, now)
        for key in [key for key, watched in self._watched.items() if now - watched.seen_s >= GONE_S]:
            if self._rules[key[0]].health is not Health.FAIL or not self._watched[key].open:
                del self._watched[key]
        return before != self._open_errors()

    def _make_room(self, now: float) -> bool:
        """Forget what is not read any more: names that change with each run of a check keep no hardware out."""
        self._watched = {k: each for k, each in self._watched.items() if each.open or now - each.seen_s <= GAP_S}
        return len(self._watched) < MOST_WATCHED

    def _open_errors(self) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """Open findings, each with the newest growth of its counter."""
        return {key: watched.grown[-1:] for key, watched in self._watched.items() if watched.open}

    def findings(self) -> list[Finding]:
        """Findings that are open, the worst first; where that is too much, the last one counts the rest."""
        found = [
            _finding(f"{name}/{subject}", self._rules[name], watched.saw, subject)
            for (name, subject), watched in sorted(self._watched.items())
            if watched.open
        ]
        found.sort(key=lambda each: _WORST_FIRST.index(each.health or Health.INFORM))
        rest = len(found) - MOST_FINDINGS
        if rest > 0:
            last = found[MOST_FINDINGS - 1]
            found[MOST_FINDINGS - 1 :] = [replace(last, saw=f"{last.saw}; and {rest} more findings")]
        return found

    def kept(self) -> list[Kept]:
        """Findings that are open, as the agent's next run has to know them."""
        return [
            Kept(rule, subject, watched.saw, watched.most, watched.epoch, tuple(watched.grown))
            for (rule, subject), watched in sorted(self._watched.items())
            if watched.open
        ]

    @staticmethod
    def _judge(rule: Rule, watched: _Watched, reading: Reading, now: float) -> None:
        same = watched.epoch == reading.epoch
        if not same or now - watched.seen_s > GAP_S:
            watched.bad_since = watched.good_since = None
        if not same and not watched.open:
            watched.most = reading.value
        match rule.when:
            case Growth() as when:
                grown = reading.value - watched.value if same else 0.0
                if grown > 0 and watched.value != _NOT_READ:
                    watched.grown.append((now, grown))
                watched.grown = [one for one in watched.grown if now - one[0] < when.within_s]
                total = sum(amount for _, amount in watched.grown)
                bad, good = total >= when.at_least, total < when.at_least / 2
                for_s = clear_s = 0.0
                what = reading.one if total == 1 and reading.one else reading.saw
                saw = f"{shown(total)} {what} within {_span(when.within_s)}"
            case Level() as when:
                bad = reading.value >= when.at_least
                good, for_s, clear_s, saw = not bad, when.for_s, when.clear_s, reading.saw
            case Drop() as when:
                watched.most = max(watched.most, reading.value)
                bad = reading.value < watched.most
                good, for_s, clear_s = not bad, when.for_s, when.clear_s
                saw = f"{reading.saw}; it was {shown(watched.most)} before" if watched.most > 1 else reading.saw
        watched.value, watched.epoch, watched.seen_s = reading.value, reading.epoch, now
        watched.bad_since = (watched.bad_since if watched.bad_since is not None else now) if bad else None
        watched.good_since = (watched.good_since if watched.good_since is not None else now) if good else None
        if watched.bad_since is not None:
            watched.open |= now - watched.bad_since >= for_s
            watched.saw = saw
        elif watched.good_since is not None and now - watched.good_since >= clear_s:
            watched.open &= rule.health is Health.FAIL


def _finding(check: str, rule: Rule, saw: str, subject: str) -> Finding:
    status = Status.ERROR if rule.health.keeps_work_away else Status.WARNING
    fix = (rule.fix.replace("SUBJECT", subject),)
    away = rule.health.keeps_work_away
    return Finding(check, status, saw, rule.why, fix, notify=True, keeps_work_away=away, health=rule.health)


def _span(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"
