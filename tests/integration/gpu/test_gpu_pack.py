"""The GPU pack's own parts, where there is no GPU: kernels, calls of the CUDA driver, ranks, judgement."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu import cuda, recorded
from tests.gpu.recorded import Phase

from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, State
from holdfast.hang.records.recording import WorkerSample

PACK = Path(cuda.__file__).parent
RECORDED = sorted(path.name.removesuffix(".jsonl.gz") for path in recorded.FIXTURES.glob("*.jsonl.gz"))


@pytest.fixture
def no_gpu(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds the stand-in for CUDA's driver."""
    source = PACK / "fake_cuda.c"
    target = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", target, source], check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def test_every_kernel_that_is_launched_is_in_the_module() -> None:
    launched = set(re.findall(r'launch\(\s*"(\w+)"', Path(cuda.__file__).read_text()))
    assert launched == set(re.findall(r"\.entry (\w+)\(", cuda.PTX.read_text()))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="there is no ptxas to compile the kernels")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_kernels_compile_for_each_generation(arch: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["ptxas", f"-arch={arch}", cuda.PTX, "-o", tmp_path / "out"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.require("cc")
def test_rank_plays_its_phases_and_checks_the_product(no_gpu: dict[str, str], tmp_path: Path) -> None:
    story = "idle:0.2,train:0.5,spin:0.5,compile:0.2,save:0.6"
    command = [sys.executable, str(PACK / "rank.py"), "story", str(tmp_path), story]
    done = subprocess.run(command, env=no_gpu, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    phases = recorded.phases_of((tmp_path / "phases.jsonl").read_text())
    assert ",".join(f"{one.phase}:{one.lasts_s:g}" for one in phases) == story
    # The spin ended by its flag, five seconds before its own bound.
    assert re.search(r"^spin ended [\d.]+ ms after its flag$", done.stdout, re.M)
    assert (tmp_path / "model.pt").stat().st_size >= 64 << 20


@pytest.mark.require("cc")
def test_spin_that_is_never_ended_ends_by_itself(no_gpu: dict[str, str]) -> None:
    code = (
        "import time; from tests.gpu import cuda; d = cuda.Device(); began = time.monotonic();"
        "cuda.Spin(d, 0.3); d.wait(); print(time.monotonic() - began)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=no_gpu, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) >= 0.3


@pytest.mark.require("cc")
def test_refused_call_is_an_error_that_names_it(no_gpu: dict[str, str]) -> None:
    code = "from tests.gpu import cuda; cuda.Device(7)"
    done = subprocess.run([sys.executable, "-c", code], env=no_gpu, capture_output=True, text=True, timeout=180)
    assert "CudaError: cuDeviceGet: refused (1)" in done.stderr


def test_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "from tests.gpu import cuda; print(cuda.missing())"
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=180)
    if not done.stdout.strip():
        pytest.skip("this machine has a CUDA driver of its own")
    assert "libcuda.so.1" in done.stdout


# --- Judgement of a recording -------------------------------------------------------------------------------------


def story(*steps: tuple[str, float, float, float, float]) -> tuple[list[WorkerSample], list[Phase]]:
    """Samples of one rank: (phase, seconds, watts, utilisation, memory utilisation), one after the other."""
    samples, phases, now, energy = [], [], 1000.0, 0.0
    for phase, lasts_s, watts, util, memory in steps:
        phases.append(Phase(phase, now, lasts_s))
        for _ in range(round(lasts_s / 5)):
            now += 5
            energy += watts * 5
            process = ProcessSample(State.SLEEPING)
            gpu = GpuSample(now, energy, util, memory, 0.0)
            samples.append(WorkerSample("job", "workerpool0-0", 1, now, (RankSample(now, 0, process, gpu=gpu),)))
    return samples, phases


IDLE = ("idle", 30.0, 80.0, 0.0, 0.0)
TRAIN = ("train", 60.0, 550.0, 100.0, 45.0)
SPIN = ("spin", 30.0, 150.0, 100.0, 1.0)


def test_phases_that_look_as_they_are_raise_no_complaint() -> None:
    assert recorded.misread(*story(IDLE, TRAIN, SPIN, TRAIN, IDLE), 1) == []


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (("spin", 30.0, 550.0, 100.0, 45.0), "phase 2 (spin) rank 0: work"),
        (("idle", 30.0, 150.0, 100.0, 1.0), "phase 2 (idle) rank 0: spin"),
        (("train", 5.0, 550.0, 100.0, 45.0), "phase 2 (train) rank 0: never read"),
    ],
)
def test_phase_that_looks_like_another_is_named(step: tuple[str, float, float, float, float], words: str) -> None:
    (found,) = recorded.misread(*story(IDLE, TRAIN, step), 1)
    assert found.startswith(words)


def test_fixture_gives_back_what_was_kept(tmp_path: Path) -> None:
    samples, phases = story(IDLE, TRAIN)
    recorded.keep("story", tmp_path, samples, phases, {"gpu": "none"})
    assert recorded.kept("story", tmp_path) == (samples, phases)
    assert json.loads((tmp_path / "story.json").read_text())["about"] == {"gpu": "none"}


@pytest.mark.parametrize("name", RECORDED)
def test_recording_of_a_real_gpu_is_read_as_on_the_day_it_was_made(name: str) -> None:
    samples, phases = recorded.kept(name)
    ranks = max(len(sample.ranks) for sample in samples)
    assert recorded.misread(samples, phases, ranks) == []
