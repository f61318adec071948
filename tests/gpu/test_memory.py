"""Memory of a killed process: how long NVML shows it still."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.gpu.machine import Machine, Report

from holdfast_agent.core.model.gpus import GpuUsage
from holdfast_agent.core.worker.gpu_release import SLACK_BYTES, STUCK_AFTER_S
from holdfast_agent.gpu import reader

pytestmark = pytest.mark.gpu
HELD_MIB = 8 << 10
RANK = Path(__file__).with_name("rank.py")


def start() -> subprocess.Popen[bytes]:
    """A process that holds memory of the first GPU."""
    process = subprocess.Popen([sys.executable, RANK, "hold", str(HELD_MIB)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


async def usage(source: reader.NvmlSource) -> GpuUsage:
    found = await source.usage()
    assert isinstance(found, tuple), found
    return found[0]


async def test_memory_of_a_killed_process_is_free_before_a_worker_counts_as_stuck(
    machine: Machine, report: Report
) -> None:
    machine.needs_cuda()
    source = reader.NvmlSource(reader.ReadLimits(answer_s=60, start_s=60))
    try:
        before = await usage(source)
        assert before.used_bytes is not None
        process = start()
        try:
            held = await usage(source)
            assert held.used_bytes is not None and held.used_bytes - before.used_bytes >= HELD_MIB << 20
        finally:
            process.kill()
        killed = time.monotonic()
        process.wait()
        reaped_s = time.monotonic() - killed
        while True:
            now = await usage(source)
            free = now.used_bytes is not None and now.used_bytes <= before.used_bytes + SLACK_BYTES
            if free and (now.pids or ()) == (before.pids or ()):
                break
            assert time.monotonic() - killed < STUCK_AFTER_S, now
            await anyio.sleep(0.01)
        report.note("killed", {"reaped_s": round(reaped_s, 3), "free_s": round(time.monotonic() - killed, 3)})
        # Inside a container or a VM NVML may show no pid, or another one: then memory alone is the proof.
        report.note("pids_shown", {"ours": process.pid, "nvml": held.pids})
    finally:
        await source.aclose()
