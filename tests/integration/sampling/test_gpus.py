"""GPU readings find their way to the ranks that they are about."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.sampling.conftest import Stage

from holdfast.hang.pipeline.samples import GpuSample
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.sampling.gpu_signals import GpuSignalWatch

GPUS = ("GPU-sim-h-0", "GPU-sim-h-1")


@pytest.fixture
async def stage(facts: HostFacts, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(facts, gpus=GPUS)
    source = SimulatedSource("h", 2, tmp_path / "gpus.json")
    made.sampler.gpus = GpuSignalWatch(source, lambda: True)
    source.on_xids = made.sampler.gpus.hear
    yield made
    made.close()


def script(stage: Stage, said: object) -> None:
    (Path(stage.facts.scratch_dir) / "gpus.json").write_text(json.dumps(said))


async def test_each_rank_gets_its_own_gpu(stage: Stage) -> None:
    for rank in (0, 1):
        stage.start("signal.pause()", rank=rank)
    script(stage, {GPUS[0]: {"util_pct": 100, "power_w": 150}, GPUS[1]: {"util_pct": 0, "lost": True}})
    await stage.sampler.gpus.read()
    first, second = (await stage.tick()).ranks
    assert first.gpu is not None and (first.gpu.util_pct, first.gpu.energy_j, first.gpu.lost) == (100, 0, False)
    assert second.gpu is not None and second.gpu.lost


async def test_gpus_without_signals_are_absent_and_unreadable_ones_are_blind(stage: Stage) -> None:
    stage.start("signal.pause()")
    await stage.sampler.gpus.read()
    rank = await stage.rank()
    assert (rank.gpu, rank.gpu_blind) == (None, False)
    script(stage, {"*": {"util_pct": 5}})
    await stage.sampler.gpus.read()
    assert isinstance((await stage.rank()).gpu, GpuSample)
    script(stage, {"blind": "the driver sleeps"})
    await stage.sampler.gpus.read()
    stage.sampler.gpus.host.at_s -= 20
    rank = await stage.rank()
    assert (rank.gpu, rank.gpu_blind) == (None, True)


async def test_xid_reaches_the_rank_of_its_gpu(stage: Stage) -> None:
    for rank in (0, 1):
        stage.start("signal.pause()", rank=rank)
    await stage.tick()
    script(stage, {GPUS[1]: {"xid": 79}})
    await stage.sampler.gpus.read()
    ranks = (await stage.tick()).ranks
    assert [rank.gpu and rank.gpu.fatal_xid for rank in ranks] == [None, 79]


async def test_holder_of_a_context_below_the_started_process_is_the_rank(stage: Stage) -> None:
    stage.start(
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); signal.pause()"
    )
    sample = await stage.sampled(lambda s: any(line.text.isdigit() for line in s.lines), "the child's pid")
    holder = next(int(line.text) for line in sample.lines if line.text.isdigit())
    stage.sampler.gpus.host.contexts = {GPUS[1]: frozenset({holder})}
    script(stage, {GPUS[0]: {"util_pct": 1}, GPUS[1]: {"util_pct": 77}})
    await stage.sampler.gpus.read()
    stage.sampler.gpus.host.contexts = {GPUS[1]: frozenset({holder})}
    sample = await stage.sampled(
        lambda s: s.ranks[0].gpu is not None and s.ranks[0].gpu.util_pct == 77, "the holder's GPU"
    )
    assert len(sample.ranks) == 1
    os.kill(holder, 9)


async def test_source_that_fails_is_said_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        "holdfast_agent.shell.sampling.gpu_signals.log.warning", lambda event, **fields: said.append(event)
    )
    script(stage, {"blind": "x"})
    await stage.sampler.gpus.read()
    await stage.sampler.gpus.read()
    assert said == ["gpu_signals.unreadable"]
    assert isinstance(await SimulatedSource("h", 1, Path(stage.facts.scratch_dir) / "gpus.json").signals(), Blind)
