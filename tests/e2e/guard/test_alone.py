"""``holdfast guard`` on one machine, without any scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import PATIENCE_S, RANKS, WAITS, environment, nothing_is_left, wait_for
from tests.support.fake_nvml.library import SPINNING, TRAINING, FakeNvml

GUARD = (sys.executable, "-m", "holdfast", "guard")
BAD_STEP = {"SLURM_STEP_NODELIST": "n1", "SLURM_NODEID": "3"}


def guard(folder: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GUARD, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


def test_a_rank_that_fails_is_restarted_and_the_record_says_so(tmp_path: Path) -> None:
    env = environment(tmp_path, FAILS="3,0", KEPT="two\nlines")
    program = RANKS + 'print(os.environ["KEPT"], file=sys.stderr)\n'

    done = guard(tmp_path, "--nproc", "2", "--record", "rec", "--", sys.executable, "-c", program, env=env)

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()[-2:]) == [f"rank {n} of 2 local {n} generation 2" for n in (0, 1)]
    assert "two\nlines\n" in done.stderr
    assert "guard: 1 recovery, " in done.stderr and "see rec" in done.stderr
    record = {path.name for path in (tmp_path / "rec").iterdir()}
    assert record == {"job.json", "job.txt", "events.jsonl"}
    assert json.loads((tmp_path / "rec/job.json").read_text())["state"] == "JOB_STATE_SUCCEEDED"
    nothing_is_left(env)


def test_after_sigkill_of_the_guard_nothing_is_left(tmp_path: Path) -> None:
    env = environment(tmp_path)
    process = subprocess.Popen([*GUARD, "--", sys.executable, "-c", WAITS], cwd=tmp_path, env=env)
    try:
        wait_for((tmp_path / "up-0").exists, "the rank runs")
    finally:
        process.kill()
        process.wait()

    nothing_is_left(env)


def test_sigterm_ends_the_command_and_the_guard(tmp_path: Path) -> None:
    env = environment(tmp_path)
    process = subprocess.Popen([*GUARD, "--", sys.executable, "-c", WAITS], cwd=tmp_path, env=env)
    try:
        wait_for((tmp_path / "up-0").exists, "the rank runs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()

    nothing_is_left(env)


def test_a_guard_that_cannot_start_says_why(tmp_path: Path) -> None:
    env = environment(tmp_path, **BAD_STEP)

    done = guard(tmp_path, "--", "echo", "ran", env=env)

    assert (done.returncode, done.stdout) == (125, "")
    assert "guard: SLURM_STEP_TASKS_PER_NODE is not set" in done.stderr
    nothing_is_left(env)


def test_with_or_run_the_command_runs_without_a_guard(tmp_path: Path) -> None:
    env = environment(tmp_path, **BAD_STEP, HOLDFAST_GUARD_SEED="0" * 64)

    done = guard(tmp_path, "--or-run", "--", "sh", "-c", "echo seed=$HOLDFAST_GUARD_SEED; exit 7", env=env)

    assert (done.returncode, done.stdout) == (7, "seed=\n")
    assert "runs without a guard" in done.stderr
    nothing_is_left(env)


def test_a_folder_that_takes_no_record_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = environment(tmp_path, FAILS="0")

    done = guard(tmp_path, "--record", "file/rec", "--", sys.executable, "-c", RANKS, env=env)

    assert done.returncode == 0, done.stderr
    assert "no record can be written to file/rec: Not a directory; name another folder with --record" in done.stderr
    assert os.listdir(env["TMPDIR"]) == []


def test_tasks_that_the_environment_numbers_make_one_job(tmp_path: Path) -> None:
    folders = [tmp_path / str(task) for task in range(2)]
    named = {"HOLDFAST_GUARD_HOST": "127.0.0.1", "HOLDFAST_GUARD_SEED": os.urandom(32).hex()}
    started = []
    for task, folder in enumerate(folders):
        folder.mkdir()
        of = {"RANK": str(task), "SIZE": "2", "LOCAL_RANK": str(task), "LOCAL_SIZE": "2"}
        mpi = {f"OMPI_COMM_WORLD_{name}": value for name, value in of.items()}
        env = environment(folder, **named, **mpi, FAILS="3,0", GUILTY="1")
        command = [*GUARD, "--", sys.executable, "-c", RANKS]
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
            )
        )

    said = [process.communicate(timeout=PATIENCE_S)[0].splitlines()[-1] for process in started]

    assert said == [f"rank {task} of 2 local {task} generation 2" for task in range(2)]
    assert [process.returncode for process in started] == [0, 0]
    for folder in folders:
        assert os.listdir(folder / "scratch") == []


ON_A_GPU = """
import os, pathlib, time
pathlib.Path("up-" + os.environ["HOLDFAST_GENERATION"]).write_text(str(os.getpid()))
step = 0
while not os.path.exists("broken"):
    step += 1
    print("step", step, flush=True)
    time.sleep(0.5)
time.sleep(1000)
"""


@pytest.mark.require("cc")
def test_a_broken_gpu_of_the_scheduler_is_told_and_ends_the_job_as_there_is_no_other_host(
    tmp_path: Path, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(2)
    fake_nvml.do(range(2), TRAINING)
    env = environment(tmp_path)
    options = ("--restart-on-hang", "--hang-timeout", "5s", "--record", "rec")
    process = subprocess.Popen(
        [*GUARD, *options, "--", sys.executable, "-c", ON_A_GPU],
        cwd=tmp_path,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for((tmp_path / "up-1").exists, "the rank runs")
        fake_nvml.say(f"pid 1 {(tmp_path / 'up-1').read_text()}")
        time.sleep(20)  # who holds a context is looked at four times a minute
        fake_nvml.do(range(2), SPINNING)
        fake_nvml.say("xid 1 79")
        (tmp_path / "broken").touch()
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 125, said
    assert "its GPU reported Xid 79" in said
    assert "no host takes work at present" in said.lower()
    nothing_is_left(env)
