"""Spares: hosts that are kept back, so that a job which loses one goes on at once.

No host is a spare for good. As many as a rule asks for are chosen again at each pass over the queue: of those that suit
it the ones with least work on them that can't be taken back. So a host that comes free fills a gap, one that replaced
another is no spare any more, and a lost one that returns is the next. What a spare has free goes to SPOT jobs, which
give it up again, and to jobs that had to leave a host of theirs.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.label_match import Condition
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.capacity import model_matches
from holdfast_controller.core.model.hosts.caution import caution
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.recovery import EndReason

_OF_HOSTS = frozenset(
    {
        EndReason.LOST_HOST,
        EndReason.LOST_REBOOT,
        EndReason.HARDWARE_FAULT,
        EndReason.HOST_UNFIT,
        EndReason.HOST_SHUTDOWN,
        EndReason.DRAINED,
    }
)
"""Ends of an attempt by what became of a host."""


@dataclass(frozen=True)
class SpareRule:
    """How many ``hosts`` are kept: of those with such GPUs, in each domain of the innermost of the levels ``per``."""

    name: str
    hosts: int
    gpus: str = ""
    """A model as jobs name it; empty: any host."""
    per: tuple[str, ...] = ()
    """Labels from the outermost level of the topology on; empty: in the whole cluster."""
    match: tuple[Condition, ...] = ()
    """On the hosts' labels."""

    def suits(self, host: Host) -> bool:
        """Whether a host may be one of them: it has such labels and such a GPU, and is in a domain."""
        if not all(each.holds(host.labels) for each in self.match):
            return False
        if self.gpus and not any(model_matches(self.gpus, gpu.model) for gpu in host.inventory.gpus):
            return False
        return all(host.labels.get(level) for level in self.per)


def spares_of(
    rules: Iterable[SpareRule], hosts: Iterable[Host], taken: Collection[str] = (), *, empty: bool = False
) -> dict[str, str]:
    """The spares among hosts that take work, each with the name of its rule; ``taken`` ones are about to get work.

    With ``empty`` as if no host had any.
    """
    found: dict[str, str] = {}
    for rule in rules:
        domains: dict[tuple[str, ...], list[tuple[bool, int, int, str]]] = {}
        for host in hosts:
            if host.name not in found and rule.suits(host):
                held = 0 if empty else _kept_by_work(host)
                turn = (held > 0 or host.name in taken, caution(host), held, host.name)
                domains.setdefault(tuple(host.labels[level] for level in rule.per), []).append(turn)
        for turns in domains.values():
            found |= dict.fromkeys((name for *_, name in heapq.nsmallest(rule.hosts, turns)), rule.name)
    return found


def _kept_by_work(host: Host) -> int:
    """GPUs that are held by work that can't be taken back; a share without any counts as one."""
    return sum(len(share.gpus) or 1 for share in host.allocations.values() if not share.revocable)


def ready_spares(spares: Mapping[str, str], hosts: Mapping[str, Host]) -> Counter[str]:
    """By rule: how many of its spares have no work that can't be taken back."""
    found = Counter(dict.fromkeys(spares.values(), 0))
    found.update(rule for name, rule in spares.items() if name in hosts and not _kept_by_work(hosts[name]))
    return found


def lost_a_host(job: Job) -> bool:
    """Whether a waiting job had to leave a host of its last attempt, and so may have a spare for it."""
    left = job.vacating is Leaving.RETRY and job.last_end in _OF_HOSTS and bool(job.excluded)
    return left and job.gang.strategy is not Strategy.SPOT


def closed_to(spares: Mapping[str, str], job: Job) -> Collection[str]:
    """The spares that a job may have nothing new of: those that it holds places on are its own."""
    if not spares or job.gang.strategy is Strategy.SPOT or lost_a_host(job):
        return ()
    own = {job.places[index].host for index in job.reserved}
    return spares.keys() - own if own else spares.keys()


def spares_kept(hosts: int) -> str:
    """Why a job doesn't have so many hosts that take work, in words."""
    return f"{hosts} host{' is a spare' if hosts == 1 else 's are spares'}, kept for jobs that lose one"
