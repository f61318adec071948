"""Signs against a host that takes work: placement chooses those hosts last that have most of them.

Among hosts that are equal in all else it chooses those first that fail least, as far as that is certain.
"""

from __future__ import annotations

from holdfast._base.health import Health
from holdfast_controller.core.model.hosts.host import Host

LEMON = "host.lemon"
"""The check that fails of a host that fails too often; judged by the controller, which has seen all hosts."""
LEMON_SIGNS = 2


def caution(host: Host) -> int:
    """Signs against a host: one for each check of class DEGRADED that fails, two for a lemon; 0 for a sound one."""
    if not host.failed_checks:  # of most hosts, and a plan asks this of each
        return 0
    found = sum(each.health is Health.DEGRADED for each in host.failed_checks.values() if each.check != LEMON)
    return found + LEMON_SIGNS * (LEMON in host.failed_checks)


def excess_of(ratio_low: float) -> int:
    """Tenths by which a host fails more often than the others, at least: 0 where it may well be as good as they.

    ``ratio_low`` is the lower bound of ``Reliability.ratio``, so hosts of which little is known are equals.
    """
    return max(0, round(10 * (ratio_low - 1)))
