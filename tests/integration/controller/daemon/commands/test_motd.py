"""The message of the day by the command line: who sees it and where, and that it outlives a restart."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller
from tests.integration.controller.process import Process, ended
from tests.support.stubs import access_stub

from holdfast.v1 import access_pb2

pytestmark = pytest.mark.anyio
JOB = '{"jobSpec": {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["true"]}}]}}'
HEAD = "message of the day, from ann, "


@dataclass
class Said:
    status: int
    out: str
    err: str


@dataclass
class User:
    """A user of one controller, with a home of their own."""

    name: str
    controller: Controller
    home: Path

    async def types(self, *words: str) -> Said:
        files = self.controller.certificates.files[f"user/{self.name}"]
        self.home.mkdir(exist_ok=True)
        (self.home / "client.toml").write_text(
            f'controller = "127.0.0.1:{self.controller.port}"\n'
            f'ca = "{files.ca}"\ncert = "{files.cert}"\nkey = "{files.key}"\n'
        )
        (self.home / "job.json").write_text(JOB)
        own = {"HOME": str(self.home), "HOLDFAST_CONFIG": str(self.home / "client.toml")}
        environ = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | own
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", *words),
            env=environ,
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Said(process.returncode or 0, out.decode(), err.decode())


async def test_a_message_is_shown_until_it_is_cleared(daemon: Process, tmp_path: Path) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    ann, bob = (User(name, controller, tmp_path / name) for name in ("ann", "bob"))

    assert "there is no message of the day" in (await ann.types("motd", "show")).err
    assert (await ann.types("motd", "set", "No work on Friday:\n  the power is off")).status == 0
    submitted = await bob.types("submit", "job.json")
    assert HEAD in submitted.err and "  No work on Friday:" in submitted.err
    assert len(submitted.out.splitlines()) == 1, "the job's id and nothing else"
    assert HEAD not in (await bob.types("submit", "job.json")).err, "once"
    assert HEAD in (await bob.types("status")).out, "each time"
    found = json.loads((await bob.types("status", "-o", "json")).out)["motd"]
    assert (found["text"], found["by"]) == ("No work on Friday:\n  the power is off", "ann")

    process.terminate()
    assert await ended(process) == 0
    ann.controller = bob.controller = await daemon.ready(daemon.start())
    assert "the power is off" in (await bob.types("motd", "show")).out
    assert (await ann.types("motd", "clear")).status == 0
    assert HEAD not in (await bob.types("status")).out
    await ann.controller.close()


async def test_only_admins_set_it_and_that_is_audited(daemon: Process, tmp_path: Path) -> None:
    controller = await daemon.ready(daemon.start())
    people = access_stub(controller.channel("user/ann"))
    ann = User("ann", controller, tmp_path / "ann")
    assert (await ann.types("motd", "set", "hello")).status == 0
    refused = await ann.types("motd", "set", "x" * 5_000)
    assert refused.status == 2 and "at most 24 and 4,096 are allowed" in refused.err
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    assert [(each.call, each.outcome) for each in found.entries] == [
        ("AccessService/SetMotd", "OK"),
        ("AccessService/SetMotd", "INVALID_ARGUMENT"),
    ]
    await controller.close()
