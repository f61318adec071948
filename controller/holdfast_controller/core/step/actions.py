"""What a step wants done, imperative, frozen. Performed only once the step's events are durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._session.assignment import Assignment
from holdfast.errors import HoldfastError
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.request_cache import Answer


@dataclass(frozen=True)
class Reply:
    """Tell a caller that it is done; ``subject`` is the job's id or the host's name."""

    token: int
    subject: str


@dataclass(frozen=True)
class Refuse:
    """Tell a caller why not."""

    token: int
    error: HoldfastError


@dataclass(frozen=True)
class Welcome:
    """Answer a hello; ``assignments`` messages follow for what the controller knows there.

    ``tell_all``: ends that were acknowledged are to be told again, since those acknowledgements may be lost.
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
class Dismiss:
    """Have a worker stopped and forgotten that the log doesn't place on its host."""

    host: str
    session: int
    job_id: str
    worker: str
    generation: int


@dataclass(frozen=True)
class AckExit:
    """The exit is durable here."""

    host: str
    session: int
    sequence: int


@dataclass(frozen=True)
class CloseSession:
    """End a session that a newer one of the same host replaces."""

    host: str
    session: int
    reason: str


@dataclass(frozen=True)
class TakeEvidence:
    """Have a worker's ranks dumped; ``suspects`` are global ranks that are looked at more closely.

    ``dump`` comes back with the answer.
    """

    host: str
    job_id: str
    generation: int
    worker: str
    dump: int
    suspects: tuple[int, ...]


@dataclass(frozen=True)
class KeepEvidence:
    """Keep what was found of one worker with the job, in the same commit as the events of this step."""

    job_id: str
    hang: int
    worker: str
    content: bytes


@dataclass(frozen=True)
class KeepWatch:
    """Keep what was learned of a job's rhythm, in the same commit; None: nothing is worth keeping any more."""

    job_id: str
    kept: KeptWatch | None


@dataclass(frozen=True)
class KeepAnswer:
    """Remember what a call with an id of its own was answered, in the same commit."""

    by: str
    request_id: str
    answer: Answer


@dataclass(frozen=True)
class KeepSecret:
    """Keep a secret's sealed value, in the same commit; None: forget it."""

    holder: str
    name: str
    sealed: bytes | None = field(repr=False)


@dataclass(frozen=True)
class AccessChanged:
    """What a party (``user/NAME``, ``host/NAME``) may do has changed: its open streams are looked at again."""

    party: str


@dataclass(frozen=True)
class Note:
    """Something an operator should find in the log; ``fields`` are name and value pairs."""

    event: str
    fields: tuple[tuple[str, str], ...] = ()


Kept = KeepEvidence | KeepWatch | KeepAnswer | KeepSecret
"""What is part of the commit itself."""
Action = (
    Reply
    | Refuse
    | Welcome
    | Assign
    | Dismiss
    | AckExit
    | CloseSession
    | TakeEvidence
    | AccessChanged
    | Kept
    | Note
)
