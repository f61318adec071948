"""Findings of the rules: which rule, since when, when it may be acted on, and who is suspected."""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.samples import Family


class Rule(enum.Enum):
    """The rules by name, as they are stored, sent and printed. Their numbers are the documents' only."""

    WORKING_RANK = "WORKING_RANK"
    STUCK_RANK = "STUCK_RANK"
    GPUS_SPIN = "GPUS_SPIN"
    GPUS_IDLE = "GPUS_IDLE"
    SILENCE = "SILENCE"
    EXTERNAL_WAIT = "EXTERNAL_WAIT"
    COUNTS_DIFFER = "COUNTS_DIFFER"

    @classmethod
    def _missing_(cls, value: object) -> Rule | None:
        """The rule of a number such as ``R3``, which release 0.1 stored."""
        return next((rule for rule, number in NUMBERS.items() if number == value), None)


NUMBERS: dict[Rule, str] = {
    Rule.WORKING_RANK: "R0",
    Rule.STUCK_RANK: "R1",
    Rule.GPUS_SPIN: "R2",
    Rule.GPUS_IDLE: "R3",
    Rule.SILENCE: "R4",
    Rule.COUNTS_DIFFER: "R6",
}
"""The numbers that documents use, and that release 0.1 stored and sent."""
MEANINGS = {
    Rule.WORKING_RANK: "one rank works while the others wait for it",
    Rule.STUCK_RANK: "a rank that cannot go on",
    Rule.GPUS_SPIN: "no rank moves, GPUs busy without doing anything",
    Rule.GPUS_IDLE: "no rank moves, GPUs idle or absent",
    Rule.SILENCE: "no output for longer than usual",
    Rule.EXTERNAL_WAIT: "no rank moves, and one waits for something outside the job",
    Rule.COUNTS_DIFFER: "counts of collectives that stand still and differ",
}
"""Each rule in a few words, for people."""


class Grade(enum.Enum):
    """How far a finding is reported."""

    # Worth stack dumps, and no notice.
    SUSPECT = "suspect"
    # Worth notifying the user.
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a rule: since when, by which families, when it may be acted on, its suspects, in words and numbers.

    ``subjects`` are the ranks (worker, rank) that have to move before it is over; without any, it is progress of the
    output that ends it. ``signature`` is equal for findings of the same wait at the same place.
    """

    rule: Rule
    grade: Grade
    since_s: float
    act_at_s: float
    families: frozenset[Family]
    sentence: str
    suspects: tuple[str, ...] = ()
    evidence: tuple[tuple[str, float], ...] = ()
    subjects: frozenset[tuple[str, int]] = frozenset()
    signature: str = ""
    # What blocks the gang is inside one of its own processes: no host, switch or file server is at fault.
    internal: bool = False
