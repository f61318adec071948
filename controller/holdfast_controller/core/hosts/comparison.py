"""Hosts beside each other: which fail more often than the others explain, and which are unlike most of their kind.

Both are checks of a host that the controller makes, since no host knows the others. A lemon is DEGRADED: it takes work,
and placement chooses it last. That a host is unlike the others is only said: most of them may be the ones to change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from holdfast._base.health import Health
from holdfast_controller.core.goodput.reliability import LEMON_RATIO, Reliability
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.caution import LEMON, excess_of
from holdfast_controller.core.model.hosts.host import CheckStatus, FailedCheck, Host

UNLIKE = "host.unlike"
WELL_RATIO = LEMON_RATIO * 0.75
"""Below that lower bound a lemon is none any more."""
FEWEST_ALIKE = 3
"""Hosts of a kind of which more than half agree, for the others to be unlike them."""
_MANY = 5


def lemons(cluster: Cluster, judged: Mapping[str, Reliability], now: Wall) -> Iterator[tuple[Host, FailedCheck]]:
    """Yield hosts that are lemons and are not known to be, each with the check that fails."""
    for name, found in judged.items():
        host = cluster.hosts.get(name)
        if found.lemon and host is not None and LEMON not in host.failed_checks and _is_of(host, found):
            yield host, _lemon(name, found, now)


def no_lemons(cluster: Cluster, judged: Mapping[str, Reliability]) -> Iterator[Host]:
    """Yield hosts that are known as lemons and are none, or were repaired since."""
    for host in cluster.hosts.values():
        found = judged.get(host.name)
        known = LEMON in host.failed_checks and found is not None and _is_of(host, found)
        if known and found is not None and not found.lemon and found.ratio_low < WELL_RATIO:
            yield host


def excesses(cluster: Cluster, judged: Mapping[str, Reliability]) -> Iterator[tuple[Host, int]]:
    """Yield hosts with how surely each fails more often than the others."""
    for name, found in judged.items():
        host = cluster.hosts.get(name)
        if host is not None and _is_of(host, found):
            yield host, excess_of(found.ratio_low)


def _is_of(host: Host, found: Reliability) -> bool:
    """Whether the judgement is of the host's present record, and not of one before a repair."""
    return host.record is not None and host.record.since == found.since


def _lemon(name: str, found: Reliability, now: Wall) -> FailedCheck:
    saw = (
        f"it has failed {found.failures} times, {found.ratio:.1f} times as often as the others (at least"
        f" {found.ratio_low:.1f} times); surprise {found.surprise:.0f} bits"
    )
    why = "The jobs on it are interrupted that much more often; it is the last choice for new work."
    fix = (f"repair it, then: holdfast host uncordon {name} --repaired",)
    return FailedCheck(LEMON, CheckStatus.WARNING, saw, why, fix, now, health=Health.DEGRADED)


def unlike(cluster: Cluster, now: Wall) -> dict[str, FailedCheck]:
    """Hosts that are unlike most hosts with the same GPUs, by name, each with the check that fails."""
    kinds: dict[str, list[Host]] = defaultdict(list)
    for host in cluster.hosts.values():
        if host.inventory.traits and not host.lost:
            kinds[_kind(host)].append(host)
    found: dict[str, FailedCheck] = {}
    for hosts in kinds.values():
        usual = dict(_usual(hosts))
        for host in hosts:
            other = [
                f"{trait} {_shown(host.inventory.traits[trait])}, and {_shown(value)} on {alike} of {whole}"
                for trait, (value, alike, whole) in usual.items()
                if host.inventory.traits.get(trait, value) != value
            ]
            if other:
                found[host.name] = _unlike(host.name, other, now)
    return found


def _kind(host: Host) -> str:
    """Hosts are compared with those that have the same GPUs."""
    return ",".join(sorted({gpu.model for gpu in host.inventory.gpus}))


def _usual(hosts: list[Host]) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Yield each trait that more than half of the hosts share: (its value, how many have it, of how many)."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for host in hosts:
        for trait, value in host.inventory.traits.items():
            counts[trait][value] += 1
    for trait, values in sorted(counts.items()):
        value, alike = values.most_common(1)[0]
        if alike >= FEWEST_ALIKE and 2 * alike > values.total():
            yield trait, (value, alike, values.total())


def _shown(value: str) -> str:
    return value or "absent"


def _unlike(name: str, other: list[str], now: Wall) -> FailedCheck:
    more = f"; and {len(other) - _MANY} more" if len(other) > _MANY else ""
    saw = f"{'; '.join(other[:_MANY])}{more}"
    why = "A gang over hosts that differ in these may fail or be slow, and tests made elsewhere say less of it."
    fix = (f"make {name} like the others, or them like it, in a maintenance window",)
    return FailedCheck(UNLIKE, CheckStatus.WARNING, saw, why, fix, now, health=Health.INFORM)
