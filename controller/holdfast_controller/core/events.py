"""The event log: what happened, in past tense, frozen. Each names its job or host, or is the cluster's own.

``at`` is wall-clock seconds.

A type's name and fields are durable: change one only by a new version (see ``shell/codec``).
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_controller.core.gang import Gang
from holdfast_controller.core.job import JobState
from holdfast_controller.core.model import Exit, ExitReason, Inventory, JobError, Place, Rendezvous, Started


@dataclass(frozen=True)
class JobSubmitted:
    """A user handed in a job."""

    job_id: str
    at: float
    owner: str
    request_id: str
    display_name: str
    labels: dict[str, str]
    gang: Gang
    spec_json: str


@dataclass(frozen=True)
class JobQueued:
    """It could not be placed at once."""

    job_id: str
    at: float
    reason: str


@dataclass(frozen=True)
class JobPlaced:
    """Every worker has its host; ``places`` in gang order."""

    job_id: str
    at: float
    attempt: int
    generation: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class GangLaunched:
    """All places were ready; from this commit on the ranks may start."""

    job_id: str
    at: float
    generation: int
    rendezvous: Rendezvous


@dataclass(frozen=True)
class GangStarted:
    """Every rank of the generation was started."""

    job_id: str
    at: float
    generation: int
    started: dict[int, Started]


@dataclass(frozen=True)
class RankExited:
    """The terminal record of a rank of a generation."""

    job_id: str
    at: float
    worker: str
    exit: Exit


@dataclass(frozen=True)
class LateExitFound:
    """A truth about a rank whose terminal record was already written."""

    job_id: str
    at: float
    worker: str
    exit: Exit


@dataclass(frozen=True)
class RestartDecided:
    """The gang goes on as ``generation`` on the same places. ``charged`` is the worker whose budget pays."""

    job_id: str
    at: float
    generation: int
    end_reason: str
    related: str
    stop_reason: ExitReason
    failed_at: float
    charged: int | None = None
    port_retry: bool = False
    hang_restarts: int | None = None
    """With a hang: restarts upon hangs in a row, this one included."""
    hang_step: float | None = None
    detect_s: float | None = None
    diagnose_s: float = 0.0


@dataclass(frozen=True)
class CauseFound:
    """Once all of the old generation is accounted for, another rank turns out to have failed first."""

    job_id: str
    at: float
    generation: int
    """The generation that the recovery launches."""
    end_reason: str
    related: str
    failed_at: float
    charged: int


@dataclass(frozen=True)
class HangNoticed:
    """Nothing moves, and the user is told. ``since`` is when the last movement was."""

    job_id: str
    at: float
    generation: int
    since: float
    rule: str
    sentence: str
    suspects: tuple[str, ...]
    hosts: tuple[str, ...]
    step: float | None = None


@dataclass(frozen=True)
class HangDiagnosed:
    """The stack dumps of a noticed hang are in. They may name other suspects than the notice did."""

    job_id: str
    at: float
    stacks: str
    suspects: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class HangJudged:
    """What is done about it: RESTARTED, WOULD_RESTART, WITHHELD, BUDGET_SPENT."""

    job_id: str
    at: float
    outcome: str
    note: str = ""
    suspects: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class HangStuck:
    """It was acted on, and a host can't get rid of its processes: the restart waits. ``why`` is the host's word."""

    job_id: str
    at: float
    worker: str
    host: str
    why: str = ""


@dataclass(frozen=True)
class HangOver:
    """It moves again."""

    job_id: str
    at: float
    note: str


@dataclass(frozen=True)
class JobHeld:
    """A user suspended action on hangs; ``until`` None ends that."""

    job_id: str
    at: float
    by: str
    until: float | None


@dataclass(frozen=True)
class PrimaryCompleted:
    """The primary is done; the others get their end grace."""

    job_id: str
    at: float


@dataclass(frozen=True)
class CancelRequested:
    """A user wants the job to end."""

    job_id: str
    at: float
    by: str


@dataclass(frozen=True)
class JobEnding:
    """The end is decided; what still runs is stopped."""

    job_id: str
    at: float
    outcome: JobState
    error: JobError | None = None
    stop_reason: ExitReason = ExitReason.STOPPED


@dataclass(frozen=True)
class WorkerEmptied:
    """Nothing of the worker is left on its host, and nothing more will be started."""

    job_id: str
    at: float
    worker: str


@dataclass(frozen=True)
class JobEnded:
    """The job has reached its final state. ``error`` replaces the one of ``JobEnding``, if there is one."""

    job_id: str
    at: float
    state: JobState
    error: JobError | None = None


@dataclass(frozen=True)
class HostJoined:
    """An agent introduced its host, for the first time or with something new."""

    host: str
    at: float
    address: str
    boot_id: str
    agent_version: str
    inventory: Inventory


@dataclass(frozen=True)
class HostCordoned:
    """The host takes no new work."""

    host: str
    at: float
    reason: str
    by: str


@dataclass(frozen=True)
class HostUncordoned:
    """The host takes work again."""

    host: str
    at: float
    by: str


@dataclass(frozen=True)
class HostLost:
    """The host was silent past its lease."""

    host: str
    at: float
    silent_s: float


@dataclass(frozen=True)
class HostReturned:
    """A lost host is heard again."""

    host: str
    at: float


@dataclass(frozen=True)
class CommonCauseNoticed:
    """Several jobs, or several hosts of one, hang for one reason, as far as is known. An event of the cluster."""

    at: float
    sentence: str
    jobs: tuple[str, ...]
    mount: str = ""
    """The storage that they wait for, if it is that."""
    hosts: tuple[str, ...] = ()
    """Those that wait for it, else those that all of the jobs share."""


JobEvent = (
    JobSubmitted
    | JobQueued
    | JobPlaced
    | GangLaunched
    | GangStarted
    | RankExited
    | LateExitFound
    | RestartDecided
    | CauseFound
    | HangNoticed
    | HangDiagnosed
    | HangJudged
    | HangStuck
    | HangOver
    | JobHeld
    | PrimaryCompleted
    | CancelRequested
    | JobEnding
    | WorkerEmptied
    | JobEnded
)
HostEvent = HostJoined | HostCordoned | HostUncordoned | HostLost | HostReturned
ClusterEvent = CommonCauseNoticed
Event = JobEvent | HostEvent | ClusterEvent
