"""``holdfast guard`` on one machine, without any scheduler."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import (
    GOES_ON,
    GUARD,
    PATIENCE_S,
    RANKS,
    WAITS,
    environment,
    guard,
    nothing_is_left,
    processes,
    wait_for,
)
from tests.support.fake_nvml.library import SPINNING, TRAINING, FakeNvml

from holdfast.guard.allocation import read
from holdfast.guard.shared_file import SharedFile

BAD_STEP = {"SLURM_STEP_NODELIST": "n1", "SLURM_NODEID": "3"}


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


def test_the_next_guard_removes_the_scratch_of_one_that_was_killed_with_all_that_was_its_own(
    tmp_path: Path,
) -> None:
    env = environment(tmp_path)
    process = subprocess.Popen([*GUARD, "--", sys.executable, "-c", WAITS], cwd=tmp_path, env=env)
    try:
        wait_for((tmp_path / "up-0").exists, "the rank runs")
        kept = os.listdir(env["TMPDIR"])
        assert guard(tmp_path, "--", "true", env=env).returncode == 0
        assert os.listdir(env["TMPDIR"]) == kept, "that of a guard that runs stays"
        cleaning = [pid for pid, line in processes(env).items() if "read -r end" in line]
        for pid in (*cleaning, *processes(env)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not processes(env), "all are dead")
        assert os.listdir(env["TMPDIR"]) == kept, "no one is left to remove it"
    finally:
        process.kill()
        process.wait()

    assert guard(tmp_path, "--", "true", env=env).returncode == 0
    nothing_is_left(env)


def test_sigusr1_is_passed_on_and_sigterm_ends_the_command_and_the_guard(tmp_path: Path) -> None:
    env = environment(tmp_path)
    process = subprocess.Popen([*GUARD, "--", sys.executable, "-c", WAITS], cwd=tmp_path, env=env)
    try:
        wait_for((tmp_path / "up-0").exists, "the rank runs")
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: (tmp_path / "caught-0").read_text() == "USR1\n", "the rank gets USR1")
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
    assert "SLURM_STEP_TASKS_PER_NODE is not set" in done.stderr
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


def test_tasks_of_a_launcher_without_a_secret_meet_by_a_file_of_their_folder(tmp_path: Path) -> None:
    started = []
    flux = {"FLUX_JOB_ID": f"f{os.urandom(4).hex()}", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "1"}
    for task in range(2):
        (tmp_path / str(task)).mkdir()
        numbers = {"FLUX_TASK_RANK": str(task), "FLUX_TASK_LOCAL_ID": str(task)}
        env = environment(tmp_path / str(task), **flux, **numbers, FAILS="3,0", GUILTY="1")
        command = [*GUARD, "--record", "rec", "--", sys.executable, "-c", RANKS]
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
            )
        )

    said = [process.communicate(timeout=PATIENCE_S)[0].splitlines()[-1] for process in started]

    assert said == [f"rank {task} of 2 local {task} generation 2" for task in range(2)]
    assert [process.returncode for process in started] == [0, 0]
    assert not list(tmp_path.glob(".holdfast-*")), "the secret is gone"


def test_a_requeued_launch_does_not_follow_the_file_of_the_one_before(tmp_path: Path) -> None:
    pbs = {"PBS_JOBID": f"{os.getpid()}.server", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    envs = [
        environment(tmp_path, **pbs, PMI_RANK=str(task), MPI_LOCALRANKID=str(task), FAILS="0") for task in range(2)
    ]
    job = read(envs[1], "host").job
    SharedFile(tmp_path, job).write(os.urandom(32), ["127.0.0.1"])
    command = [*GUARD, "--record", "rec", "--", sys.executable, "-c", RANKS]
    started = [
        subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        for env in reversed(envs)
    ]

    said = [process.communicate(timeout=PATIENCE_S)[0] for process in started]

    assert said == [f"rank {task} of 2 local {task} generation 1\n" for task in (1, 0)]
    assert not list(tmp_path.glob(".holdfast-*")), "the secret is gone"
    nothing_is_left(envs[0])


def test_a_spare_takes_the_place_of_a_task_that_is_gone(tmp_path: Path) -> None:
    named = {"HOLDFAST_GUARD_HOST": "127.0.0.1", "HOLDFAST_GUARD_SEED": os.urandom(32).hex()}
    named["NUMBERS"] = "PMI_RANK PMI_SIZE"
    started, envs = [], []
    for task in range(3):
        (tmp_path / str(task)).mkdir()
        numbers = {"PMI_RANK": str(task), "PMI_SIZE": "3", "MPI_LOCALRANKID": str(task), "MPI_LOCALNRANKS": "3"}
        envs.append(environment(tmp_path / str(task), **named, **numbers))
        command = [*GUARD, "--spares", "1", "--record", "rec", "--", sys.executable, "-c", GOES_ON]
        with (tmp_path / f"out-{task}").open("wb") as out:
            started.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env=envs[-1], stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
            )
    try:
        wait_for(lambda: (tmp_path / "up-0-1").exists() and (tmp_path / "up-1-1").exists(), "both ranks run")
        started[1].kill()
        # Where the end of its rank is heard of before the loss of its host, a restart in place has begun as 2.
        wait_for(lambda: bool(generations := both_run_as(tmp_path)) and max(generations) > 1, "both run again")
        (tmp_path / "over").touch()
        ends = [each.wait(PATIENCE_S) for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()

    said = [(tmp_path / f"out-{task}").read_text() for task in range(3)]
    assert ends == [0, -signal.SIGKILL, 0], said
    last = max(both_run_as(tmp_path))
    assert last == (3 if "restarting in place as generation 2" in said[0] else 2), said
    assert said[2] == f"rank 1 of 2 as 1 2 generation {last}\n", "in the spare, and with the number of its rank"
    assert "is gone: no spares are left" in said[0]
    assert f"guard: {'1 recovery' if last == 2 else '2 recoveries'}" in said[0]
    for env in envs:
        nothing_is_left(env)


def both_run_as(folder: Path) -> list[int]:
    """The generations as which both ranks have run."""
    return [g for g in (1, 2, 3) if all((folder / f"up-{rank}-{g}").exists() for rank in (0, 1))]


def test_spares_that_leave_no_task_are_refused(tmp_path: Path) -> None:
    done = guard(tmp_path, "--spares", "1", "--", "echo", "ran", env=environment(tmp_path))

    assert (done.returncode, done.stdout) == (125, "")
    assert "--spares 1 leaves no task for the ranks: there is one task. Ask the scheduler" in done.stderr


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


def asked(calls: Path, times: int) -> None:
    """Wait until the driver has been asked so often from now on: what counts its calls is in that file."""
    before = calls.stat().st_size if calls.exists() else 0
    wait_for(lambda: calls.exists() and calls.stat().st_size >= before + times, "the driver is asked")


@pytest.mark.require("cc")
def test_a_broken_gpu_of_the_scheduler_is_told_and_ends_the_job_as_there_is_no_other_host(
    tmp_path: Path, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(2)
    fake_nvml.do(range(2), TRAINING)
    env = environment(tmp_path)
    options = ("--restart-on-hang", "--hang-timeout", "20s", "--record", "rec")
    holders, events = tmp_path / "holders", tmp_path / "events"
    fake_nvml.say(f"count nvmlDeviceGetComputeRunningProcesses_v3 {holders}", f"count nvmlEventSetWait_v2 {events}")
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
        asked(holders, 7)  # three for both devices, four times a minute: a round is over that began after this
        fake_nvml.do(range(2), SPINNING)
        fake_nvml.say("xid 1 79")
        asked(events, 2)
        (tmp_path / "broken").touch()
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 125, said
    assert "its GPU reported Xid 79" in said
    assert "no host takes work at present" in said.lower()
    nothing_is_left(env)


LOADS = """
import json, os, pathlib, sys, time
generation = os.environ["HOLDFAST_GENERATION"]
pathlib.Path("up-" + generation).write_text(str(os.getpid()))
step = 0
while not os.path.exists("over-" + generation):
    step += 1
    print("step", step, flush=True)
    time.sleep(0.2)
sys.exit(3 if generation == "1" else 0)
"""


def parked(env: dict[str, str]) -> list[int]:
    """Pids of what waits for a warm start."""
    names = {pid: Path(f"/proc/{pid}/comm") for pid in processes(env)}
    return [pid for pid, name in names.items() if name.exists() and name.read_text() == "holdfast-warm\n"]


def is_prepared(folder: Path, env: dict[str, str]) -> bool:
    """Whether a warm start is at hand, by what the controller says of the job's worker."""
    command = (sys.executable, "-m", "holdfast", "job")
    config = env | {"HOLDFAST_CONFIG": str(folder / "rec/client.toml")}

    def said(*words: str) -> str:
        ran = subprocess.run([*command, *words], env=config, capture_output=True, text=True, timeout=PATIENCE_S)
        return ran.stdout

    return "modules wait in" in said("show", said("list", "-o", "name").strip(), "-o", "json")


@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_is_warm_and_what_is_warm_ends_with_the_guard(tmp_path: Path, *, killed: bool) -> None:
    env = environment(tmp_path)
    (tmp_path / "train.py").write_text(LOADS)
    command = [*GUARD, "--warm", "--record", "rec", "--", sys.executable, "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env)
    try:
        wait_for(lambda: parked(env) and is_prepared(tmp_path, env), "the next start is prepared")
        (tmp_path / "over-1").touch()
        wait_for((tmp_path / "up-2").exists, "it runs again")
        if killed:
            process.kill()
        else:
            (tmp_path / "over-2").touch()
        assert process.wait(PATIENCE_S) == (-signal.SIGKILL if killed else 0)
    finally:
        process.kill()
        process.wait()

    nothing_is_left(env)
    if not killed:
        job = json.loads((tmp_path / "rec/job.json").read_text())
        assert [each["warm"] for each in job["recoveries"]] == [True], job


def test_what_is_prepared_for_a_warm_start_ends_with_the_guard(tmp_path: Path) -> None:
    env = environment(tmp_path)
    (tmp_path / "train.py").write_text(LOADS)
    process = subprocess.Popen([*GUARD, "--warm", "--", sys.executable, "train.py"], cwd=tmp_path, env=env)
    try:
        wait_for(lambda: parked(env), "the next start is prepared")
    finally:
        process.kill()
        process.wait()

    nothing_is_left(env)


def test_the_page_of_a_guarded_job_is_served_where_it_is_asked_for(tmp_path: Path) -> None:
    env = environment(tmp_path)
    guarding = subprocess.Popen(
        [*GUARD, "--record", "rec", "--", sys.executable, "-c", WAITS], cwd=tmp_path, env=env
    )
    web = (sys.executable, "-m", "holdfast", "web", "--local", "--no-browser")
    page: subprocess.Popen[str] | None = None
    try:
        wait_for((tmp_path / "up-0").exists, "the rank runs")
        config = env | {"HOLDFAST_CONFIG": str(tmp_path / "rec/client.toml")}
        page = subprocess.Popen(web, cwd=tmp_path, env=config, stdout=subprocess.PIPE, text=True)
        assert page.stdout is not None
        address = page.stdout.readline().strip()
        with urllib.request.urlopen(address.partition("/login")[0], timeout=PATIENCE_S) as answer:
            assert answer.status == 200 and b"<title>" in answer.read()
    finally:
        for each in (page, guarding):
            if each is not None:
                each.kill()
                each.communicate()

    nothing_is_left(env)
