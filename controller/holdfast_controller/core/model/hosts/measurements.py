"""Measurements of a host by active checks, and which of them are due.

A check measures one host alone, or a pair of hosts over the network. It has failed only as a figure below those of
other hosts; one that could not be made says nothing of the host.
"""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import NEVER, Wall

PREFIX = "measured."
"""Of the names of findings, before that of the figure."""
KEPT = 8
"""Results of each kind that a host keeps."""
PAUSE_S = 600.0
"""After a check had to give way, its host is left alone for so long."""


class Kind(enum.Enum):
    """Whether one host is measured by itself, or the network between two."""

    ALONE = "ALONE"
    PAIR = "PAIR"


class Why(enum.Enum):
    """Why a host is measured, the most urgent first."""

    ASKED = "ASKED"
    """By an admin."""
    REPEAT = "REPEAT"
    """It was slower than others like it."""
    RETURNED = "RETURNED"
    """From maintenance, a cordon or a boot."""
    JOINED = "JOINED"
    SUSPECTED = "SUSPECTED"
    """It hung, failed too often, or had a finding that kept it from work and is over."""
    ROUTINE = "ROUTINE"
    """Its last check was long ago."""


URGENCY = {why: number for number, why in enumerate(Why)}


class Outcome(enum.Enum):
    """How a check ended."""

    MEASURED = "MEASURED"
    ERROR = "ERROR"
    """It could not be made; that says nothing of the host."""
    STOPPED = "STOPPED"
    """It gave way to a job, or was cancelled."""


@dataclass(frozen=True)
class Measurement:
    """A check of one host that has ended. Figures compare with those of equal ``hardware`` and ``software`` alone."""

    at: Wall
    job: str
    kind: Kind
    why: Why
    outcome: Outcome
    partner: str = ""
    """The other host of a pair."""
    hardware: str = ""
    software: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    problem: str = ""
    """What could not be measured, or what stopped it."""


@dataclass
class HostMeasurements:
    """The part of a host that the fold of its measurements keeps. Wall clock."""

    due_alone: Why | None = None
    due_pair: Why | None = None
    running: str = ""
    """The job that measures it now."""
    running_why: Why = Why.ROUTINE
    not_before: Wall = NEVER
    idle_since: Wall = NEVER
    """When the last share that a job held here was released."""
    results: tuple[Measurement, ...] = ()
    """The oldest first."""

    def due(self, kind: Kind) -> Why | None:
        """Why a check of that kind is due, whatever the time; None where none is."""
        return self.due_alone if kind is Kind.ALONE else self.due_pair

    def mark(self, kind: Kind, why: Why | None) -> None:
        """A check is due for that reason too; None: it no longer is."""
        known = self.due(kind)
        if why is not None and known is not None and URGENCY[known] <= URGENCY[why]:
            return
        if kind is Kind.ALONE:
            self.due_alone = why
        else:
            self.due_pair = why

    def take(self, result: Measurement) -> None:
        """A check has ended. One that gave way is due still; after one of the host alone comes one of a pair."""
        self.running = ""
        same = [each for each in self.results if each.kind is result.kind][1 - KEPT :]
        self.results = tuple(each for each in self.results if each.kind is not result.kind or each in same)
        self.results = (*self.results, result)
        if result.outcome is Outcome.STOPPED:
            self.not_before = Wall(result.at + PAUSE_S)
            return
        self.mark(result.kind, None)
        if result.kind is Kind.ALONE and result.outcome is Outcome.MEASURED and result.why is not Why.REPEAT:
            self.mark(Kind.PAIR, result.why)

    def last(self, kind: Kind) -> Wall:
        """When a check of that kind last ended by itself; ``NEVER`` before the first."""
        ends = [each.at for each in self.results if each.kind is kind and each.outcome is not Outcome.STOPPED]
        return max(ends, default=NEVER)

    def with_figure(self, figure: str, like: Measurement) -> list[Measurement]:
        """Results that have a figure and compare with ``like``, the newest first."""
        return [
            each
            for each in reversed(self.results)
            if each.kind is like.kind
            and figure in each.figures
            and (each.hardware, each.software) == (like.hardware, like.software)
        ]


@dataclass(frozen=True)
class HostChecks:
    """Settings of active checks. Without ``on`` hosts are measured only when an admin asks."""

    on: bool = False
    every_s: float = 604_800.0
    """A host that was measured so long ago is again."""
    at_once_pct: int = 5
    """Share of all hosts that are measured at a time; two in any case, for a pair."""
    python: str = "python3"
    """Interpreter on the hosts, or in the image."""
    image: str = ""
    program: str = ""
    """Its source text."""
