"""Reservations: hosts that are for the jobs of one project, or of one user, from one time until another.

Jobs of others aren't started where they are expected to run into that time; SPOT jobs are, since they give way. No
host is reserved for good unless it is named: as many as a reservation asks for are chosen again at each look, of those
that take work. First come those where no other job is expected to run beyond the beginning, then those with
least work of others: so a host that leaves is replaced, and one that comes free early takes the place of a busy one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import NEVER, Mono, Wall
from holdfast_controller.core.model.gang import HostSelector
from holdfast_controller.core.model.hosts.capacity import model_matches
from holdfast_controller.core.model.hosts.caution import caution
from holdfast_controller.core.model.hosts.host import Host

Whose = tuple[str, str]
"""The project and the owner of jobs."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Hosts for a project, or a user, from ``start`` until ``end``, on the wall clock.

    All that the ``selector`` admits; with ``count`` so many of them, with ``gpus`` as many as have so many GPUs.
    """

    name: str
    project: str
    """Empty: jobs of any, if they are the ``user``'s."""
    start: Wall
    end: Wall
    selector: HostSelector
    count: int = 0
    gpus: int = 0
    gpu_type: str = ""
    """A model as jobs name it: only hosts with such GPUs, and only these count; empty: any."""
    reason: str = ""
    by: str = ""
    made_at: Wall = NEVER
    user: str = ""
    """Empty: jobs of any, if they are of the ``project``."""

    def is_for(self, whose: Whose) -> bool:
        """Whether jobs of a project and an owner may have the hosts while it lasts."""
        project, owner = whose
        return self.project in ("", project) and self.user in ("", owner)

    @property
    def whose(self) -> str:
        """Its project or user in words, such as ``project vision`` or ``user ann in project vision``."""
        parts = [f"user {self.user}"] if self.user else []
        return " in ".join([*parts, *([f"project {self.project}"] if self.project else [])])

    @property
    def chooses(self) -> bool:
        """Whether it is for some of the hosts that suit it, whichever those are."""
        return bool(self.count or self.gpus)

    def suits(self, host: Host) -> bool:
        """Whether a host may be one of them."""
        return self.selector.admits(host.name, host.labels) and (not self.gpu_type or self.gpus_of(host) > 0)

    def gpus_of(self, host: Host) -> int:
        """GPUs of a host that count."""
        return sum(not self.gpu_type or model_matches(self.gpu_type, gpu.model) for gpu in host.inventory.gpus)

    def overlaps(self, other: Reservation) -> bool:
        """Whether there is a moment that is in both."""
        return self.start < other.end and other.start < self.end

    def lack(self, hosts: Iterable[Host]) -> str:
        """The part of what it asks for that these hosts aren't, such as ``2 of 4 hosts``; empty where they suffice."""
        chosen = list(hosts)
        if self.gpus:
            found = sum(map(self.gpus_of, chosen))
            return f"{self.gpus - found} of {self.gpus} GPUs" if found < self.gpus else ""
        wanted = self.count or len(self.selector.hosts)
        return f"{wanted - len(chosen)} of {wanted} hosts" if len(chosen) < wanted else ""


@dataclass
class HostReservations:
    """Reservations that aren't over, part of the durable state."""

    by_name: dict[str, Reservation] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    """Names of those whose beginning is in the log."""

    def of(self, whose: Whose) -> str:
        """The names of those that are for such jobs, with commas; empty where none is."""
        return ",".join(each.name for each in self.by_name.values() if each.is_for(whose))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which hosts were chosen, by reservation, and what it went by: it is kept ``until`` then where that stays so."""

    reservations: tuple[Reservation, ...]
    hosts: int
    """That took work."""
    until: Mono
    chosen: Mapping[str, tuple[str, ...]]

    def holds_for(self, reservations: tuple[Reservation, ...], hosts: Collection[str]) -> bool:
        """Whether these are the reservations, and so many hosts, of which those chosen are some."""
        same = self.reservations == reservations and self.hosts == len(hosts)
        return same and all(name in hosts for names in self.chosen.values() for name in names)


def choose(
    reservations: Iterable[Reservation], hosts: Iterable[Host], busy: Mapping[str, Mapping[Whose, Wall]]
) -> dict[str, list[Host]]:
    """The hosts of each reservation, by its name; each is in one at a time.

    ``busy``: by host whose work is there that can't be taken back, and until when.
    """
    known, found = list(hosts), dict[str, list[Host]]()
    # Those that can have only these hosts choose first.
    turns = sorted(reservations, key=lambda each: (each.chooses, each.start, each.made_at, each.name))
    for reservation in turns:
        taken = {
            host.name
            for other in turns
            if other.name in found and other.overlaps(reservation)
            for host in found[other.name]
        }
        # Its selector asks each host for its name, too; thousands would be asked in vain in every pass.
        named = reservation.selector.hosts
        some = [host for host in known if host.name in named] if named else known
        suitable = [host for host in some if host.name not in taken and reservation.suits(host)]
        found[reservation.name] = _first(reservation, suitable, busy) if reservation.chooses else suitable
    return found


def _first(reservation: Reservation, suitable: list[Host], busy: Mapping[str, Mapping[Whose, Wall]]) -> list[Host]:
    """The first hosts that suit it, as many as it asks for."""
    turns = [(*_work_of_others(reservation, busy.get(host.name)), *_last(host), host) for host in suitable]
    heapq.heapify(turns)
    chosen, left = list[Host](), reservation.gpus or reservation.count
    while turns and left > 0:
        host = heapq.heappop(turns)[-1]
        chosen.append(host)
        left -= reservation.gpus_of(host) if reservation.gpus else 1
    return chosen


def _work_of_others(reservation: Reservation, busy: Mapping[Whose, Wall] | None) -> tuple[bool, int]:
    if not busy:
        return False, 0
    until = [at for whose, at in busy.items() if not reservation.is_for(whose)]
    return any(at > reservation.start for at in until), len(until)


def _last(host: Host) -> tuple[int, str]:
    return caution(host), host.name
