"""How many hosts look ill at once, and how many of them may be kept from work for it; see ``hosts.health_brake``."""

from __future__ import annotations

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Waiver


def most(hosts: int, share_pct: int) -> int:
    """How many of so many hosts may be kept from work: the share, and of few hosts two, if that is not most of them."""
    return max(hosts * share_pct // 100, min(2, (hosts + 1) // 2)) if share_pct else 0


def ill(cluster: Cluster) -> tuple[set[str], set[str]]:
    """(Hosts that findings keep from work, hosts that only the brake spares that)."""
    kept: set[str] = set()
    spared: set[str] = set()
    for host in cluster.hosts.values():
        for failed in host.failed_checks.values():
            if failed.health is not None and failed.keeps_work_away:
                if failed.waived is None:
                    kept.add(host.name)
                elif failed.waived is Waiver.BRAKE:
                    spared.add(host.name)
    return kept, spared - kept


def in_words(count: int, kept: int) -> str:
    """The sentence for a brake that holds."""
    return f"hardware looks ill on {count} hosts at once: a common cause? {kept} of them get no new work, the others do"
