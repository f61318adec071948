"""Ranks that train, spin, save, compile and idle on GPUs, read by a real agent and recorded for ever after."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, started
from tests.gpu import cuda, recorded
from tests.gpu.machine import Machine, Report
from tests.support import machine_parts

from holdfast.hang.records import reader

pytestmark = pytest.mark.gpu
RANK = Path(__file__).with_name("rank.py")
GLOO = Path(__file__).with_name("gloo.py")


def submit(cluster: DevCluster, gpus: int, *command: str, ranks: int = 0) -> str:
    """A worker with a rank for each GPU, or so many; its hangs are notified only."""
    worker = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": gpus},
        "processesPerWorker": ranks or gpus,
        "processSpec": {
            "command": [sys.executable, *command],
            "env": [{"name": "PYTHONPATH", "value": os.pathsep.join(filter(None, sys.path))}],
        },
    }
    job = {"workerPoolSpecs": [worker], "faultTolerance": {"hangDetection": {"action": "NOTIFY"}}}
    text = yaml.safe_dump({"displayName": "gpu-pack", "jobSpec": job})
    return str(cluster.holdfast("submit", "-", input=text).stdout.strip())


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that live: an agent's are its helper and its shims."""
    found = 0.0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if pid in (int(entry.parent.name), int(fields[1])):
            found += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return found


def test_each_phase_is_read_as_what_it_is(machine: Machine, report: Report, tmp_path: Path) -> None:
    if machine.real:
        machine.needs_cuda()
    with started(tmp_path / "c", hosts=1, gpus=0) as cluster:
        lines = tmp_path / "phases.jsonl"
        job = submit(cluster, machine.gpus, str(RANK), "story", str(tmp_path), machine.story)
        with cluster.typing(
            "hang", "record", job, "--for", "10m", "--out", str(tmp_path / "recording")
        ) as recorder:
            cluster.until(lines.exists, 120)
            agent, began = cluster.pid("host-0"), time.monotonic()
            spent = cpu_s(agent)
            told = 0
            while (state := cluster.job(job)["state"]) not in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED"):
                for line in lines.read_text().splitlines()[told:]:
                    machine.follow(json.loads(line)["phase"])
                    told += 1
                assert time.monotonic() - began < 400
                time.sleep(0.3)
            share = 100 * (cpu_s(agent) - spent) / (time.monotonic() - began)
            assert state == "JOB_STATE_SUCCEEDED", cluster.holdfast("job", "logs", job, check=False).stdout
            recorder.ends(60)
        report.note("agent_percent_of_a_core", round(share, 2))
    (path,) = (tmp_path / "recording").glob("*.gz")
    samples, phases = list(reader.read(path)), recorded.phases_of(lines.read_text())
    assert [f"{one.phase}:{one.lasts_s:g}" for one in phases] == machine.story.split(",")
    seen = recorded.looks(samples, phases)
    report.note(
        "looks", {f"{n} {phases[n].phase} r{r}": {k.value: v for k, v in c.items()} for (n, r), c in seen.items()}
    )
    about = {"gpu": cuda.Device().name if machine.real else "scripted", "when": time.strftime("%Y-%m-%d")}
    recorded.keep("story", report.folder, samples, phases, about)
    assert recorded.kept("story", report.folder) == (samples, phases)
    assert recorded.misread(samples, phases, machine.gpus) == []


def test_gloo_gang_sums_cuda_tensors(machine: Machine, report: Report, tmp_path: Path) -> None:
    machine.needs_cuda()
    if not machine_parts.has("torch"):
        pytest.skip("torch is not installed")
    with started(tmp_path / "c", hosts=1, gpus=0) as cluster:
        job = submit(cluster, 1, str(GLOO), ranks=2)
        done = cluster.reach(job, "SUCCEEDED", "FAILED", timeout=120)
        said = cluster.holdfast("job", "logs", job, check=False).stdout
        report.note("gloo", said.splitlines()[-3:])
        assert done["state"] == "JOB_STATE_SUCCEEDED", said
