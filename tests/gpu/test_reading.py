"""What NVML says, by the agent's own reader and by hand, beside nvidia-smi; what a reading costs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.gpu.machine import Machine, Report

from holdfast_agent.core.model.gpus import Reading
from holdfast_agent.gpu import reader

pytestmark = pytest.mark.gpu
MIB = 1 << 20


async def test_every_gpu_is_listed_with_its_signals_and_memory(machine: Machine, report: Report) -> None:
    source = reader.NvmlSource(reader.ReadLimits(answer_s=60, start_s=60))
    try:
        reading = await source.inventory()
        assert isinstance(reading, Reading), reading
        assert len([gpu for gpu in reading.gpus if not gpu.problem]) >= machine.gpus
        await source.signals()
        await anyio.sleep(1)
        signals = await source.signals()
        assert isinstance(signals, tuple), signals
        assert all(gpu.has_figures and not gpu.problem for gpu in signals)
        usage = await source.usage()
        assert isinstance(usage, tuple)
        assert [one.uuid for one in usage] == [gpu.uuid for gpu in reading.gpus]
        report.note("inventory", [f"{gpu.index} {gpu.model} {gpu.memory_bytes >> 20} MiB" for gpu in reading.gpus])
        report.note("conditions", [str(condition) for condition in reading.conditions])
        report.note("signals", [str(gpu) for gpu in signals])
        costs = {}
        for op in (source.inventory, source.signals, source.usage):
            took = []
            for _ in range(30):
                began = time.perf_counter()
                await op()
                took.append(time.perf_counter() - began)
            costs[op.__name__] = round(1e6 * statistics.median(took))
        report.note("helper_us", costs)
    finally:
        await source.aclose()


def test_figures_and_what_each_costs(machine: Machine, report: Report) -> None:
    script = Path(__file__).with_name("figures.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    report.note("figures", figures)
    needed = ("uuid", "utilisation_pct", "energy_mj", "memory_used_bytes")
    assert all("value" in figures[name] for name in needed), {name: figures[name] for name in needed}
    assert all(figures[name]["us"] < 1e6 for name in figures if "us" in figures[name])


def test_figures_agree_with_nvidia_smi(machine: Machine, report: Report) -> None:
    rows = machine.smi("uuid", "memory.used", "power.draw", "clocks.sm", "driver_version", "name")
    script = Path(__file__).with_name("figures.py")
    figures = json.loads(subprocess.run([sys.executable, script], capture_output=True, timeout=120).stdout)
    report.note("nvidia_smi", rows)
    row = next(row for row in rows if row[0] == figures["uuid"]["value"])
    assert abs(float(row[1]) - figures["memory_used_bytes"]["value"] / MIB) < 2048
    assert abs(float(row[2]) - figures["power_w"]["value"]) < 60
