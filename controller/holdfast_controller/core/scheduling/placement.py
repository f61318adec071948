"""Where a gang goes: all workers or none, over CPU cores, memory, worker slots and named GPUs.

Workers with GPUs are packed (the fullest host that still fits), so that whole hosts stay free for large
workers; workers without are spread (the emptiest host), since nothing is gained by sharing. A plan is final:
it names each GPU. When there is none, the reason says what lacks, in words for the user.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast_controller.core.model.gang import Gang, HostSelector, Pool
from holdfast_controller.core.model.host import Host, Place, place_key

if TYPE_CHECKING:
    from holdfast_controller.core.model.job import Job

_VENDOR = {"NVIDIA", "TESLA", "GEFORCE", "AMD"}
_MIB = 1 << 20
ANYWHERE = HostSelector()


@dataclass(frozen=True)
class Plan:
    """A host and GPUs for every worker, in gang order."""

    places: tuple[Place, ...]


@dataclass(frozen=True)
class Wait:
    """There is no room at present."""

    reason: str


@dataclass
class Room:
    """What is left of a host while a plan is being made."""

    host: str
    cpus: int
    memory_mb: int
    slots: int
    gpus: list[tuple[str, str]]
    """(uuid, model), in index order."""
    no_containers: str = ""
    """Why no work runs in containers here."""
    no_accounts: str = ""
    """Why no work runs here as an account of its own."""
    gives_secrets: bool = False

    def fits(self, pool: Pool) -> bool:
        """Whether one worker of ``pool`` has room here."""
        return (
            not (pool.task.image and self.no_containers)
            and not (pool.task.account and self.no_accounts)
            and (self.gives_secrets or not pool.task.secrets)
            and self.slots >= 1
            and self.cpus >= pool.cpus
            and self.memory_mb >= pool.memory_mb
            and (not pool.gpus or self.matching(pool) >= pool.gpus)
        )

    def matching(self, pool: Pool) -> int:
        """Free GPUs of the model that the pool asks for."""
        return sum(1 for _, model in self.gpus if model_matches(pool.gpu_type, model))

    def copy(self) -> Room:
        """The same room, to be used up by another plan."""
        return replace(self, gpus=self.gpus.copy())

    def take(self, pool: Pool) -> Place:
        """Reserve one worker's share."""
        chosen = [g for g in self.gpus if model_matches(pool.gpu_type, g[1])][: pool.gpus]
        self.gpus = [g for g in self.gpus if g not in chosen]
        self.cpus -= pool.cpus
        self.memory_mb -= pool.memory_mb
        self.slots -= 1
        return Place(self.host, tuple(uuid for uuid, _ in chosen))


@functools.lru_cache(maxsize=4096)
def model_matches(wanted: str, model: str) -> bool:
    """Whether a GPU model answers to a name such as ``NVIDIA_H100_80GB``; an empty name takes any."""
    return _words(wanted) - _VENDOR <= _words(model)


def _words(name: str) -> set[str]:
    return {word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word}


def room(host: Host, without: frozenset[str] = frozenset(), *, empty: bool = False) -> Room:
    """What a host has free; with ``empty``, what it would have with no work on it; or without certain places."""
    inventory = host.inventory
    held = [a for key, a in host.allocations.items() if not (empty or key in without)]
    strangers = [] if empty else list(host.strangers.values())
    taken = {uuid for share in held for uuid in share.gpus}
    taken |= {uuid for stranger in strangers for uuid in stranger.gpus}
    gpus = sorted(
        (g for g in inventory.gpus if (empty or not g.problem) and g.uuid not in taken), key=lambda g: g.index
    )
    if inventory.gpu_problem and not empty:
        gpus = []
    return Room(
        host=host.name,
        cpus=inventory.cpus - sum(a.cpus for a in held),
        memory_mb=inventory.memory_bytes // _MIB - sum(a.memory_mb for a in held),
        slots=inventory.max_workers - len(held) - len(strangers),
        gpus=[(g.uuid, g.model) for g in gpus],
        no_containers=inventory.no_containers,
        no_accounts=inventory.no_accounts,
        gives_secrets=inventory.gives_secrets,
    )


def plan(gang: Gang, hosts: Iterable[Host]) -> Plan | Wait:
    """Place every worker of ``gang`` on ``hosts`` (those that may take work), or say why not."""
    return plan_in(gang, [room(host) for host in hosts])


RoomOf = Callable[[Host, frozenset[str]], Room]
"""The room of a host without certain places; whoever asks may use it up."""


def may_have(gang: Gang, hosts: Iterable[Host]) -> list[Host]:
    """Those of ``hosts`` that the gang lets itself be placed on."""
    selector = gang.selector
    return list(hosts) if selector == ANYWHERE else [h for h in hosts if selector.admits(h.name, h.labels)]


def plan_job(job: Job, hosts: Iterable[Host], room_of: RoomOf = room) -> Plan | Wait:
    """Place a job that waits, on those of ``hosts`` that it may have, or say why not.

    What it keeps of its last attempt stays if the rest finds room beside it on hosts that it doesn't avoid; else
    all of it is placed anew; and the hosts that it avoids are better than none.
    """
    admitted = may_have(job.gang, hosts)
    if not admitted and job.gang.selector != ANYWHERE:
        return Wait(f"no host that it may have takes work at present ({job.gang.selector.in_words()})")
    own = frozenset(place_key(job.id, index) for index in job.kept)
    # Where a share of its own is withheld something of it may still run.
    if job.places:
        admitted = [host for host in admitted if not _is_withheld(job, host, own)]
    others = [host for host in admitted if host.name not in job.avoided]
    by_name = {host.name for host in others}
    kept = {index: job.places[index] for index in job.kept}
    if kept and all(place.host in by_name for place in kept.values()):
        found = plan_in(job.gang, [room_of(host, frozenset()) for host in others], kept)
        if isinstance(found, Plan):
            return found
    if len(others) < len(admitted):
        found = plan_in(job.gang, [room_of(host, own) for host in others])
        if isinstance(found, Plan):
            return found
    return plan_in(job.gang, [room_of(host, own) for host in admitted])


def _is_withheld(job: Job, host: Host, own: frozenset[str]) -> bool:
    return any(key.startswith(f"{job.id}/") and key not in own for key in host.allocations)


def plan_in(gang: Gang, rooms: list[Room], kept: Mapping[int, Place] | None = None) -> Plan | Wait:
    """As ``plan``, over rooms, which it uses up, beside places that are taken already.

    The choosiest and largest workers choose first.
    """
    if not rooms:
        return Wait("no host takes work at present")
    places: dict[int, Place] = dict(kept or {})
    missing = [member for member in gang.members if member.index not in places]
    used = Counter(place.host for place in places.values())
    for number, wanted in itertools.groupby(
        sorted(missing, key=lambda m: (*_need(gang.pool_of(m)), m.index)), key=lambda m: m.pool
    ):
        pool = gang.pools[number]
        # Only the room that a worker takes changes its turn; what is too small for one is so for the next.
        turns = [(_turn(pool, r, used), at) for at, r in enumerate(rooms) if r.fits(pool)]
        heapq.heapify(turns)
        for member in wanted:
            if not turns:
                return Wait(_lack(pool, rooms, len(places), len(gang.members)))
            at = turns[0][1]
            places[member.index] = rooms[at].take(pool)
            used[rooms[at].host] += 1
            if rooms[at].fits(pool):
                heapq.heapreplace(turns, (_turn(pool, rooms[at], used), at))
            else:
                heapq.heappop(turns)
    return Plan(tuple(places[m.index] for m in gang.members))


def _need(pool: Pool) -> tuple[bool, int, int, int]:
    """Sorts the choosiest first: those that name a GPU model, then the largest."""
    return not (pool.gpus and pool.gpu_type), -pool.gpus, -pool.cpus, -pool.memory_mb


def _turn(pool: Pool, left: Room, used: Counter[str]) -> tuple[int, int, int, str]:
    """Sorts the rooms that a worker fits into: the first is taken."""
    if pool.gpus:
        return len(left.gpus), 0, 0, left.host
    return used[left.host], -left.slots, -left.cpus, left.host


def _lack(pool: Pool, rooms: list[Room], placed: int, total: int) -> str:
    """What the first worker without a host lacks, by the nearest host."""
    without = [r for r in rooms if r.no_containers] if pool.task.image else []
    if without and len(without) == len(rooms):
        return f"needs a host that runs containers ({without[0].host}: {without[0].no_containers})"
    strangers = [r for r in rooms if r.no_accounts] if pool.task.account else []
    if strangers and len(strangers) == len(rooms):
        why = f"{strangers[0].host}: {strangers[0].no_accounts}"
        return f"needs a host that starts workers as {pool.task.account} ({why})"
    old = [r for r in rooms if not r.gives_secrets] if pool.task.secrets else []
    if old and len(old) == len(rooms):
        return f"needs a host whose agent gives secrets; upgrade that of {old[0].host}"
    rooms = [r for r in rooms if r not in without and r not in strangers and r not in old] or rooms
    wants = []
    if pool.gpus:
        best = max(r.matching(pool) for r in rooms)
        kind = f" {pool.gpu_type}" if pool.gpu_type else ""
        gpus = f"{pool.gpus}{kind} GPU{'s' if pool.gpus > 1 else ''}"
        wants.append((best >= pool.gpus, f"{gpus} on one host ({best} free on the best)"))
    if pool.cpus:
        cpus = max(r.cpus for r in rooms)
        wants.append((cpus >= pool.cpus, f"{pool.cpus} cores on one host ({max(cpus, 0)} free on the best)"))
    if pool.memory_mb:
        memory = max(r.memory_mb for r in rooms)
        wants.append(
            (memory >= pool.memory_mb, f"{pool.memory_mb} MiB on one host ({max(memory, 0)} free on the best)")
        )
    lacking = [text for enough, text in wants if not enough]
    if not lacking and not any(r.slots >= 1 for r in rooms):
        lacking = ["a free worker slot"]
    what = " and ".join(lacking) or "a host with room for all it asks for at once"
    have = f"; {placed} of {total} workers would fit now" if placed else ""
    return f"needs {what}{have}"
