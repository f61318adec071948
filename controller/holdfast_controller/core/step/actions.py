"""Actions that a step asks of the driver, which performs them only once the step's events are durable."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.assignment import Assignment
from holdfast.errors import HoldfastError
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Answer
from holdfast_controller.core.model.goodput import ProgressWatch
from holdfast_controller.core.model.hang import KeptWatch


@dataclass(frozen=True)
class Reply:
    """Answer a caller's command with success; ``subject`` is the job's id or the host's name."""

    token: int
    subject: str


@dataclass(frozen=True)
class Refuse:
    """Answer a caller's command with an error."""

    token: int
    error: HoldfastError


@dataclass(frozen=True)
class Welcome:
    """Answer an agent's hello; ``assignments`` messages with its workers' desired states follow.

    ``tell_all``: the agent sends acknowledged exits again, since those acknowledgements may be lost.
    """

    host: str
    session: int
    assignments: int
    tell_all: bool = False


@dataclass(frozen=True)
class Assign:
    """Send a worker's desired state to its host."""

    host: str
    session: int
    assignment: Assignment


@dataclass(frozen=True)
class StopOrphan:
    """Have an orphaned worker stopped and forgotten on its host."""

    host: str
    session: int
    job_id: str
    worker: str
    generation: int


@dataclass(frozen=True)
class AckExits:
    """Acknowledge exits to their agent, which has reported them in one message: they are durable here."""

    host: str
    session: int
    sequences: tuple[int, ...]


@dataclass(frozen=True)
class CloseSession:
    """Close a session that a newer one of the same host replaces."""

    host: str
    session: int
    reason: str


@dataclass(frozen=True)
class DeleteOutput:
    """Have a host delete what it has of deleted jobs."""

    host: str
    session: int
    job_ids: tuple[str, ...]


@dataclass(frozen=True)
class TakeEvidence:
    """Have an agent record evidence of a worker; ``suspects`` are global ranks that are examined more closely.

    ``dump`` is returned with the answer.
    """

    host: str
    job_id: str
    generation: int
    worker: str
    dump: int
    suspects: tuple[int, ...]


@dataclass(frozen=True)
class KeepEvidence:
    """Store one worker's evidence, in the same commit as the events of this step.

    ``samples`` are of the time before, stored unless the hang has some: the first are those that show how it began.
    ``dumps`` are those of its ranks' flight recorders; of all, the newest are kept.
    """

    job_id: str
    hang: int
    worker: str
    content: bytes
    samples: bytes = b""
    dumps: bytes = b""


@dataclass(frozen=True)
class KeepWatch:
    """Store what was learned of a job's progress, in the same commit; None deletes it."""

    job_id: str
    kept: KeptWatch | None


@dataclass(frozen=True)
class KeepProgress:
    """Store the progress of a job's running generation, in the same commit."""

    job_id: str
    watch: ProgressWatch


@dataclass(frozen=True)
class KeepAnswer:
    """Store the answer to a request id, in the same commit."""

    by: str
    request_id: str
    answer: Answer


@dataclass(frozen=True)
class KeepSecret:
    """Store a secret's sealed value, in the same commit; None deletes it."""

    holder: str
    name: str
    sealed: bytes | None = field(repr=False)


@dataclass(frozen=True)
class ForgetJob:
    """Note in the same commit that a job was deleted: what the store has of it is removed bit by bit after that.

    Its events stay until it is ``purged``.
    """

    job_id: str
    purged: bool


@dataclass(frozen=True)
class AccessChanged:
    """The rights of a party (``user/NAME``, ``host/NAME``) changed: its open streams are checked again."""

    party: str


@dataclass(frozen=True)
class CallFence:
    """Call the site's fence command for a silent host, which is lost at ``until`` unless it returns.

    The answer is fed as ``FenceAsked`` or ``FenceFailed``.
    """

    host: str
    address: str
    silent_s: float
    until: Wall


@dataclass(frozen=True)
class Note:
    """Write a warning to the controller's log; ``fields`` are pairs of name and value."""

    event: str
    fields: tuple[tuple[str, str], ...] = ()


ToHost = Welcome | Assign | StopOrphan | DeleteOutput | AckExits | CloseSession
"""Actions that are messages of a host's session."""
Kept = KeepEvidence | KeepWatch | KeepProgress | KeepAnswer | KeepSecret | ForgetJob
"""Actions that are part of the commit itself."""
Action = (
    Reply
    | Refuse
    | Welcome
    | Assign
    | StopOrphan
    | DeleteOutput
    | AckExits
    | CloseSession
    | TakeEvidence
    | AccessChanged
    | Kept
    | CallFence
    | Note
)
