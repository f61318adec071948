"""What can't be started, or outgrows its memory, ends the job at once, with the host and the reason named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits
from tests.e2e.lifecycle_jobs import STAY, job_file, newest, submit

pytestmark = pytest.mark.usefixtures("idle")


@pytest.mark.parametrize(
    ("program", "text", "mode", "says"),
    [
        ("missing", None, 0, "does not exist"),
        ("script", "#!/no/such/interpreter\n", 0o755, "/no/such/interpreter"),
        ("script", "#!/bin/sh\n", 0o644, "is not an executable file"),
        ("script", "\x7fnot a program", 0o755, "xec format"),
    ],
)
def test_program_that_cannot_be_started_fails_the_job_at_once_and_names_the_host(
    trio: DevCluster, tmp_path: Path, program: str, text: str | None, mode: int, says: str
) -> None:
    if text is not None:
        (tmp_path / program).write_text(text)
        (tmp_path / program).chmod(mode)
    file = job_file(tmp_path, "", command=[str(tmp_path / program)], maxJobRetries=3)
    done = trio.holdfast("submit", str(file), "--wait", check=False)
    job = trio.job(newest(trio))
    assert (job["state"], job["attempt"], job["generation"]) == ("JOB_STATE_FAILED", 1, 1)
    assert job["recoveries"] == []
    ended = exits(job)
    assert {0, 1} >= set(ended), "nothing was launched, so nothing is owed by the other"
    refused = [e for e in ended.values() if e["reason"] == "CANNOT_START"]
    assert refused
    assert all(e["exitCode"] is None and e["signal"] is None for e in refused)
    assert all("host-" in e["message"] and says in e["message"] for e in refused), refused
    assert all(e["reason"] in ("CANNOT_START", "NOT_STARTED", "STOPPED") for e in ended.values())
    assert "could not be started: host-" in job["error"]["message"]
    assert says in job["error"]["message"]
    assert done.returncode == 125, done.stderr
    assert says in done.stderr


def test_directory_that_a_host_lacks_is_named(trio: DevCluster, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    file = job_file(inner, STAY)
    file = file.rename(tmp_path / "job.yaml")
    inner.rmdir()
    job_id = trio.holdfast("submit", str(file)).stdout.strip()
    job = trio.reach(job_id, "FAILED")
    assert str(inner) in job["error"]["message"] and "host-" in job["error"]["message"]
    assert job["generation"] == 1


EAT = "import sys; held = []\nwhile True: held.append(bytearray(16 << 20))"


@pytest.mark.require("memcg")
def test_worker_past_its_memory_is_named_and_not_restarted(trio: DevCluster, tmp_path: Path) -> None:
    file = job_file(tmp_path, "", command=[sys.executable, "-c", EAT], workers=1, memory_mb=256)
    done = trio.holdfast("submit", str(file), "--wait", check=False, timeout=120)
    job = trio.job(newest(trio))
    ended = exits(job)[0]
    assert (ended["reason"], ended["signal"]) == ("OUT_OF_MEMORY", 9)
    assert "256 MiB" in ended["message"]
    assert (job["state"], job["generation"], job["recoveries"]) == ("JOB_STATE_FAILED", 1, [])
    assert "ran out of memory" in job["error"]["message"]
    assert done.returncode == 137


def test_kill_from_outside_is_not_taken_for_a_lack_of_memory(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, "kill -KILL $$", workers=1, maxWorkerRestarts=1, maxJobRetries=0)
    job = trio.reach(job_id, "FAILED")
    assert job["generation"] == 2, "it is tried again"
    assert {exits(job, generation=g)[0]["reason"] for g in (1, 2)} == {"SIGNALED"}
