"""What the agent reports of ranks that stand still: what they wait for, by call and frames, and stops while dumped."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller
from tests.integration.agent.launch.test_launch import launch

from holdfast._session.hang_wire import unpack
from holdfast.v1 import agent_pb2

pytestmark = pytest.mark.require("ptrace")


def features(controller: Controller) -> list[agent_pb2.RankFeatures]:
    """Rank 0 or below it, in the order heard."""
    vectors = [m.features for m in controller.heard if m.WhichOneof("message") == "features"]
    return [rank for vector in vectors for rank in vector.ranks]


async def reported(
    controller: Controller, found: Callable[[agent_pb2.RankFeatures], bool], what: str
) -> agent_pb2.RankFeatures:
    """The first rank like that in a report."""
    rank: agent_pb2.RankFeatures = await controller.until(
        lambda: next((rank for rank in features(controller) if found(rank)), None), what
    )
    return rank


async def test_a_lock_is_reported_with_its_place_once_its_frames_were_read(
    agent: Agent, controller: Controller, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import threading\ndef step(lock):\n    lock.acquire()\n    lock.acquire()\nstep(threading.Lock())\n"
    )
    await controller.connected()
    await launch(controller, [sys.executable, str(script)])
    await reported(controller, lambda rank: rank.wait.kind == "UNKNOWN", "a wait by its call")
    rank = await reported(controller, lambda rank: rank.wait.kind == "LOCK", "a lock")
    assert (rank.motion, rank.wait.place) == ("BLOCKED", "train.py:4 `step`")


@pytest.mark.parametrize("launcher", ["bash", pytest.param("torchrun", marks=pytest.mark.require("torch"))])
async def test_a_trainer_stopped_below_a_launcher_is_reported_as_stopped_however_often_it_is_dumped(
    agent: Agent, controller: Controller, tmp_path: Path, launcher: str
) -> None:
    script, mark = tmp_path / "train.py", tmp_path / "pid"
    script.write_text(f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    command = ["bash", "-c", f"{sys.executable} {script} & wait"]
    if launcher == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", str(script)]
    await controller.connected()
    await launch(controller, command)
    await agent.until(lambda: mark.exists() and mark.read_text() != "", "the trainer")
    await reported(controller, lambda rank: rank.wait.kind == "SLEEP", "the trainer's sleep")
    trainer = int(mark.read_text())
    os.kill(trainer, signal.SIGSTOP)
    await reported(controller, lambda rank: rank.motion == "STOPPED", "the stop")
    heard = len(features(controller))
    for number in (1, 2):
        order = agent_pb2.TakeEvidence(
            id=number, job_id="job-1", generation=1, worker="workerpool0-0", suspects=[0]
        )
        await controller.transfer_say(take_evidence=order)
        await controller.until(functools.partial(controller.evidence.get, number), f"evidence {number}")
        assert unpack(controller.evidence[number].content).ranks[0].process.pid == trainer
    await reported(controller, lambda _: len(features(controller)) > heard, "a report after the dumps")
    later = features(controller)[heard:]
    assert {(rank.motion, rank.traced, rank.state) for rank in later} == {("STOPPED", False, "T")}
