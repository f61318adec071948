"""Lists that are long, and whose entries are large: pages have a bound in bytes, and building one holds up no other."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.integration.controller.conftest import certificates, config, controller
from tests.support.stubs import access_stub, host_stub, job_stub, schedule_stub

from holdfast._daemon.loop_watch import STALL_S, LoopWatch, Stall
from holdfast.v1 import access_pb2, host_pb2, job_pb2, schedule_pb2, spec_pb2
from holdfast_controller.shell.calls import slices
from holdfast_controller.shell.calls.slices import Page, Turns, paged

__all__ = ["certificates", "config", "controller"]
pytestmark = pytest.mark.anyio


def wide(name: str) -> job_pb2.CustomJob:
    """A job of 80 KB that waits."""
    made = job(name)
    env = [spec_pb2.EnvVar(name=f"V{number}", value="x" * 800) for number in range(100)]
    made.job_spec.worker_pool_specs[0].process_spec.env.extend(env)
    return made


async def pages(call: Any, request: Any) -> list[Any]:
    found = []
    while True:
        found.append(await call(request, timeout=WITHIN_S))
        request.page_token = found[-1].next_page_token
        if not request.page_token:
            return found


async def test_a_page_of_large_jobs_ends_early_and_the_next_one_goes_on(controller: Controller) -> None:
    jobs = job_stub(controller.channel("user/ann"))
    made = []
    for number in range(15):
        created = await jobs.CreateJob(job_pb2.CreateJobRequest(job=wide(f"w{number}")), timeout=WITHIN_S)
        made.append(created.job.id)
    found = await pages(jobs.ListJobs, job_pb2.ListJobsRequest(page_size=1000))
    assert [one.id for page in found for one in page.jobs] == made
    assert len(found) > 1
    assert all(page.ByteSize() <= slices.PAGE_BYTES + 100 for page in found)
    newest = await pages(jobs.ListJobs, job_pb2.ListJobsRequest(page_size=1000, newest=True))
    assert [one.id for page in reversed(newest) for one in page.jobs] == made
    assert len(newest) > 1
    # A page with as many as were asked for has no other before it.
    whole = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=2, newest=True), timeout=WITHIN_S)
    assert [one.id for one in whole.jobs] == made[-2:] and not whole.next_page_token


async def test_the_largest_template_and_schedule_hold_up_nobody(controller: Controller) -> None:
    plans = schedule_stub(controller.channel("user/ann"))
    large = job("large")
    large.job_spec.worker_pool_specs[0].process_spec.args.extend([""] * 62_000)
    stalls: list[Stall] = []
    watch = LoopWatch(stalls.append)
    watch.start()
    try:
        template = schedule_pb2.CreateTemplateRequest(name="t", job=large)
        await plans.CreateTemplate(template, timeout=WITHIN_S)
        schedule = schedule_pb2.CreateScheduleRequest(name="s", cron="@daily", job=large)
        await plans.CreateSchedule(schedule, timeout=WITHIN_S)
        for _ in range(3):
            templates = await plans.ListTemplates(schedule_pb2.ListTemplatesRequest(name="t"), timeout=WITHIN_S)
            schedules = await plans.ListSchedules(schedule_pb2.ListSchedulesRequest(name="s"), timeout=WITHIN_S)
    finally:
        watch.stop()
    shown = [templates.templates[0].job, schedules.schedules[0].job]
    assert [len(each.job_spec.worker_pool_specs[0].process_spec.args) for each in shown] == [62_000] * 2
    assert [stall for stall in stalls if stall.cpu_s > STALL_S] == []


async def test_hosts_and_users_come_in_pages_where_a_size_is_asked_for(controller: Controller) -> None:
    channel = controller.channel("user/ann")
    async with controller.agent("host-0"), controller.agent("host-1"):
        hosts = host_stub(channel)
        found = await pages(hosts.ListHosts, host_pb2.ListHostsRequest(page_size=1))
        assert [[host.name for host in page.hosts] for page in found] == [["host-0"], ["host-1"]]
        whole = await hosts.ListHosts(host_pb2.ListHostsRequest(), timeout=WITHIN_S)
        assert len(whole.hosts) == 2 and not whole.next_page_token
    access = access_stub(channel)
    names = [f"u{number}" for number in range(5)]
    for name in names:
        grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_VIEWER)
        await access.AddUser(access_pb2.AddUserRequest(name=name, grant=grant), timeout=WITHIN_S)
    users = await pages(access.ListUsers, access_pb2.ListUsersRequest(page_size=3))
    assert set(names) <= {user.name for page in users for user in page.users}
    assert len(users[0].users) == 3


async def test_of_long_answers_one_at_a_time_has_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    monkeypatch.setattr(slices, "SHORT_S", -1.0)
    turns, begun = Turns(), []

    async def answer(name: str) -> None:
        mine = turns.begin()
        for _ in range(5):
            begun.append(name)
            await mine.rest()

    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(answer(name))
    assert begun[:3] == ["a", "b", "c"] and sorted(begun[3:6]) == ["a", "b", "c"]


async def test_short_answers_one_after_the_other_are_a_long_one_of_their_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    clock = {"thread_time": 0.0, "monotonic": 0.0}
    times = {name: partial(clock.__getitem__, name) for name in clock}
    monkeypatch.setattr(slices, "time", SimpleNamespace(**times))
    monkeypatch.setattr(slices, "asyncio", SimpleNamespace(Lock=asyncio.Lock, sleep=sleep))
    turns = Turns()

    async def paused(party: str) -> list[float]:
        """The pauses of one answer of 20 ms, each slice 5 ms."""
        pauses.clear()
        slices.ASKED_BY.set(party)
        mine = turns.begin()
        for _ in range(4):
            clock["thread_time"] += 0.005
            clock["monotonic"] += 0.005
            await mine.rest()
        return list(pauses)

    assert set(await paused("user/eve")) == {0}
    assert (await paused("user/eve"))[-1] > 0
    assert await paused("user/eve") == [pytest.approx(slices.PAUSES * 0.005)] * 4
    assert set(await paused("user/bob")) == {0}
    clock["monotonic"] += 60
    assert set(await paused("user/eve")) == {0}


async def test_large_answers_within_a_slice_are_work_of_their_caller_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of half a megabyte, each made in less than a slice, one after the other without end."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    clock = {"thread_time": 0.0, "monotonic": 0.0}
    times = {name: partial(clock.__getitem__, name) for name in clock}
    monkeypatch.setattr(slices, "time", SimpleNamespace(**times))
    monkeypatch.setattr(slices, "asyncio", SimpleNamespace(Lock=asyncio.Lock, sleep=sleep))
    turns = Turns()

    async def paused(party: str, size: int, every_s: float) -> int:
        """How many of a hundred such answers were held back."""
        pauses.clear()
        slices.ASKED_BY.set(party)
        for _ in range(100):
            mine = turns.begin()
            clock["thread_time"] += slices.SLICE_S / 2
            clock["monotonic"] += every_s
            await mine.rest()
            await mine.end(size)
        return len(pauses)

    assert await paused("user/eve", slices.PAGE_BYTES, 0.003) > 80
    assert await paused("user/bob", 20_000, 0.025) == 0


async def test_an_answer_of_many_entries_lets_the_loop_turn_all_the_while() -> None:
    longest = 0.0
    """Work between two turns of the loop, as CPU time: a busy machine holds up both, and adds nothing to it."""

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    def picture(name: str) -> host_pb2.Host:
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        return host_pb2.Host(name=name)

    watching = asyncio.get_running_loop().create_task(watch())
    await asyncio.sleep(0)
    found, more = await paged([f"h{n:05}" for n in range(500)], host_pb2.ListHostsRequest(page_size=400), picture)
    await asyncio.sleep(0)
    watching.cancel()
    assert (len(found), more) == (400, "h00399")
    # Nearly half a second of work in all.
    assert longest < 0.2


async def test_an_entry_that_is_larger_than_a_page_is_one() -> None:
    page = Page(10)
    large = host_pb2.Host(name="x" * (slices.PAGE_BYTES + 1))
    assert page.takes(large)
    assert not page.takes(host_pb2.Host(name="y"))
