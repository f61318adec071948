"""Notifications: what happens to jobs reaches real HTTP endpoints, and no endpoint holds anything up."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.integration.controller.cluster import Agent, Certificates, Controller, job, refusal
from tests.integration.controller.endpoint import OPENED, Endpoint, endpoint
from tests.support.stubs import access_stub, cluster_stub, host_stub, job_stub
from tests.unit.controller.examples import EVENTS

from holdfast.v1 import access_pb2, cluster_pb2, host_pb2, job_pb2, job_pb2_grpc, spec_pb2
from holdfast_controller.core import outbox
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.base.config import ChannelConfig, ControllerConfig
from holdfast_controller.shell.driver import Driver, Observers
from holdfast_controller.shell.main.server import serve
from holdfast_controller.shell.notify import sender as delivering
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.notify.outbox_store import OutboxStore
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.store import Store

WITHIN_S = 180.0
SECRET = "s3cret"


@contextlib.asynccontextmanager
async def serving(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Controller]:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        served = tasks.create_task(serve(config, ready.set_result))
        async with asyncio.timeout(WITHIN_S):
            controller = Controller(await ready, certificates)
        yield controller
        await controller.close()
        served.cancel()


def telling(config: ControllerConfig, *channels: ChannelConfig, **more: Any) -> ControllerConfig:
    """Jobs may name every endpoint that is open by now."""
    hosts = tuple(f"127.0.0.1:{port}" for port in OPENED)
    return dataclasses.replace(config, notifications=channels, notification_hosts=hosts, **more)


async def deliveries(controller: Controller, user: str) -> cluster_pb2.Deliveries:
    """What a user's status page has of notifications."""
    stub = cluster_stub(controller.channel(user))
    return (await stub.GetStatus(cluster_pb2.GetStatusRequest(), timeout=WITHIN_S)).deliveries


def jobs_of(controller: Controller) -> job_pb2_grpc.JobServiceAsyncStub:
    return job_stub(controller.channel("user/ann"))


async def create(jobs: Any, wanted: job_pb2.CustomJob) -> job_pb2.CustomJob:
    return (await jobs.CreateJob(job_pb2.CreateJobRequest(job=wanted))).job  # type: ignore[no-any-return]


def was_run(job_id: str, agent: Agent) -> bool:
    return "RUN" in agent.phases(job_id)


def telling_job(name: str, *receivers: str | Endpoint, **fields: Any) -> job_pb2.CustomJob:
    wanted = job(name, **fields)
    for one in receivers:
        named: dict[str, Any] = {"channel": one} if isinstance(one, str) else {"url": one.url}
        wanted.job_spec.notifications.append(spec_pb2.Notification(**named))
    return wanted


async def cancelled(jobs: Any, name: str) -> str:
    """The id of a job that was submitted and is over."""
    made = await create(jobs, job(name))
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=made.id))
    await ended(jobs, made.id)
    return made.id


async def ended(jobs: Any, job_id: str) -> list[job_pb2.WatchJobResponse]:
    """The history of a job, once it has ended."""
    async with asyncio.timeout(WITHIN_S):
        return [event async for event in jobs.WatchJob(job_pb2.WatchJobRequest(id=job_id))]


async def test_a_job_s_life_is_told_and_no_secret_with_it(
    config: ControllerConfig, certificates: Certificates, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("DEBUG")
    async with endpoint() as hook, endpoint() as ops:
        everything = ChannelConfig("ops", ops.url, ("STARTED", "CANCELLED"))
        async with serving(telling(config, everything), certificates) as controller:
            jobs = jobs_of(controller)
            async with controller.agent() as agent:
                made = await create(jobs, telling_job("train", hook, labels={"team": "x"}))
                await agent.until(lambda a: a.phases(made.id) == ["PREPARE", "RUN"])
                await hook.until(lambda h: h.events() == ["STARTED"])
                await agent.exit(made.id, 1)
                await hook.until(lambda h: h.events() == ["STARTED", "RESTARTED", "RECOVERED"])
                await agent.exit(made.id, 0, generation=2)
                await hook.until(lambda h: h.events()[3:] == ["COMPLETED"])
                other = await create(jobs, job("other"))
                await agent.until(lambda a: "RUN" in a.phases(other.id))
                await ops.until(lambda h: h.events() == ["STARTED", "STARTED"])
                await jobs.CancelJob(job_pb2.CancelJobRequest(id=other.id))
                await ops.until(lambda h: h.events()[2:] == ["CANCELLED"])
            history = await ended(jobs, made.id)
            shown = str((await jobs.GetJob(job_pb2.GetJobRequest(id=made.id))).job)
            assert "http://127.0.0.1:" in shown and "/***" in shown
            orders = str(agent.said)
    first = hook.got[0]
    assert first["schema"] == "holdfast.notification.v1"
    assert first["job"] | {"attempt": 1} == {
        "id": made.id,
        "displayName": "train",
        "project": "default",
        "owner": "ann",
        "labels": {"team": "x"},
        "state": "JOB_STATE_RUNNING",
        "attempt": 1,
        "generation": 1,
    }
    assert len({body["id"] for body in hook.got}) == 4
    assert [headers["idempotency-key"] for headers in hook.headers] == [body["id"] for body in hook.got]
    assert hook.got[3]["job"]["state"] == "JOB_STATE_SUCCEEDED"
    assert ops.got[0]["id"] == first["id"]
    assert SECRET not in shown + orders + str(history) + caplog.text
    assert any(SECRET in str(record.payload) for record in _log(config)), "it has to be kept somewhere"


def _log(config: ControllerConfig) -> list[Any]:
    store = Store(config.database)
    try:
        store.call(store.open).result()
        found: list[Any] = store.call(store.read_types, ("JobSubmitted",), 0, 100).result()
        return found
    finally:
        store.close()


async def test_expiry_drain_and_preemption_are_told(config: ControllerConfig, certificates: Certificates) -> None:
    async with endpoint() as hook, serving(telling(config), certificates) as controller:
        jobs = jobs_of(controller)
        hosts = host_stub(controller.channel("user/ann"))
        waiting = telling_job("waiting", hook)
        waiting.job_spec.scheduling.max_wait_duration.FromMilliseconds(1)
        await create(jobs, waiting)
        await hook.until(lambda h: h.events() == ["EXPIRED"])
        async with controller.agent(gpus=2) as agent, controller.agent("host-1", gpus=2):
            failing = telling_job("failing", hook)
            failing.job_spec.scheduling.disable_retries = True
            made = await create(jobs, failing)
            place = made.workers[0].host
            assert place in ("host-0", "host-1")
            spot = telling_job("spot", hook, gpus=2)
            spot.job_spec.scheduling.strategy = spec_pb2.SCHEDULING_STRATEGY_SPOT
            await create(jobs, spot)
            await hook.until(lambda h: h.events().count("STARTED") == 2)
            await hosts.Drain(host_pb2.DrainRequest(name=place, reason="x", deadline=Duration(seconds=0)))
            await hook.until(lambda h: "DRAINED" in h.events() or "PREEMPTED" in h.events())
            await hosts.Uncordon(host_pb2.UncordonRequest(name=place))
            await create(jobs, job("urgent", gpus=2, replicas=1))
            await create(jobs, job("urgent-too", gpus=2, replicas=1))
            await hook.until(lambda h: "DRAINED" in h.events() and "PREEMPTED" in h.events())
            assert agent.over is False


async def test_a_history_that_nobody_was_told_of_is_told_by_the_next_controller(tmp_path: Path) -> None:
    store = Store(tmp_path / "holdfast.db")
    try:
        cluster = store.call(store.open).result()
        store.call(OutboxStore(store).open).result()
        records = []
        for event in EVENTS:
            fold(cluster, event)
            name = codec.stored_name(type(event))
            job_ = cluster.jobs.get(getattr(event, "job_id", ""))
            state, message = (job_.state.name if job_ else ""), message_of(event, job_)
            values = (codec.VERSIONS[name], event.at, state, message, codec.dump_event(event))
            records.append(Record(cluster.sequence, codec.entity_of(event), name, *values))
        store.call(store.commit, records).result()
        kinds = ("STARTED", "RESTARTED", "RECOVERED", "HANGED", "CANCELLED")
        async with endpoint() as hook, asyncio.TaskGroup() as tasks:
            driver = Driver(store, cluster, Policies())
            channels = Channels((ChannelConfig("ops", hook.url, kinds),))
            sender = Dispatcher(driver, channels, "test", 60)
            driver.start(observers=Observers(published=sender.on_published))
            running = [tasks.create_task(driver.run()), tasks.create_task(sender.run())]
            await hook.until(lambda h: h.events()[-1:] == ["CANCELLED"])
            for task in running:
                task.cancel()
        assert hook.events().count("HANGED") == 3 and set(hook.events()) == set(kinds)
        hanged = hook.got[hook.events().index("HANGED")]
        assert hanged["message"] == (
            "possible hang (GPUS_IDLE): no rank has moved for 31 s; nothing is done about it without"
            " --restart-on-hang; relaunch it with: holdfast job restart a"
        )
        assert hook.got[-1]["summary"] == {
            "condition": "JOB_CONDITION_ENDED",
            "health": "Cancelled after 8 s: rank 1",
            "happened": "rank 1; before that, 4 interruptions",
            "done": "Placed again in part, with its other workers kept where they are, as generation 5",
            "advice": "Nothing; submit it again with: holdfast job rerun a",
        }
        assert [body["id"] for body in hook.got] == sorted({body["id"] for body in hook.got}, key=_number)
    finally:
        await asyncio.to_thread(store.close)


def _number(id_: str) -> int:
    return int(id_.rpartition(".")[2])


async def test_endpoints_that_are_dead_silent_or_broken_hold_nobody_up(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "WEBHOOK_S", 0.5)
    async with endpoint() as dead:
        pass
    async with (
        endpoint(status=500) as broken,
        endpoint(silent=True) as silent,
        endpoint(status=302) as elsewhere,
        endpoint() as well,
        serving(telling(config), certificates) as controller,
        controller.agent(gpus=2) as agent,
    ):
        jobs = jobs_of(controller)
        made = await create(jobs, telling_job("train", dead, broken, silent, elsewhere))
        fine = await create(jobs, telling_job("fine", well))
        for each in (made, fine):
            await agent.until(partial(was_run, each.id))
            await agent.exit(each.id, 0)
            assert (await ended(jobs, each.id))[-1].type == "JobEnded"
        await well.until(lambda h: h.events() == ["STARTED", "COMPLETED"])
        # All of them are tried again, with the same piece of news under the same id.
        for one in (broken, silent, elsewhere):
            await one.until(lambda h: len(h.got) > 1)
            assert one.got[0] == one.got[1]
        broken.status = 200
        await broken.until(lambda h: h.events()[-1] == "COMPLETED")


async def test_a_user_whose_notifications_fill_the_outbox_keeps_out_no_one_else_s(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_ENTRIES", 6)
    async with (
        endpoint(silent=True) as first,
        endpoint(silent=True) as second,
        endpoint(silent=True) as third,
        endpoint() as well,
        serving(telling(config, admins=("ann",)), certificates) as controller,
        controller.agent(gpus=2) as agent,
    ):
        jobs = jobs_of(controller)
        people = access_stub(controller.channel("user/ann"))
        grant = access_pb2.Grant(project="default", role=access_pb2.ROLE_USER)
        await people.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)
        made = await create(jobs, telling_job("train", first, second, third))
        await agent.until(partial(was_run, made.id))
        await agent.exit(made.id, 0)
        await ended(jobs, made.id)
        async with asyncio.timeout(WITHIN_S):
            while (await deliveries(controller, "user/ann")).waiting < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        fine = await create(job_stub(controller.channel("user/bob")), telling_job("fine", well))
        await agent.until(partial(was_run, fine.id))
        await well.until(lambda h: h.events() == ["STARTED"])
        history = [event.message for event in await ended(jobs, made.id)]
    assert any("too many notifications wait" in message for message in history)


async def test_who_cannot_be_reached_for_long_is_given_up_and_the_job_s_history_says_so(
    config: ControllerConfig, certificates: Certificates
) -> None:
    async with endpoint(status=500) as hook:
        channel = ChannelConfig("ops", hook.url, ("FAILED",))
        settings = telling(config, channel, notification_retry_for=0.5, admins=("ann",))
        async with serving(settings, certificates) as controller:
            jobs = jobs_of(controller)
            async with controller.agent() as agent:
                wanted = job("train")
                wanted.job_spec.scheduling.disable_retries = True
                made = await create(jobs, wanted)
                await agent.until(lambda a: "RUN" in a.phases(made.id))
                await agent.exit(made.id, 3)
                async with asyncio.timeout(WITHIN_S):
                    # Nobody rings for a history that has ended.
                    while (history := await ended(jobs, made.id))[-1].type != "NotificationGivenUp":  # noqa: ASYNC110
                        await asyncio.sleep(0.2)
            people = access_stub(controller.channel("user/ann"))
            grant = access_pb2.Grant(project="vision", role=access_pb2.ROLE_VIEWER)
            await people.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)
            told = [await deliveries(controller, name) for name in ("user/ann", "user/bob")]
    assert [(each.delivered, each.waiting) for each in told] == [(0, 0)] * 2
    (given_up,) = told[0].given_up
    assert (given_up.to, given_up.count, given_up.reason) == ("ops", 1, "it answered with HTTP status 500")
    assert not told[1].given_up, "of receivers only those who see all projects are told"
    assert history[-1].message == "notification FAILED to ops failed: it answered with HTTP status 500"
    assert hook.events()[0] == "FAILED" and "non-zero status of 3" in hook.got[0]["message"]


async def test_what_was_not_delivered_is_after_a_restart_and_what_was_is_not(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[OutboxEntry] = []
    drop = OutboxStore.drop

    def drop_and_note(store: OutboxStore, done: Collection[OutboxEntry]) -> None:
        drop(store, done)
        deleted.extend(done)

    monkeypatch.setattr(OutboxStore, "drop", drop_and_note)
    async with endpoint(status=500) as hook, endpoint() as well:
        channels = (ChannelConfig("ops", hook.url, ("CANCELLED",)), ChannelConfig("dev", well.url, ("CANCELLED",)))
        async with serving(telling(config, *channels), certificates) as controller:
            jobs = jobs_of(controller)
            made = await create(jobs, job("train"))
            await jobs.CancelJob(job_pb2.CancelJobRequest(id=made.id))
            await hook.until(lambda h: h.got)
            await well.until(lambda h: h.got)
            # What was delivered is deleted a moment after the answer; one that stops before tells it again.
            async with asyncio.timeout(WITHIN_S):
                while not deleted:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        hook.status = 200
        async with serving(telling(config, *channels), certificates) as controller:
            tries = len(hook.got)
            await hook.until(lambda h: len(h.got) > tries)
            # In order: whatever were told to "dev" again would come before this.
            other = await cancelled(jobs_of(controller), "other")
            await well.until(lambda h: h.got[-1]["job"]["id"] == other)
            assert [body["job"]["id"] for body in well.got] == [made.id, other]
            await hook.until(lambda h: h.got[-1]["job"]["id"] == other)
        hook.got.pop()
    assert {json.dumps(body, sort_keys=True) for body in hook.got} == {json.dumps(hook.got[0], sort_keys=True)}


async def test_a_new_channel_is_not_told_of_what_was_over_before(
    config: ControllerConfig, certificates: Certificates
) -> None:
    async with endpoint() as hook:
        async with serving(telling(config), certificates) as controller:
            await cancelled(jobs_of(controller), "before")
        async with serving(
            telling(config, ChannelConfig("ops", hook.url, ("CANCELLED",))), certificates
        ) as controller:
            after = await cancelled(jobs_of(controller), "after")
            await hook.until(lambda h: h.got)
    assert [body["job"]["id"] for body in hook.got] == [after]


async def test_job_may_name_neither_hosts_nor_channels_that_nobody_allowed(
    controller: Controller,
) -> None:
    wanted = job("train")
    wanted.job_spec.notifications.add(url=f"http://169.254.169.254/{SECRET}")
    wanted.job_spec.notifications.add(channel="ops")
    code, error = await refusal(jobs_of(controller).CreateJob(job_pb2.CreateJobRequest(job=wanted)))
    assert code.name == "INVALID_ARGUMENT"
    assert "notifications[0].url" in str(error) and "notifications[1].channel" in str(error)
    assert SECRET not in str(error)
