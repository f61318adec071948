"""Inputs of the reactor that machines send of themselves: their checks, and that they end; see ``commands``."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.goodput.reliability import Reliability
from holdfast_controller.core.model.hosts.host import FailedCheck


@dataclass(frozen=True)
class AgentStopping:
    """A host's agent says that it is stopped, and its host goes on."""

    host: str
    session: int


@dataclass(frozen=True)
class ChecksReported:
    """All checks of a host that fail at present, by its agent. ``partial``: not all have been made yet."""

    host: str
    session: int
    failed: tuple[FailedCheck, ...]
    partial: bool = False


@dataclass(frozen=True)
class ControllerChecked:
    """All checks of the controller's machine that fail at present."""

    failed: tuple[FailedCheck, ...]


@dataclass(frozen=True)
class HostsJudged:
    """How often each host fails, by all that is stored of them."""

    hosts: Mapping[str, Reliability]


@dataclass(frozen=True)
class HostCheckAsked:
    """An admin wants a host measured: as soon as it is idle, or with ``at_once`` now."""

    token: int
    by: str
    host: str
    at_once: bool = False


@dataclass(frozen=True)
class FenceFailed:
    """The site's fence command could not prove that a host is off."""

    host: str
    problem: str


@dataclass(frozen=True)
class ShutdownAnnounced:
    """A host's agent says that the host shuts down."""

    host: str
    session: int


Judged = ControllerChecked | HostsJudged
"""Judgements of the controller's own process."""
