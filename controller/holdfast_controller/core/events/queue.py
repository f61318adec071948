"""How a job comes to its hosts: it is submitted, waits, and is placed."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job_state import JobState


@dataclass(frozen=True, kw_only=True)
class JobSubmitted:
    """A user submitted a job."""

    job_id: str
    at: Wall
    owner: str
    request_id: str
    display_name: str
    labels: dict[str, str]
    gang: Gang
    spec_json: str
    annotations: dict[str, str] = field(default_factory=dict)
    kms_key: str = ""
    """Of ``encryptionSpec``; kept, and never used."""


@dataclass(frozen=True, kw_only=True)
class JobQueued:
    """A job waits in the queue: a new one that could not be placed at once, or one that waits for another thing now.

    ``for_quota``: its project's quota keeps it from starting, and ``maxWaitDuration`` doesn't run meanwhile.
    ``given_back``: workers of its last attempt whose places it had kept, and keeps no longer.
    """

    job_id: str
    at: Wall
    reason: str
    for_quota: bool = False
    given_back: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DependencyEnded:
    """A job ``on`` whose end another one waits for has ended, in that way (``met``) or in another."""

    job_id: str
    at: Wall
    on: str
    state: JobState
    met: bool


@dataclass(frozen=True, kw_only=True)
class TurnCame:
    """An element of an array may wait for hosts now: its array has room for one more."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class PlacementTried:
    """A job that doesn't wait fitted nowhere, the ``number``-th time; the next try is at ``not_before``."""

    job_id: str
    at: Wall
    number: int
    reason: str
    not_before: Wall
    """Wall clock."""


@dataclass(frozen=True, kw_only=True)
class JobPlaced:
    """A job was placed: every worker has its host; ``places`` are in gang order."""

    job_id: str
    at: Wall
    attempt: int
    generation: int
    places: tuple[Place, ...]
    loan_of: str = ""
    """It started out of turn: the first job that waits ahead of it, and may take the GPUs back."""
    ahead_of: str = ""
    """It started out of turn for good: the first job that waits ahead of it, and is not expected to start later."""
    why: str = ""
    """The rule that gave it these hosts before others, in words; empty where it had its turn on all it may have."""
    spares: tuple[Place, ...] = ()
    """Its own spares."""


@dataclass(frozen=True, kw_only=True)
class JobSparesChanged:
    """A job has these spares of its own from now on: one was lost with its host, or there is a new one."""

    job_id: str
    at: Wall
    spares: tuple[Place, ...]
