"""Events of the whole cluster that concern neither a job nor a restore; see ``events``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import CheckStatus


@dataclass(frozen=True, kw_only=True)
class CertificateEnding:
    """A certificate ends soon, or has ended. ``ends_at`` is wall clock.

    ``certificate``: the controller's ``own``, the ``ca``, or ``host/NAME``.
    """

    at: Wall
    certificate: str
    ends_at: Wall


@dataclass(frozen=True, kw_only=True)
class MostHostsSilent:
    """Most hosts are silent at once, so none is given up: the fault is likelier in the network or with us."""

    at: Wall
    silent: int
    hosts: int


@dataclass(frozen=True, kw_only=True)
class ControllerCheckFailed:
    """A check of the controller's machine fails, or fails in a worse way. ``fix`` is lines to type or write."""

    at: Wall
    check: str
    status: CheckStatus
    saw: str
    why: str = ""
    fix: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ControllerCheckPassed:
    """A check of the controller's machine that failed passes again."""

    at: Wall
    check: str


@dataclass(frozen=True, kw_only=True)
class ClockLeapt:
    """The controller's wall clock was set, or its machine stood still: it has gone on by ``by_s`` more than time did.

    Moments that durations of what goes on are counted from leap along, so that none of them is longer or shorter.
    """

    at: Wall
    by_s: float
    """Negative where it was set back."""


ClusterNews = CertificateEnding | MostHostsSilent | ControllerCheckFailed | ControllerCheckPassed | ClockLeapt
