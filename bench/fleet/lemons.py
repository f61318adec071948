"""How well lemons are told from sound hosts: fleets in virtual time, by the controller's fold of hosts' events.

Each host is lost, boots without a word or has a GPU condemned as a Poisson process, lemons so many times as often.
Every day the controller is asked for its judgement; a host counts as named from the first day that it is.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast._base.xids import Repair
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.host import fold_host
from holdfast_controller.core.goodput.host_record import open_time
from holdfast_controller.core.goodput.reliability import HostTotals, judge
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Gpu, GpuFault, Inventory
from holdfast_controller.shell.store import host_rows

DAY_S = 86_400.0
BEGAN = 1_000 * DAY_S
MTBF_DAYS = 47.7
"""Of a sound host of 8 GPUs (Meta, arXiv 2410.21680)."""
_GPU = "GPU-1"


@dataclass
class Fleet:
    """One simulated fleet. ``named`` has the day on which each host was first called a lemon."""

    lemons: set[str]
    named: dict[str, int]
    days: list[set[str]]
    """Hosts that are called lemons on each day."""


def simulate(seed: int, hosts: int, lemons: int, days: int, times: float, mtbf_days: float = MTBF_DAYS) -> Fleet:
    """Run one fleet, judged once a day."""
    rng = random.Random(seed)
    names = [f"host-{number}" for number in range(hosts)]
    bad = set(rng.sample(names, lemons))
    cluster, totals = Cluster(), {name: HostTotals() for name in names}
    happened: list[tuple[float, int, ev.HostEvent]] = []
    inventory = Inventory(cpus=64, memory_bytes=1 << 40, gpus=(Gpu(_GPU, 0, "H100", 80 << 30),))
    for name in names:
        at = BEGAN
        joined = ev.HostJoined(
            host=name, at=Wall(at), address="", boot_id="boot", agent_version="1", inventory=inventory
        )
        happened.append((at, len(happened), joined))
        rate = (times if name in bad else 1.0) / (mtbf_days * DAY_S)
        while (at := at + rng.expovariate(rate)) < BEGAN + days * DAY_S:
            for event in _failure(rng, name, at):
                happened.append((event.at, len(happened), event))
            at = happened[-1][0]
    happened.sort(key=lambda each: each[:2])
    found = Fleet(bad, {}, [])
    for day in range(1, days + 1):
        until = BEGAN + day * DAY_S
        while happened and happened[0][0] < until:
            fold_host(cluster, happened.pop(0)[2])
        for each in cluster.bookings.hosts:
            host_rows.add(totals[each.host], each.what, each.busy, each.what.value != "up", each.end - each.start)
        cluster.bookings.hosts.clear()
        fleet = {name: _with_open(cluster, name, totals[name], until) for name in cluster.hosts}
        named = {name for name, known in judge(fleet).items() if known.lemon}
        found.days.append(named)
        for name in named:
            found.named.setdefault(name, day)
    return found


def _failure(rng: random.Random, name: str, at: float) -> Iterator[ev.HostEvent]:
    """Yield one failure of a host, and its repair some hours later."""
    back = at + rng.uniform(1.0, 12.0) * 3600
    if rng.random() < 0.5:
        yield ev.HostLost(host=name, at=Wall(at), silent_s=75.0)
        yield ev.HostReturned(host=name, at=Wall(back))
        return
    fault = GpuFault("Xid 79", Repair.RESET, Wall(at))
    yield ev.GpuCondemned(host=name, at=Wall(at), gpu=_GPU, index=0, fault=fault)
    yield ev.GpuCleared(host=name, at=Wall(back), gpu=_GPU, index=0, causes=("Xid 79",), by="holdfast", why="")


def _with_open(cluster: Cluster, name: str, known: HostTotals, until: float) -> HostTotals:
    whole = HostTotals(known.since, known.up_ms.copy(), known.failures.copy(), known.kinds, 0, 0)
    for each in open_time(cluster.hosts[name], round(until * 1000)):
        host_rows.add(whole, each.what, each.busy, 0, each.end - each.start)
    return whole


@dataclass(frozen=True)
class Score:
    """What was said of all lemons of several fleets, from a day on."""

    precision: float
    """Of hosts that were ever named in all days, how many are lemons."""
    recall: float
    """Of all lemons, how many were named by then."""


def score(fleets: list[Fleet], by_day: int) -> Score:
    """Sum up fleets that have lemons."""
    named = sum(len(each.named) for each in fleets)
    right = sum(len(each.named.keys() & each.lemons) for each in fleets)
    early = sum(1 for each in fleets for name, day in each.named.items() if name in each.lemons and day <= by_day)
    return Score(right / named if named else 1.0, early / sum(len(each.lemons) for each in fleets))


def best_recall(hosts: int, times: float, days: int, fleets: int = 4_000, mtbf_days: float = MTBF_DAYS) -> float:
    """The share of lemons that a judge names who knows both rates, within ``days``.

    It names a host once the likelihood ratio of its failures is above the number of hosts over 5 %: no test that looks
    as often and has a sound host named in at most 5 % of fleets names lemons sooner on average (Wald; Ville's bound).
    """
    rng, least, named = random.Random(0), math.log(hosts / 0.05), 0
    for _ in range(fleets):
        at, ratio = 0.0, 0.0
        while ratio < least:
            step = rng.expovariate(times / mtbf_days)
            at += step
            if at > days:
                break
            ratio += math.log(times) - (times - 1) * step / mtbf_days
        named += ratio >= least
    return named / fleets


def main() -> None:
    """Print precision, recall, and how many fleets without lemons have a host named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--fleets", type=int, default=20)
    parser.add_argument("--null", type=int, default=100)
    parser.add_argument("--times", type=float, action="append", help="how often lemons fail; may be repeated")
    asked = parser.parse_args()
    for times in asked.times or (5.0, 10.0, 20.0):
        lemons = max(1, asked.hosts // 100)
        fleets = [simulate(seed, asked.hosts, lemons, asked.days, times) for seed in range(asked.fleets)]
        found = score(fleets, 28)
        by_60 = score(fleets, asked.days)
        print(
            f"{asked.fleets} fleets of {asked.hosts} hosts, {lemons} lemons that fail {times:g} times as often:"
            f" precision {found.precision:.1%}, recall {found.recall:.1%} after 28 days,"
            f" {by_60.recall:.1%} after {asked.days}; a judge who knows both rates:"
            f" {best_recall(asked.hosts, times, 28):.1%} and {best_recall(asked.hosts, times, asked.days):.1%}",
            flush=True,
        )
    for mtbf in (MTBF_DAYS, 15.0):
        null = [simulate(1_000 + seed, asked.hosts, 0, asked.days, 1.0, mtbf) for seed in range(asked.null)]
        wrong = sum(bool(each.named) for each in null)
        print(f"{asked.null} fleets without lemons, MTBF {mtbf:g} d: a host was named in {wrong}", flush=True)


if __name__ == "__main__":
    main()
