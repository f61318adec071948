"""A standby that follows the log: it has what a cold start reads, whatever the leader does to the log meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_store import commit, folded, record, records
from tests.integration.controller.store.test_sweep import deleted, life
from tests.scenarios.invariants import durable
from tests.sim import generator
from tests.sim.run import attempt
from tests.support.postgres import Server
from tests.unit.controller.examples import EVENTS

from holdfast.errors import StoreError
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.accounts.users import People
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Answer, Cluster
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.actions import ForgetJob, KeepAnswer
from holdfast_controller.shell.store import codec, meta_rows
from holdfast_controller.shell.store import load as load_module
from holdfast_controller.shell.store.following import Follower
from holdfast_controller.shell.store.load import load
from holdfast_controller.shell.store.records import Record, row_of
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")
SEEDS = (1, 2, 3)


@pytest.fixture
def made(postgres_server: Server, tmp_path: Path) -> Iterator[InPostgres]:
    postgres_server.sql("CREATE DATABASE following")
    yield InPostgres(tmp_path / "state/postgresql", postgres_server, "following")
    postgres_server.sql("DROP DATABASE following WITH (FORCE)")


class Pair:
    """A store that a controller leads with, and a standby's follower on a connection of its own."""

    def __init__(self, place: InPostgres, tmp_path: Path) -> None:
        self.store = Store(place.engine())
        self.state: Cluster = self.store.call(self.store.open).result()
        self.other: Any = place.other(tmp_path / "other")
        self.other.connect()
        self.follower = Follower("it")

    def commit(self, batch: list[Record]) -> None:
        """The leader's, which knows the events; its own state is folded as a controller's is."""
        commit(self.store, batch)
        for each in batch:
            fold(self.state, codec.load_event(each.type, each.version, each.payload))

    def snapshot(self) -> None:
        state = self.state
        whole: list[Job | Host | People] = [*state.jobs.values(), *state.hosts.values(), state.people]
        entities = [(codec.name_of(each), codec.dump_entity(each)) for each in whole]
        entities.append((codec.name_of(state.shares), codec.dump_entity(state.shares)))
        self.store.call(self.store.snapshot, state.sequence, entities, heads_of(state.jobs.values())).result()

    def look(self) -> None:
        self.other.takeover.look(lambda: self.follower.look(self.other.connection), {})

    def taken(self) -> tuple[Cluster, int] | None:
        with self.other.connection.begin():
            return self.follower.taken(self.other.connection)

    def cold(self) -> tuple[Cluster, int]:
        with self.other.connection.begin():
            return load(self.other.connection, "it", whole=True)

    def same_as_cold(self) -> bool:
        warm, cold = self.taken(), self.cold()
        assert warm is not None, "it was loaded anew"
        return everything(*warm) == everything(*cold)

    def close(self) -> None:
        self.other.close(0)
        self.store.close()


def everything(cluster: Cluster, snapshot_sequence: int) -> tuple[object, ...]:
    return (*durable(cluster), cluster.answers, cluster.gaps, cluster.bookings, snapshot_sequence)


@pytest.fixture
def pair(made: InPostgres, tmp_path: Path) -> Iterator[Pair]:
    both = Pair(made, tmp_path)
    yield both
    both.close()


def of_a_simulation(seed: int) -> list[Record]:
    """The log of a simulated cluster with its faults, as a store takes it; up to where a restore leaves numbers out."""
    world, problem = attempt(generator.draw(seed))
    assert problem is None
    log = [record(each.sequence, each.event) for each in world.database.log]
    return [each for number, each in enumerate(log, 1) if each.sequence == number]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_standby_has_what_a_cold_start_reads_though_the_log_is_snapshot_and_compacted(
    seed: int, pair: Pair
) -> None:
    dice, log = Random(seed), of_a_simulation(seed)
    assert len(log) > 20
    while log:
        size = dice.randint(1, max(1, len(log) // 3))
        pair.commit(log[:size])
        del log[:size]
        if dice.random() < 0.7:
            pair.look()
        if dice.random() < 0.4:
            pair.snapshot()
            while pair.store.call(pair.store.sweep, dice.choice((0.0, 1e12))).result():
                pass
    pair.look()
    assert pair.same_as_cold()


def test_what_was_committed_since_the_last_look_is_there_with_its_answers(pair: Pair) -> None:
    pair.commit(records(EVENTS[:2]))
    pair.look()
    answer = KeepAnswer("ann", "r1", Answer("d", "job-1"))
    pair.store.call(pair.store.commit, records(EVENTS[2:], 3), [answer]).result()
    warm = pair.taken()
    assert warm is not None and durable(warm[0]) == durable(folded(EVENTS))
    assert warm[0].answers == {("ann", "r1"): Answer("d", "job-1")}
    assert pair.taken() is None, "it is given away once"


def test_the_end_of_the_log_that_was_dropped_before_a_look_is_not_missing(pair: Pair) -> None:
    pair.commit(records([*life("a", 1.0), *life("b", 1.0)]))
    pair.look()
    end = records(deleted("a", 2.0), pair.state.sequence + 1)
    pair.commit(end)
    forgotten = [ForgetJob("a", purged=False), ForgetJob("a", purged=True)]
    pair.store.call(pair.store.commit, [], forgotten).result()
    pair.snapshot()
    while pair.store.call(pair.store.sweep, 0.0).result():
        pass
    assert pair.cold()[0].sequence == pair.state.sequence
    assert pair.taken() is None, "taking over loads it"
    pair.look()
    assert pair.same_as_cold()


def cut(made: InPostgres) -> None:
    """A replica was promoted that lacks the end."""
    made.sql("DELETE FROM events WHERE sequence > 2")


def replaced(made: InPostgres) -> None:
    """The same, and another controller has gone on from there."""
    cut(made)
    for each in records([replace(event, at=Wall(event.at + 1.0)) for event in EVENTS[2:]], 3):
        made.sql(f"INSERT INTO events VALUES ({', '.join('?' * 9)})", *row_of(each))


@pytest.mark.parametrize("change", [cut, replaced])
def test_a_log_that_is_not_the_one_that_was_followed_is_read_from_its_beginning(
    change: Callable[[InPostgres], None], pair: Pair, made: InPostgres
) -> None:
    pair.commit(records())
    pair.look()
    change(made)
    assert pair.taken() is None, "taking over loads it"
    pair.look()
    assert pair.same_as_cold()
    pair.look()
    change(made)
    pair.look()
    assert pair.same_as_cold()


def test_a_log_that_it_cannot_read_is_left_to_the_takeover_which_says_why(pair: Pair, made: InPostgres) -> None:
    pair.commit(records(EVENTS[:2]))
    pair.look()
    newer = replace(record(3, EVENTS[2]), type="OfANewerVersion")
    made.sql(f"INSERT INTO events VALUES ({', '.join('?' * 9)})", *row_of(newer))
    pair.look()
    pair.look()
    assert pair.taken() is None
    with pytest.raises(StoreError, match="was written by a newer version: it holds OfANewerVersion"):
        pair.cold()


def test_a_standby_cannot_write(pair: Pair) -> None:
    with pytest.raises(sa.exc.DBAPIError, match="read-only transaction"):
        pair.other.takeover.look(lambda: meta_rows.write(pair.other.connection, "epoch", "99"), {})


def test_a_look_that_was_cut_short_leaves_nothing_half_folded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.commit(records(EVENTS[:2]))
    pair.look()
    pair.commit(records(EVENTS[2:], 3))

    def cut_short(database: sa.Connection, cluster: Cluster, name: str) -> None:
        fold(cluster, EVENTS[2])
        raise sa.exc.OperationalError("SELECT", (), Exception("the server is gone"))

    with monkeypatch.context() as patched:
        patched.setattr(load_module, "fold_the_rest", cut_short)
        with pytest.raises(sa.exc.DBAPIError):
            pair.look()
    assert pair.taken() is None
    pair.look()
    assert pair.same_as_cold()
