"""Budgets of a job's failures, and its recoveries from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.recovery import EndReason, Recover, Related, StartType


def is_same(key: str, other: str) -> bool:
    """Whether two failures are the same: by their exception, else by their code or by their last line of stderr."""
    if key == other:
        return True
    (code, two_lines, said), (other_code, other_two_lines, other_said) = key.partition("\n"), other.partition("\n")
    return bool(two_lines and other_two_lines) and (code == other_code or (said != "" and said == other_said))


def says_the_same(key: str, other: str) -> bool:
    """Whether two failures have the same words: their exception, or their code and their last line of stderr."""
    return key == other and not key.endswith("\n") and key != ""


@dataclass
class Spent:
    """Failures charged since the job last made progress; progress replaces it by an empty one."""

    worker_restarts: dict[int, int] = field(default_factory=dict)
    """By worker."""
    job_retries: int = 0
    transient_restarts: int = 0
    internal_errors: int = 0
    host_moves: int = 0
    failures: int = 0
    """Of any kind."""
    same_failure: tuple[str, int] = ("", 0)
    """The last failure's key, and how many in a row were the same."""
    before_last: tuple[str, int] = ("", 0)
    """``same_failure`` before the last failure."""

    early: str = ""
    """The last failure's key where its generation had made no progress at all."""

    def repeats(self, key: str) -> None:
        """Count one more failure, known by ``key``."""
        last, times = self.before_last
        self.same_failure = (key, times + 1 if is_same(last, key) else 1)


@dataclass
class Budgets:
    """Counters of a job's failures that limit how often it is recovered."""

    spent: Spent = field(default_factory=Spent)
    best_step: float | None = None
    """Highest step known when the job last failed."""
    checkpointed: bool = False
    """A checkpoint was seen in the job's life."""
    suspected: dict[str, int] = field(default_factory=dict)
    """By host: failures that it may have caused."""
    port_retries: int = 0
    """In a row."""
    hang_restarts: int = 0
    """In a row, without progress in between."""
    hang_step: float | None = None
    """Highest step known at the last of them."""
    hang_moves: int = 0
    """New placements since then because restarts upon hangs were spent."""
    warm_failed: bool = False
    """A generation in which a rank was started warm ended before it did any work: every later one is cold."""


@dataclass
class Recovery:
    """One answer to a failure. Times are None until they are known."""

    attempt: int
    generation: int
    """The one that it launches."""
    started_at: Wall
    end_reason: EndReason
    related: Related
    recover: Recover = Recover.PROC_RESTART
    start_type: StartType = StartType.RESTARTED
    failed_at: Wall = NEVER
    charged: int | None = None
    """The worker whose budget paid."""
    failed_generation: int | None = None
    """The generation whose rank failed; None where the reason is another."""
    detect_s: float | None = None
    """From the cause to its detection; None where the exit itself was the detection."""
    diagnose_s: float = 0.0
    stopped_at: Wall | None = None
    ended_at: Wall | None = None
    step: float | None = None
    """The job's highest step before."""
    caught_up_at: Wall | None = None
    """When it was reached again."""
    warm: bool | None = None
    """Whether all ranks had their imports done when they were started; None where no warm starts are asked for."""
    warm_ranks: int = 0
    """How many of them had."""
    in_process_ranks: int = 0
    """How many of these went on in the process of the generation before."""
    injected: bool = False
    """It answers what a fault may have done that was injected on purpose."""
