"""Model policies: FIFO, greedy and EASY, written apart from the controller, on hosts of equal size.

A policy sees what waits, what runs and since when, and the free GPUs of each host. When a running job ends it learns
then. A gang takes whole hosts, and what is left over, or a smaller job, the fullest host that still has it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from bench.fleet.account import Account
from bench.fleet.estimates import Declared
from bench.fleet.traces import Request, Trace

Share = tuple[int, int]
"""(host, GPUs)."""


@dataclass
class Hosts:
    """Free GPUs by host."""

    size: int
    free: list[int]
    with_free: Counter[int] = field(init=False)

    def __post_init__(self) -> None:
        self.with_free = Counter(self.free)

    def copy(self) -> Hosts:
        """The same, to be changed apart."""
        return Hosts(self.size, self.free.copy())

    def fits(self, gpus: int) -> bool:
        """Whether a gang has hosts now."""
        whole, rest = divmod(gpus, self.size)
        empty = self.with_free[self.size]
        if empty < whole:
            return False
        partly = any(self.with_free[left] for left in range(rest, self.size))
        return not rest or partly or empty > whole

    def take(self, gpus: int) -> list[Share]:
        """Hosts for a gang that fits."""
        whole, rest = divmod(gpus, self.size)
        shares: list[Share] = []
        if whole:
            shares = [(host, self.size) for host, left in enumerate(self.free) if left == self.size][:whole]
            for host, left in shares:
                self.give(host, -left)
        if rest:
            _, host = min((left, host) for host, left in enumerate(self.free) if left >= rest)
            self.give(host, -rest)
            shares.append((host, rest))
        return shares

    def give(self, host: int, gpus: int) -> None:
        """So many GPUs more are free on a host."""
        self.with_free[self.free[host]] -= 1
        self.free[host] += gpus
        self.with_free[self.free[host]] += 1


@dataclass
class Running:
    """A job that runs."""

    asked: Request
    since: float
    shares: list[Share]


class Fifo:
    """Jobs start in the order of their arrival; the first that doesn't fit holds up all others."""

    def __init__(self, estimates: Declared) -> None:
        self.estimates = estimates

    def choose(self, now: float, queue: list[Request], running: dict[str, Running], hosts: Hosts) -> list[Request]:
        """The jobs to start now, in this order. ``hosts`` is the policy's to change."""
        return self._from_head(queue, hosts)

    def _from_head(self, queue: list[Request], hosts: Hosts) -> list[Request]:
        chosen = []
        for asked in queue:
            if not hosts.fits(asked.gpus):
                break
            hosts.take(asked.gpus)
            chosen.append(asked)
        return chosen


class Greedy(Fifo):
    """Whatever fits starts, in the order of arrival: nothing is kept for the first."""

    def choose(self, now: float, queue: list[Request], running: dict[str, Running], hosts: Hosts) -> list[Request]:
        chosen, failed = [], 1 << 30
        for asked in queue:
            # On equal hosts a gang that is as large as one that didn't fit doesn't either.
            if asked.gpus < failed and hosts.fits(asked.gpus):
                hosts.take(asked.gpus)
                chosen.append(asked)
            elif asked.gpus % hosts.size == 0 or asked.gpus < hosts.size:
                failed = min(failed, asked.gpus)
        return chosen


class Easy(Fifo):
    """EASY: the first that doesn't fit has a reservation, by estimates; others start where they don't touch it."""

    def choose(self, now: float, queue: list[Request], running: dict[str, Running], hosts: Hosts) -> list[Request]:
        before = hosts.copy()
        chosen = self._from_head(queue, hosts)
        behind = queue[len(chosen) :]
        if len(behind) < 2 or not any(hosts.free):
            return chosen
        head = behind[0]
        runs = [(job.since, job.asked, job.shares) for job in running.values()]
        runs += [(now, asked, before.take(asked.gpus)) for asked in chosen]
        at, then = self._shadow(now, head, runs, hosts)
        for asked in self.in_turn(behind[1:]):
            if not hosts.fits(asked.gpus):
                continue
            trial = hosts.copy()
            shares = trial.take(asked.gpus)
            if now + self.estimates.of(asked, 0.0) > at:
                later = then.copy()
                for host, gpus in shares:
                    later.give(host, -gpus)
                if not later.fits(head.gpus):
                    continue
                then = later
            hosts.take(asked.gpus)
            chosen.append(asked)
        return chosen

    def in_turn(self, behind: list[Request]) -> list[Request]:
        """The order in which those behind the first may pass it."""
        return behind

    def _shadow(
        self,
        now: float,
        head: Request,
        runs: list[tuple[float, Request, list[Share]]],
        hosts: Hosts,
    ) -> tuple[float, Hosts]:
        """When the head fits by the estimates, and what is free then."""
        ends = sorted(
            (since + self.estimates.of(asked, now - since), number, shares)
            for number, (since, asked, shares) in enumerate(runs)
        )
        then = hosts.copy()
        at = now
        for end, _, shares in ends:
            for host, gpus in shares:
                then.give(host, gpus)
            at = max(end, now)
            if then.fits(head.gpus):
                break
        return at, then


class ShortestFirst(Easy):
    """EASY in which of those that may pass the first the shortest comes first, by estimates."""

    def in_turn(self, behind: list[Request]) -> list[Request]:
        return sorted(behind, key=lambda asked: self.estimates.of(asked, 0.0))


def play(trace: Trace, policy: Fifo, hosts: int, gpus_each: int) -> Account:
    """Run a trace to its end under a policy."""
    account = Account(trace, hosts * gpus_each)
    fleet = Hosts(gpus_each, [gpus_each] * hosts)
    slots = [list(range(gpus_each)) for _ in range(hosts)]
    queue: list[Request] = []
    running: dict[str, Running] = {}
    taken: dict[str, list[tuple[int, int]]] = {}
    coming = list(reversed(trace.requests))
    ends: list[tuple[float, str]] = []
    while coming or ends:
        now = min(coming[-1].at if coming else float("inf"), ends[0][0] if ends else float("inf"))
        account.advance(now)
        while ends and ends[0][0] <= now:
            name = heapq.heappop(ends)[1]
            account.ended(name)
            job = running.pop(name)
            policy.estimates.learn(job.asked, now - job.since)
            for host, gpus in job.shares:
                fleet.give(host, gpus)
            for host, slot in taken.pop(name):
                slots[host].append(slot)
        while coming and coming[-1].at <= now:
            queue.append(coming.pop())
            account.submitted(queue[-1].name)
        for asked in policy.choose(now, queue, running, fleet.copy()):
            shares = fleet.take(asked.gpus)
            taken[asked.name] = [(host, slots[host].pop()) for host, gpus in shares for _ in range(gpus)]
            left_s = account.started(asked.name, tuple(taken[asked.name]))
            running[asked.name] = Running(asked, now, shares)
            heapq.heappush(ends, (now + left_s, asked.name))
            queue.remove(asked)
    account.close()
    return account
