"""Quotas by the command line: what is refused and audited, who sees them, and that a killed controller has them."""

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


async def test_a_quota_outlives_a_kill_of_the_controller_and_is_audited(daemon: Process, tmp_path: Path) -> None:
    with (daemon.root / "controller.toml").open("a") as settings:
        settings.write("\n[quotas.default]\ngpus = 64\nrunning_jobs = 3\n")
    process = daemon.start()
    controller = await daemon.ready(process)
    ann = User("ann", controller, tmp_path / "ann")
    done = await ann.types("quota", "set", "--user", "bob", "--gpus", "0", "--max-priority", "2")
    assert done.status == 0 and "user bob: 0 GPUs, priority 2 at most" in done.err
    assert (await ann.types("quota", "set", "--project", "default", "--gpus", "none")).status == 0
    # What is read of the audit log is on disk: the rest is so within a second.
    await access_stub(controller.channel("user/ann")).ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)
    process.kill()
    await ended(process)

    controller = ann.controller = await daemon.ready(daemon.start())
    project, user = json.loads((await ann.types("quota", "list", "-o", "json")).out)
    assert (project["project"], project["limits"]["gpus"], project["limits"]["runningJobs"]) == ("default", None, 3)
    assert project["byCommand"]["gpus"] == -1 and user["user"] == "bob" and user["limits"]["gpus"] == 0
    table = (await ann.types("quota", "list")).out.splitlines()
    assert table[0].split() == ["OF", "GPUS", "RUNNING", "WAITING", "PRIORITY", "SET"]
    assert table[1].split() == ["project/default", "0", "0/3", "0", "-", "GPUs"]
    assert table[2].split()[:4] == ["user/bob", "0/0", "0", "0"]
    assert (await ann.types("quota", "clear", "--user", "bob")).status == 0
    assert len(json.loads((await ann.types("quota", "list", "-o", "json")).out)) == 1

    refused = await ann.types("quota", "set", "--user", "bob", "--max-priority", "9")
    assert refused.status == 2 and "limits.maxPriority: is 9" in refused.err and "use 1 to 3" in refused.err
    for words in (("--gpus", "3"), ("--user", "bob"), ("--user", "bob", "--project", "a", "--gpus", "3")):
        assert (await ann.types("quota", "set", *words)).status == 2
    assert "write a number, or none" in (await ann.types("quota", "set", "--user", "bob", "--gpus", "-3")).err

    people = access_stub(controller.channel("user/ann"))
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    entries = [each for each in found.entries if each.call == "ClusterService/SetQuota"]
    assert {(each.target, each.outcome) for each in entries} == {
        ("user/bob", "OK"),
        ("user/bob", "INVALID_ARGUMENT"),
        ("project/default", "OK"),
    }
    await controller.close()


async def test_a_user_whom_nobody_knows_is_pointed_out_until_somebody_does(daemon: Process, tmp_path: Path) -> None:
    controller = await daemon.ready(daemon.start())
    ann = User("ann", controller, tmp_path / "ann")
    limit = ("quota", "set", "--gpus", "4", "--user")
    assert "no user bbo is known here yet: see holdfast user list" in (await ann.types(*limit, "bbo")).err
    assert (await ann.types("quota", "list")).out.splitlines()[1].startswith("user/bbo (no such user) ")
    assert "user/bbo" in (await ann.types("quota", "list", "-o", "name")).out.splitlines()
    await ann.types("user", "add", "bbo")
    assert "no such user" not in (await ann.types("quota", "list")).out
    for known in ("ann", "*", "bbo"):
        assert "is known here" not in (await ann.types(*limit, known)).err
    await controller.close()
