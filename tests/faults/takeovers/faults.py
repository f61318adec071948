"""Kinds of faults of a site with two controllers. Each begins, lasts for a while, and is mended."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tests.faults.takeovers.site import CONTROLLERS, HOSTS, SERVERS, Site
from tests.support.fake_clock.library import DAY_S

Fault = Callable[[Site, random.Random], AbstractContextManager[None]]
FROZEN_S, SHORT_S = 30.0, 6.0


@contextmanager
def killed(site: Site, _: random.Random, who: Callable[[Site], list[str]], how: signal.Signals) -> Iterator[None]:
    """Daemons end by a signal, and are started again at once."""
    for name in who(site):
        site.signal(name, how)
    yield


@contextmanager
def stopped(site: Site, _: random.Random, who: Callable[[Site], list[str]], for_s: float) -> Iterator[None]:
    """Daemons stand still for a time."""
    names = who(site)
    for name in names:
        site.signal(name, signal.SIGSTOP)
    yield
    time.sleep(for_s)
    for name in names:
        site.signal(name, signal.SIGCONT)


@contextmanager
def cut(
    site: Site, _: random.Random, ways: Callable[[Site], list[tuple[str, str]]], for_s: float = 12.0
) -> Iterator[None]:
    """What one machine sends another one is lost for a time, for each pair of sender and receiver."""
    pairs = ways(site)
    for sender, receiver in pairs:
        site.network.cut(sender, receiver)
    yield
    time.sleep(for_s)
    for sender, receiver in pairs:
        site.network.mend(sender, receiver)


@contextmanager
def unplugged(site: Site, _: random.Random, who: Callable[[Site], str], for_s: float = 12.0) -> Iterator[None]:
    """Nothing leaves or reaches a machine for a time."""
    name = who(site)
    site.network.unplug(name)
    yield
    time.sleep(for_s)
    site.network.plug(name)


@contextmanager
def clock_jumps(site: Site, random_: random.Random) -> Iterator[None]:
    """The wall clock of the controller that leads is set a day forward or back, and later to what it was."""
    clock, by = site.clocks[site.leader], random_.choice((DAY_S, -DAY_S))
    clock.jump(by)
    yield
    time.sleep(SHORT_S)
    clock.jump(0)


@contextmanager
def database_restarts(site: Site, _: random.Random) -> Iterator[None]:
    """The server that takes writes loses its power, and is there again at once."""
    servers = site.databases
    servers.kill(servers.primary)
    servers.start(servers.primary)
    yield
    servers.in_step()


@contextmanager
def database_fails_over(site: Site, _: random.Random) -> Iterator[None]:
    """The server that takes writes loses its power, the replica takes over, and a new one follows it."""
    servers = site.databases
    servers.kill(servers.primary)
    servers.promote()
    yield
    servers.follow()


@contextmanager
def database_stands_still(site: Site, _: random.Random) -> Iterator[None]:
    """The server that takes writes is frozen."""
    primary = site.databases.primary
    site.databases.signal(primary, signal.SIGSTOP)
    yield
    time.sleep(SHORT_S)
    site.databases.signal(primary, signal.SIGCONT)


@contextmanager
def replica_is_lost(site: Site, _: random.Random) -> Iterator[None]:
    """The synchronous replica loses its power: no commit ends until it is there again."""
    servers = site.databases
    servers.kill(servers.replica)
    time.sleep(SHORT_S)
    servers.start(servers.replica)
    yield
    servers.in_step()


@contextmanager
def database_drops_all(site: Site, _: random.Random) -> Iterator[None]:
    """Every connection of the database is ended by its server."""
    site.databases.asked(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'holdfast%'"
    )
    yield


def leader(site: Site) -> list[str]:
    """The controller that leads."""
    return [site.leader]


def standby(site: Site) -> list[str]:
    """The controller that stands by."""
    return [site.standby]


def both(_: Site) -> list[str]:
    """Both controllers."""
    return list(CONTROLLERS)


def from_database(site: Site) -> list[tuple[str, str]]:
    """From the controller that leads to both servers, and back."""
    return [way for server in SERVERS for way in ((site.leader, server), (server, site.leader))]


def to_database(site: Site) -> list[tuple[str, str]]:
    """From the controller that leads to both servers."""
    return [(site.leader, server) for server in SERVERS]


def answers_of_database(site: Site) -> list[tuple[str, str]]:
    """From both servers to the controller that leads."""
    return [(server, site.leader) for server in SERVERS]


def to_hosts(site: Site) -> list[tuple[str, str]]:
    """From the controller that leads to all hosts."""
    return [(site.leader, host) for host in HOSTS]


def of_hosts(site: Site) -> list[tuple[str, str]]:
    """From all hosts to the controller that leads."""
    return [(host, site.leader) for host in HOSTS]


def between_servers(site: Site) -> list[tuple[str, str]]:
    """Between the servers: no commit ends meanwhile."""
    return [SERVERS, SERVERS[::-1]]


KINDS: dict[str, Fault] = {
    "leader killed": partial(killed, who=leader, how=signal.SIGKILL),
    "leader told to end": partial(killed, who=leader, how=signal.SIGTERM),
    "standby killed": partial(killed, who=standby, how=signal.SIGKILL),
    "both killed": partial(killed, who=both, how=signal.SIGKILL),
    "leader frozen for 30 s": partial(stopped, who=leader, for_s=FROZEN_S),
    "leader frozen for 6 s": partial(stopped, who=leader, for_s=SHORT_S),
    "standby frozen": partial(stopped, who=standby, for_s=FROZEN_S),
    "leader cut from the database": partial(cut, ways=from_database),
    "leader's words to the database lost": partial(cut, ways=to_database),
    "the database's words to the leader lost": partial(cut, ways=answers_of_database),
    "leader's words to hosts lost": partial(cut, ways=to_hosts, for_s=10.0),
    "hosts' words to the leader lost": partial(cut, ways=of_hosts, for_s=10.0),
    "leader unplugged": partial(unplugged, who=lambda site: site.leader),
    "standby unplugged": partial(unplugged, who=lambda site: site.standby),
    "leader's clock set": clock_jumps,
    "database restarts": database_restarts,
    "database fails over": database_fails_over,
    "database frozen": database_stands_still,
    "replica lost": replica_is_lost,
    "servers cut from each other": partial(cut, ways=between_servers, for_s=8.0),
    "connections to the database ended": database_drops_all,
    "agent killed": partial(killed, who=lambda _: ["h0"], how=signal.SIGKILL),
}


def chosen(seed: int, count: int) -> list[str]:
    """So many kinds in a random order: every second one kills the leader, and the others come up in turn."""
    random_ = random.Random(seed)
    others: list[str] = []
    found = []
    for number in range(count):
        if number % 2 == 0:
            found.append("leader killed")
            continue
        if not others:
            others = [name for name in KINDS if name != "leader killed"]
            random_.shuffle(others)
        found.append(others.pop())
    return found
