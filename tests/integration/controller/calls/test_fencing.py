"""One writer: whatever an old controller still does after another took over, none of it lands."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa
from tests.integration.controller.cluster import WITHIN_S, Agent, job, refusal
from tests.integration.controller.process import Process, ended, stub
from tests.integration.controller.store.places import Place
from tests.integration.controller.store.test_store import commit, opened, record, records
from tests.support.stubs import agent_stub, host_stub
from tests.unit.controller.examples import EVENTS

from holdfast._base import failpoints
from holdfast.errors import StoreError
from holdfast.v1 import agent_pb2, host_pb2, job_pb2
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.shell.backup import accept_loss
from holdfast_controller.shell.enrolment.issued import IssuedCertificates
from holdfast_controller.shell.notify.outbox_store import OutboxStore
from holdfast_controller.shell.store.databases.engine import Deposed
from holdfast_controller.shell.store.schema import certificates
from holdfast_controller.shell.store.store import Store


def test_store_that_was_replaced_under_its_controller_is_written_by_the_new_one_only(path: Path) -> None:
    old, _ = opened(path)
    try:
        commit(old, records())
        # As a restored backup does: the old controller's locks are on files that nobody finds any more.
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, file.with_suffix(".copy"))
            file.with_suffix(".copy").replace(file)
        new, cluster = opened(path)
        try:
            assert (cluster.sequence, cluster.epoch) == (len(records()), old.epoch + 1)
            with pytest.raises(Deposed, match="moved or replaced under the controller"):
                commit(old, [record(cluster.sequence + 1, EVENTS[0])])
            with pytest.raises(Deposed, match="moved or replaced"):
                old.call(old.snapshot, cluster.sequence, []).result()
            commit(new, [record(cluster.sequence + 1, EVENTS[0])])
        finally:
            new.close()
    finally:
        old.close()


@pytest.mark.parametrize(
    "write",
    [
        lambda store: OutboxStore(store).keep(0, [OutboxEntry(1, "ops", "job-1", "JOB_FAILED", "{}")]),
        lambda store: OutboxStore(store).drop([]),
        lambda store: IssuedCertificates(store)._note(
            {"party": "host/host-0", "issued_at": 1.0, "issuer": "ca", "trusts": "ca"}
        ),
    ],
    ids=["notifications", "delivered notifications", "certificates"],
)
def test_a_controller_of_an_older_epoch_writes_nothing_beside_the_log(
    store: Store, write: Callable[[Store], None]
) -> None:
    store.epoch -= 1
    with pytest.raises(Deposed, match="taken over"):
        store.call(write, store).result()
    store.epoch += 1
    assert store.call(OutboxStore(store).open).result() == (0, [])
    assert store.transaction(lambda database: database.execute(sa.select(certificates)).all()) == []


def test_snapshots_of_an_older_epoch_are_refused_as_its_events_are(store: Store) -> None:
    store.epoch -= 1
    with pytest.raises(Deposed, match="taken over"):
        store.call(store.snapshot, 0, []).result()


@pytest.mark.parametrize(
    ("point", "landed"),
    [("controller.commit.before", 0), ("controller.commit.written", 0), ("controller.commit.after", 1)],
)
def test_commit_of_unknown_outcome_ends_its_controller_and_the_next_one_reads_what_became_of_it(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    landed: int,
) -> None:
    first, _ = opened(place)
    monkeypatch.setattr(failpoints, "_DIRECTORY", str(tmp_path))
    (tmp_path / point).write_text("error")
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            commit(first, records()[:1])
    finally:
        first.close()
    second, cluster = opened(place)
    second.close()
    assert cluster.sequence == landed


@pytest.mark.parametrize("point", ["controller.snapshot.before", "controller.snapshot.written"])
def test_snapshot_that_fails_leaves_the_one_before(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    first, _ = opened(place)
    monkeypatch.setattr(failpoints, "_DIRECTORY", str(tmp_path))
    try:
        commit(first, records())
        (tmp_path / point).write_text("error")
        with pytest.raises(StoreError, match="cannot be written"):
            first.call(first.snapshot, 3, [("host/h9", "{}")]).result()
    finally:
        first.close()
    second, cluster = opened(place)
    second.close()
    assert (cluster.sequence, second.snapshot_sequence) == (len(records()), 0)


async def test_second_controller_is_refused_while_the_first_is_stopped_and_that_goes_on_when_it_wakes(
    daemon: Process,
) -> None:
    first = daemon.start()
    controller = await daemon.ready(first)
    first.send_signal(signal.SIGSTOP)
    try:
        assert await ended(daemon.start()) == 1
    finally:
        first.send_signal(signal.SIGCONT)
    assert f"Another controller (pid {first.pid}) runs on " in daemon.log
    await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    await controller.close()


BEAT = agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat())


def beats(agent: Agent) -> int:
    return sum(message.WhichOneof("message") == "heartbeat_ack" for message in agent.said)


async def test_a_controller_whose_store_was_replaced_answers_no_heartbeat_and_ends(daemon: Process) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    async with controller.agent() as agent:
        await agent.call.write(BEAT)
        await agent.until(lambda a: beats(a) == 1)
        path = daemon.root / "state" / "holdfast.db"
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # whatever it does next ends it
            await agent.call.write(BEAT)
        await agent.until(lambda a: a.over)
        assert beats(agent) == 1
    assert await ended(process) == 1
    assert "was moved or replaced under the controller" in daemon.log
    await controller.close()


async def test_a_host_that_has_obeyed_a_later_epoch_is_turned_away_until_the_store_goes_on_beyond_it(
    daemon: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    call = agent_stub(controller.channel("host/host-0")).Session()
    await call.write(agent_pb2.SessionRequest(hello=agent_pb2.Hello(agent_version="1", boot_id="b", epoch=7)))
    code, error = await refusal(call.read())
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE")
    assert "host-0 has obeyed epoch 7 of its controller, and this store is at epoch 1." in str(error)
    hosts = host_stub(controller.channel("user/ann"))
    known = (await hosts.GetHost(host_pb2.GetHostRequest(name="host-0"), timeout=WITHIN_S)).host
    assert known.refused == str(error)
    await controller.close()
    process.send_signal(signal.SIGTERM)
    assert await ended(process) == 0
    settings = ["--config", str(daemon.root / "controller.toml")]
    assert await asyncio.to_thread(accept_loss.main, settings) == 1
    assert "has not lost its end. Start the controller. If it then turns hosts away" in capsys.readouterr().err
    assert await asyncio.to_thread(accept_loss.main, ["--set-back", *settings]) == 0
    assert "goes on without whatever came after it. Start the controller." in capsys.readouterr().out
    controller = await daemon.ready(daemon.start())
    async with controller.agent(epoch=7) as agent:
        await agent.until(lambda a: a.said)
        assert agent.said[0].welcome.epoch > 7
    await controller.close()
