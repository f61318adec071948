"""Weights of projects by the command line: what is refused and audited, and that a killed controller has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.controller.cluster import WITHIN_S
from tests.integration.controller.daemon.commands.test_motd import User
from tests.integration.controller.process import Process, ended
from tests.support.stubs import access_stub

from holdfast.v1 import access_pb2

pytestmark = pytest.mark.anyio


async def test_weights_are_seen_and_outlive_a_kill_of_the_controller(daemon: Process, tmp_path: Path) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    ann, bob = (User(name, controller, tmp_path / name) for name in ("ann", "bob"))
    first = await ann.types("shares")
    assert first.status == 0 and "no project has a weight" in first.err
    assert (await ann.types("share", "set", "vision", "--weight", "2")).status == 0
    assert (await ann.types("share", "set", "speech", "--weight", "1")).status == 0
    assert (await bob.types("submit", "job.json")).status == 0

    process.kill()
    await ended(process)
    ann.controller = bob.controller = await daemon.ready(daemon.start())
    found = json.loads((await ann.types("shares", "-o", "json")).out)
    assert found["ordered"] and found["halfLife"] == 604_800
    rows = {each["project"]: each for each in found["shares"]}
    assert [rows["vision"]["weight"], rows["vision"]["share"], rows["vision"]["factor"]] == [2.0, 0.5, 1.0]
    assert rows["default"]["waiting"] == 1 and rows["default"]["weight"] is None
    table = (await ann.types("shares")).out.splitlines()
    titles = ["PROJECT", "WEIGHT", "SHARE", "USED", "GPUS", "FACTOR", "WAITING", "RUNNING", "GUARANTEE", "BORROWED"]
    assert table[0].split() == titles
    assert table[-1].split() == ["vision", "2", "50.0%", "0.0", "0", "1.00", "0", "0", "-", "0"]
    assert (await ann.types("share", "clear", "vision")).status == 0
    rows = {each["project"]: each for each in json.loads((await ann.types("shares", "-o", "json")).out)["shares"]}
    assert set(rows) == {"default", "speech"}
    await ann.controller.close()


async def test_a_weight_that_is_none_is_refused_and_both_are_audited(daemon: Process, tmp_path: Path) -> None:
    controller = await daemon.ready(daemon.start())
    people = access_stub(controller.channel("user/ann"))
    ann = User("ann", controller, tmp_path / "ann")
    assert (await ann.types("share", "set", "vision", "--weight", "2")).status == 0
    for weight in ("0", "nan", "-1"):
        refused = await ann.types("share", "set", "vision", "--weight", weight)
        assert refused.status == 2 and "weight" in refused.err and "use 0.001 to 1,000,000" in refused.err
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    assert [(each.call, each.target, each.outcome) for each in found.entries][:2] == [
        ("ClusterService/SetShare", "project/vision", "OK"),
        ("ClusterService/SetShare", "project/vision", "INVALID_ARGUMENT"),
    ]
    await controller.close()


async def test_what_a_quota_allows_stands_beside_what_is_used(daemon: Process, tmp_path: Path) -> None:
    with (daemon.root / "controller.toml").open("a") as settings:
        settings.write("\n[quotas.default]\ngpus = 64\nrunning_jobs = 3\n")
    controller = await daemon.ready(daemon.start())
    ann = User("ann", controller, tmp_path / "ann")
    assert (await ann.types("submit", "job.json")).status == 0
    assert (await ann.types("share", "set", "vision", "--weight", "2")).status == 0
    rows = {each["project"]: each for each in json.loads((await ann.types("shares", "-o", "json")).out)["shares"]}
    limits = ("gpuQuota", "runningQuota", "waitingQuota")
    assert [rows["default"][name] for name in limits] == [64, 3, None]
    assert [rows["vision"][name] for name in limits] == [None] * 3
    (row,) = [line for line in (await ann.types("shares")).out.splitlines() if line.startswith("default")]
    assert [row.split()[column] for column in (4, 6, 7)] == ["0/64", "1", "0/3"]
    await controller.close()


async def test_a_guarantee_outlives_a_kill_of_the_controller_and_is_audited(
    daemon: Process, tmp_path: Path
) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    ann = User("ann", controller, tmp_path / "ann")
    assert (await ann.types("share", "set", "vision")).status == 2, "nothing to set"
    done = await ann.types("share", "set", "vision", "--weight", "2", "--guarantee", "64")
    assert done.status == 0 and "64 GPUs are guaranteed in all, and the hosts have 0" in done.err
    refused = await ann.types("share", "set", "vision", "--guarantee", "2000000")
    assert refused.status == 2 and "use 1 to 1,000,000, or 0 for no guarantee" in refused.err

    people = access_stub(controller.channel("user/ann"))
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    set_, refused_, *_ = [each for each in found.entries if each.call == "ClusterService/SetGuarantee"]
    assert [(each.target, each.outcome) for each in (set_, refused_)] == [
        ("project/vision", "OK"),
        ("project/vision", "INVALID_ARGUMENT"),
    ]
    await controller.close()

    process.kill()
    await ended(process)
    controller = ann.controller = await daemon.ready(daemon.start())
    shown = await ann.types("shares")
    assert shown.out.splitlines()[-1].split()[-2:] == ["64", "0"] and "guaranteed in all" in shown.err
    assert json.loads((await ann.types("shares", "-o", "json")).out)["shares"][0]["guaranteedGpus"] == 64
    assert (await ann.types("share", "clear", "vision")).status == 0
    assert not json.loads((await ann.types("shares", "-o", "json")).out)["shares"]
    await controller.close()
