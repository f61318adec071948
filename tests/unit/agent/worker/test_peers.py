"""Leases between the workers of a gang: who asks whom, what is reported, and that a silent peer has stopped."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.agent.desired import KEY, desired
from tests.unit.agent.worker.test_reactor import Agent

from holdfast._session.assignment import Assignment, Phase, Rendezvous
from holdfast._session.reports import ReportedState
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.peers import peers_of
from holdfast_agent.shell.prepare.launch_order import Means, launch_order
from holdfast_agent.shim.lease import GRACE_SHARE
from holdfast_agent.shim.peers import PeerBook

TERM_S = 12.0


def order(index: int, *pools: int, fence_s: float = TERM_S) -> Assignment:
    """Of a job with so many workers in each pool: what worker ``index`` is to run."""
    names = [(pool, replica) for pool, count in enumerate(pools) for replica in range(count)]
    addresses = tuple(
        tuple(f"10.0.{pool}.{n}:{20000 + n}" for n in range(count)) for pool, count in enumerate(pools)
    )
    wanted = desired(Phase.RUN)
    assert wanted.launch is not None
    pool, replica = names[index]
    meets = Rendezvous("10.0.0.0", 21000, "secret", addresses)
    launch = replace(wanted.launch, rendezvous=meets, pool=pool, replica=replica, worker_index=index)
    return replace(wanted, launch=launch, peer_fence_s=fence_s)


@pytest.mark.parametrize(
    ("count", "index", "asked"),
    [(2, 0, [1]), (2, 1, [0]), (3, 1, [0, 2]), (4, 3, [0, 1]), (8, 0, [1, 2, 4]), (8, 6, [0, 2, 7])],
)
def test_each_worker_asks_some_near_and_some_far(count: int, index: int, asked: list[int]) -> None:
    peers = peers_of(order(index, 1, count - 1))
    assert peers is not None
    assert [other for other, _ in peers.others] == asked


def test_a_thousand_workers_ask_ten_each_at_their_addresses() -> None:
    peers = peers_of(order(999, 1, 999))
    assert peers is not None
    assert len(peers.others) == 10
    assert (peers.index, peers.port, peers.secret) == (999, 20998, "secret")
    assert peers.others[0] == (0, "10.0.0.0:20000")
    assert peers.others[1] == (1, "10.0.1.0:20000")


def test_a_worker_alone_and_one_whose_job_keeps_its_hosts_have_no_deadline() -> None:
    assert peers_of(order(0, 1)) is None
    assert peers_of(order(0, 1, 1, fence_s=0.0)) is None


def test_what_the_shim_hears_nothing_of_is_reported_once_per_change() -> None:
    agent = Agent()
    agent.running()
    (told,) = agent.on(ev.PeersSilent(KEY, ((1, 1),)))
    assert isinstance(told, act.SendReport)
    assert (told.report.silent_peers, told.report.state) == (((1, 1),), ReportedState.RUNNING)
    assert agent.on(ev.PeersSilent(KEY, ((1, 1),))) == []
    agent.on(ev.Disconnected())
    assert agent.on(ev.PeersSilent(KEY, ())) == []
    (hello,) = agent.on(ev.Dialled())
    assert isinstance(hello, act.SendHello)
    assert hello.reports[0].silent_peers == ()


def test_what_a_dead_shim_has_said_of_its_peers_no_longer_counts() -> None:
    agent = Agent()
    agent.running()
    agent.on(ev.PeersSilent(KEY, ((1, 1),)))
    told = agent.on(ev.ShimLost(KEY))[-1]
    assert isinstance(told, act.SendReport)
    assert told.report.silent_peers == ()


def test_a_launch_carries_the_peers_and_a_deadline_only_with_them() -> None:
    agent = Agent()
    agent.prepared()
    agent.on(ev.ControllerHeard(500.0))
    run = order(0, 1, 1)
    (launched,) = [each for each in agent.on(ev.Assigned(run)) if isinstance(each, act.LaunchRanks)]
    assert (launched.fence_s, launched.fence_deadline_s, launched.peers) == (TERM_S, 512.0, peers_of(run))
    alone = Agent()
    alone.prepared()
    (launched,) = [each for each in alone.on(ev.Assigned(order(0, 1))) if isinstance(each, act.LaunchRanks)]
    assert (launched.fence_s, launched.peers) == (0.0, None)


def test_a_shim_of_an_earlier_release_finds_no_deadline_in_an_order_with_peers() -> None:
    """It would stop its ranks for want of the controller alone."""
    agent = Agent()
    agent.prepared()
    (launched,) = [each for each in agent.on(ev.Assigned(order(0, 1, 1))) if isinstance(each, act.LaunchRanks)]
    message = launch_order(launched, WorkerUser("ada", "/home/ada", "/bin/sh"), Means())
    assert "fence_s" not in message
    assert (message["peers"]["fence_s"], message["peers"]["others"]) == (TERM_S, ((1, "10.0.1.0:20000"),))


class Pair:
    """Two books and the ways between them; true time, and a clock for each that differs a little."""

    def __init__(self, rates: tuple[float, float]) -> None:
        orders = [
            asdict(act.Peers(index, 1, "secret", ((1 - index, f"10.0.0.{1 - index}:1"),))) for index in (0, 1)
        ]
        self.books = [PeerBook(each, 1, TERM_S) for each in orders]
        self.rates = rates
        self.now = 0.0
        self.stopped_at: list[float | None] = [None, None]
        self.under_way: list[tuple[float, int, bytes]] = []

    def clock(self, index: int) -> float:
        return 1000.0 * (index + 1) + self.now * self.rates[index]

    def tick(self, cut: tuple[bool, bool], late_s: float) -> None:
        """A tenth of a second; ``cut[i]``: nothing gets to book ``i``; what is sent takes ``late_s``."""
        self.now += 0.1
        for index, book in enumerate(self.books):
            if self.stopped_at[index] is None and self.clock(index) >= book.deadline:
                self.stopped_at[index] = self.now
                book.holds = False
            for other, data in book.ask(self.clock(index)):
                self.under_way.append((self.now + late_s, other, data))
        due = [each for each in self.under_way if each[0] <= self.now]
        self.under_way = [each for each in self.under_way if each[0] > self.now]
        for _, to, data in due:
            answer = None if cut[to] else self.books[to].take(data, self.clock(to))
            if answer:
                self.under_way.append((self.now + late_s, 1 - to, answer))


@settings(max_examples=150, deadline=None)
@given(
    spells=st.lists(
        st.tuples(st.booleans(), st.booleans(), st.floats(0.0, 20.0), st.integers(1, 200)), min_size=1, max_size=8
    ),
    rates=st.tuples(st.floats(0.97, 1.03), st.floats(0.97, 1.03)),
)
def test_a_peer_that_is_reported_silent_has_stopped_and_was_killed(
    spells: list[tuple[bool, bool, float, int]], rates: tuple[float, float]
) -> None:
    """Whichever ways are cut, however late datagrams come: by the time of the report its own grace is over."""
    pair = Pair(rates)
    for to_first, to_second, late_s, ticks in [(False, False, 0.0, 20), *spells, (True, True, 0.0, 300)]:
        for _ in range(ticks):
            pair.tick((to_first, to_second), late_s)
            for index, book in enumerate(pair.books):
                if book.silent(pair.clock(index)):
                    stopped = pair.stopped_at[1 - index]
                    assert stopped is not None, f"worker {1 - index} is reported silent, and runs"
                    killed = stopped + TERM_S / GRACE_SHARE / rates[1 - index]
                    assert killed <= pair.now + 1e-6, "its grace is not over"
    assert all(stopped is not None for stopped in pair.stopped_at), "two that never hear each other again"


def test_a_question_that_is_sent_again_hides_no_silence() -> None:
    pair = Pair((1.0, 1.0))
    for _ in range(20):
        pair.tick((False, False), 0.0)
    (question,) = [data for _, data in pair.books[1].ask(pair.clock(1) + TERM_S)]
    assert pair.books[0].take(question, pair.clock(0)) is not None

    later = pair.clock(0) + 2 * TERM_S
    pair.books[0].take(question, later)

    assert pair.books[0].silent(later) == [[1, 1]]


def test_no_cut_no_end() -> None:
    pair = Pair((0.97, 1.03))
    for _ in range(36_000):
        pair.tick((False, False), 0.05)
    assert pair.stopped_at == [None, None]
    assert [book.silent(pair.clock(index)) for index, book in enumerate(pair.books)] == [[], []]
