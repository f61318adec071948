"""Events of the whole cluster that concern neither a job nor a restore; see ``events``."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_controller.core.model.clock import Wall


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


ClusterNews = CertificateEnding | MostHostsSilent
