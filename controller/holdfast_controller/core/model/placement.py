"""A gang's placement and the launch of its current generation; each is replaced as a whole, never reset."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.runtime import Started


@dataclass(frozen=True)
class Attempt:
    """One placement of the gang: its first generation, and where. ``places`` in gang order."""

    number: int
    generation: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Rendezvous:
    """How the ranks of one launched generation find each other. ``ports`` is one per worker, in gang order."""

    master_address: str
    master_port: int
    secret: str
    addresses: tuple[str, ...]
    ports: tuple[int, ...]


@dataclass
class Placement:
    """The newest attempt, until the next one is placed. Before the first there are no places."""

    attempt: int = 0
    places: tuple[Place, ...] = ()
    emptied: set[int] = field(default_factory=set)
    """Workers that are proven gone for good."""
    fenced: set[int] = field(default_factory=set)
    """Of them, those that were given up without their host's confirmation: their allocation there is kept."""
    running_since: Wall | None = None
    """Since when the attempt runs."""
    spares: tuple[Place, ...] = ()
    """Shares that are held for the next worker that has to leave its host; nothing runs there."""
    since: Wall = NEVER
    """When it was placed; ``NEVER`` in what an older release has stored."""


@dataclass
class GangLaunch:
    """The newest launch of the whole gang, from its decision on."""

    generation: int = 0
    rendezvous: Rendezvous | None = None
    """Set once the generation is launched."""
    not_before: Wall | None = None
    """The earliest time of this launch, or of the deferred ones, after a back-off."""
    started: dict[int, Started] = field(default_factory=dict)
    """By worker."""
    relaunched: dict[int, int] = field(default_factory=dict)
    """By worker that was relaunched on its own since: its generation."""
    deferred: set[int] = field(default_factory=set)
    """Of the relaunched, those that wait for ``not_before``."""
    primary_done_at: Wall | None = None
    warned_off: str = ""
    """A host of whose drain its ranks were warned; empty for none."""
    warned_at: Wall = NEVER
    warned_until: Wall = NEVER
    """The deadline that this drain had then: until it they may exit for that alone, whatever became of the drain."""
    world_apart: bool = False
    """It is in the log that a worker's processes form a world of their own."""
