"""Certificates that end soon: how long before their end the status page says so, and admins are notified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.cluster import HOST
from holdfast_controller.core.model.clock import Wall

_DAY_S = 86_400.0
_WARNINGS_S = {"ca": (30 * _DAY_S, 3 * _DAY_S, 0.0), "own": (3 * _DAY_S, 0.0)}
"""Times before a certificate's end: the CA is replaced by hand, which takes weeks; any other is renewed long before."""
_HOST_PART = 1 / 6
"""Part of a host's certificate's life that is left when admins are notified; it is renewed when a third is left."""


def warnings_due(
    ends: Mapping[str, float], sent: Iterable[ev.CertificateEnding], now: Wall, host_s: float
) -> list[ev.CertificateEnding]:
    """Warnings that are due: each certificate is warned of once for each of its times, in ``sent`` or here.

    ``host_s``: seconds for which hosts' certificates are issued.
    """
    reached: dict[tuple[str, float], int] = {}
    for event in sent:
        key = event.certificate, event.ends_at
        reached[key] = max(reached.get(key, 0), stage(event.certificate, event.ends_at - event.at, host_s))
    due = []
    for name, ends_at in ends.items():
        if stage(name, ends_at - now, host_s) > reached.get((name, ends_at), 0):
            due.append(ev.CertificateEnding(at=now, certificate=name, ends_at=Wall(ends_at)))
    return due


def stage(certificate: str, left_s: float, host_s: float = 0.0) -> int:
    """How many of its times a certificate has reached; 0 while it doesn't end soon."""
    times_s = (host_s * _HOST_PART, 0.0) if certificate.startswith(HOST) else _WARNINGS_S.get(certificate, (0.0,))
    return sum(left_s <= before_s for before_s in times_s)
