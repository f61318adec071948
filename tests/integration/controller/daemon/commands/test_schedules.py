"""Schedules and templates with a real controller that is killed, by the command line and over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from pathlib import Path

import pytest
from tests.integration.controller.cluster import WITHIN_S
from tests.integration.controller.daemon.commands.test_motd import User
from tests.integration.controller.process import Process, ended
from tests.support.stubs import access_stub

from holdfast._base import cron
from holdfast.v1 import access_pb2

pytestmark = pytest.mark.anyio
KILLS = 4


async def test_a_run_a_minute_is_there_once_over_kills_of_the_controller(daemon: Process, tmp_path: Path) -> None:
    process = daemon.start()
    ann = User("ann", await daemon.ready(process), tmp_path / "ann")
    made = await ann.types(
        "schedule",
        "create",
        "tick",
        "job.json",
        "--cron",
        "* * * * *",
        "--overlap",
        "allow",
        "--time-zone",
        "Asia/Tokyo",
    )
    assert made.status == 0, made.err
    began = time.time()
    # Two kills in the second in which a run is due, then some in quick succession.
    for kill in range(KILLS):
        await asyncio.sleep(0.3 if kill else 60 - time.time() % 60 + 0.02)
        process.kill()
        await ended(process)
        process = daemon.start()
        ann.controller = await daemon.ready(process)
    await asyncio.sleep(2.0)
    (shown,) = json.loads((await ann.types("schedule", "show", "tick", "-o", "json")).out)
    over = time.time()
    listed = json.loads((await ann.types("job", "list", "--label", "schedule=tick", "-o", "json")).out)
    ids = [each["id"] for each in listed]
    times = list(itertools.takewhile(lambda at: at <= over, cron.runs("* * * * *", "UTC", began)))
    due = [f"tick-{cron.stamp(at)}" for at in times]
    late = [f"tick-{cron.stamp(at)}" for at in times if at <= over - 10]
    assert sorted(ids) == ids and len(set(ids)) == len(ids)
    # One that is due this moment may be there or not.
    assert set(late) <= set(ids) <= set(due)
    assert shown["runs"] == len(ids) and shown["jobIds"] == ids[-10:]
    assert shown["job"]["jobSpec"]["workerPoolSpecs"][0]["processSpec"]["command"] == ["true"]


async def test_what_can_never_be_due_is_refused_and_all_is_audited(daemon: Process, tmp_path: Path) -> None:
    controller = await daemon.ready(daemon.start())
    people = access_stub(controller.channel("user/ann"))
    ann = User("ann", controller, tmp_path / "ann")
    refused = await ann.types("schedule", "create", "never", "job.json", "--cron", "0 0 30 2 *")
    assert refused.status == 2
    assert "cron" in refused.err and "never comes" in refused.err
    assert (await ann.types("schedule", "create", "night", "job.json", "--cron", "@daily")).status == 0
    assert (await ann.types("schedule", "pause", "night")).status == 0
    assert "paused by ann" in (await ann.types("schedule", "list")).out
    assert (await ann.types("schedule", "resume", "night")).status == 0
    assert (await ann.types("schedule", "remove", "night")).status == 0
    assert (await ann.types("schedule", "show", "night")).status != 0
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    assert [(each.call.partition("/")[2], each.target, each.outcome) for each in found.entries] == [
        ("CreateSchedule", "schedule/default/never", "INVALID_ARGUMENT"),
        ("CreateSchedule", "schedule/default/night", "OK"),
        ("PauseSchedule", "schedule/default/night", "OK"),
        ("ResumeSchedule", "schedule/default/night", "OK"),
        ("RemoveSchedule", "schedule/default/night", "OK"),
    ]
    assert "@daily in UTC" in found.entries[1].message
    await controller.close()


async def test_a_template_is_run_with_changes_and_outlives_a_kill(daemon: Process, tmp_path: Path) -> None:
    process = daemon.start()
    ann = User("ann", await daemon.ready(process), tmp_path / "ann")
    assert (await ann.types("template", "create", "train", "job.json")).out == "train@1\n"
    assert (await ann.types("template", "create", "train", "job.json")).out == "train@1\n"
    process.kill()
    await ended(process)
    ann.controller = await daemon.ready(daemon.start())
    change = 'jobSpec.workerPoolSpecs[0].processSpec.command=["false"]'
    ran = await ann.types("template", "run", "train@1", "--set", change, "--set", "labels.lr=0.1")
    assert ran.status == 0, ran.err
    job = json.loads((await ann.types("job", "show", ran.out.strip(), "-o", "json")).out)
    pool = job["jobSpec"]["workerPoolSpecs"][0]
    assert (int(pool["replicaCount"]), pool["processSpec"]["command"]) == (1, ["false"])
    assert job["labels"] == {"lr": "0.1"}
    assert job["annotations"]["template"] == "train@1"
    assert json.loads(job["annotations"]["template-patch"])["labels"] == {"lr": "0.1"}
    wrong = await ann.types("template", "run", "train", "--set", "jobSpec.workerPoolSpecs[0].replicaCount=-1")
    assert wrong.status == 2 and "replicaCount" in wrong.err and "template train@1 with the patch" in wrong.err
    unknown = await ann.types("template", "run", "train@7")
    assert unknown.status != 0 and "has no version" in unknown.err
    scheduled = await ann.types("schedule", "create", "night", "--cron", "@daily", "-t", "train", "--set", change)
    assert scheduled.status == 0, scheduled.err
    assert (await ann.types("template", "remove", "train")).status == 0
    (shown,) = json.loads((await ann.types("schedule", "show", "night", "-o", "json")).out)
    assert shown["job"]["jobSpec"]["workerPoolSpecs"][0]["processSpec"]["command"] == ["false"]
    await ann.controller.close()
