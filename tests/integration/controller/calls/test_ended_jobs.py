"""Calls about jobs of which the controller holds but a head: they answer as before, and the store is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.integration.controller.calls.test_jobs import create, get, watch
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.support.stubs import job_stub

from holdfast.v1 import job_pb2
from holdfast_controller.core.model import jobs as jobs_module
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.store import snapshots
from holdfast_controller.shell.store.store import Store


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every commit writes a snapshot, no ended job stays in memory; the ids that were read from the store."""
    monkeypatch.setattr(jobs_module, "KEPT_WHOLE", 0)
    monkeypatch.setattr(snapshots, "ENTITIES", 1)
    read, found = Store.jobs, list[str]()

    def noted(store: Store, names: Sequence[str]) -> list[Job]:
        found.extend(names)
        return read(store, names)

    monkeypatch.setattr(Store, "jobs", noted)
    return found


@pytest.fixture
def jobs(asked_for: list[str], controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


async def ended(jobs: Any, *names: str) -> list[str]:
    """Ids of jobs that were cancelled while they waited, and of one more that waits on."""
    found = []
    for name in names:
        found.append((await create(jobs, job(name))).id)
        await jobs.CancelJob(job_pb2.CancelJobRequest(id=found[-1]), timeout=WITHIN_S)
    found.append((await create(jobs, job("waits"))).id)
    return found


async def test_a_list_has_them_in_order_filtered_and_in_pages(jobs: Any, asked_for: list[str]) -> None:
    made = await ended(jobs, "a", "b", "c", "d")
    asked_for.clear()
    found, token = [], ""
    while True:
        page = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=2, page_token=token), timeout=WITHIN_S)
        found += [each.id for each in page.jobs]
        if not (token := page.next_page_token):
            break
    assert found == made
    assert set(asked_for) == set(made[:4])
    asked_for.clear()
    newest = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=2, newest=True), timeout=WITHIN_S)
    assert [each.id for each in newest.jobs] == made[-2:]
    named = await jobs.ListJobs(job_pb2.ListJobsRequest(filter='name="b"'), timeout=WITHIN_S)
    assert [(each.id, each.display_name) for each in named.jobs] == [(made[1], "b")]
    assert made[0] not in asked_for, "a filter needs no more than heads"


async def test_one_is_shown_watched_and_deleted(jobs: Any, asked_for: list[str]) -> None:
    made = (await ended(jobs, "a"))[0]
    asked_for.clear()
    shown = await get(jobs, made)
    assert (shown.state, shown.display_name) == (job_pb2.JOB_STATE_CANCELLED, "a")
    assert asked_for == [made]
    assert [event.type for event in await watch(jobs, made)][-1] == "JobEnded"
    ledger = await jobs.GetGoodput(job_pb2.GetGoodputRequest(id=made, verify=True), timeout=WITHIN_S)
    assert ledger.level == "D"
    await jobs.DeleteJob(job_pb2.DeleteJobRequest(id=made), timeout=WITHIN_S)
    listed = await jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    assert [each.display_name for each in listed.jobs] == ["waits"]
