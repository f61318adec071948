"""Floods of output, and a line of a gigabyte: bounded on disk and in the agent, and control goes on meanwhile."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import launch

PYTHON = sys.executable
# A gigabyte without a newline, then as many short lines as there is time for.
FLOODS = """
import os
piece = b"x" * (1 << 20)
for _ in range(1024):
    os.write(1, piece)
os.write(2, b"one line\\n")
while True:
    os.write(1, b"y\\n" * 4096)
"""


def on_disk(path: Path) -> int:
    """Bytes that it takes."""
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("settings", [{"log_limit_mb": 8}])
async def test_a_flood_is_cut_and_holds_nothing_up(
    agent: Agent, controller: Controller, settings: dict[str, Any]
) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", FLOODS])
    flood = agent.logs / "job-1/g1/workerpool0-0.r0.out"
    await agent.output("job-1/g1/workerpool0-0.r0.err", "one line")
    # Amid it another worker is prepared, launched and told of.
    await launch(controller, [PYTHON, "-c", "raise SystemExit(5)"], worker="workerpool0-1", first_rank=1)
    assert (await controller.exit(1)).exit.exit_code == 5
    await controller.assign(assignment("STOP", grace_s=0.2))
    await controller.state("EMPTY")
    assert flood.stat().st_size > 1 << 30, "offsets go on where they were"
    await agent.until(lambda: on_disk(flood) <= 24 << 20, "the flood to be cut")
    text, problem = await controller.read(1, tail_lines=2)
    assert (text, problem) == ("y\ny\n", "")
    assert agent.process is not None
    assert psutil.Process(agent.process.pid).memory_info().rss < 400 << 20


async def test_bytes_that_are_no_text_arrive_as_they_were(agent: Agent, controller: Controller) -> None:
    noise = agent.root / "noise"
    noise.write_bytes(os.urandom(1 << 20))
    await controller.connected()
    await launch(controller, ["cat", str(noise)])
    await controller.exit()
    await controller.open(1)
    await controller.until(lambda: 1 in controller.ends, "the end of the reading")
    assert controller.ends[1] == ""
    assert b"".join(chunk.data for chunk in controller.chunks[1]) == noise.read_bytes()
