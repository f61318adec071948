"""``srun holdfast guard`` on a real Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
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
    guard_of,
    nothing_is_left,
    processes,
    rank_pid,
    wait_for,
)
from tests.support.slurm_cluster import Slurm

from holdfast.guard import rank_signals

pytestmark = pytest.mark.require("slurm")
BY_BOTH = pytest.mark.parametrize("slurm", ["parents", "cgroups"], indirect=True)
"""By what Slurm knows the processes of a step."""
EXAMPLES = Path(__file__).parents[3] / "examples"
# Waits for USR1 and then for its end; once requeued it ends by itself.
CATCHES = """\
import os, pathlib, signal, time
rank, restarts = os.environ["RANK"], os.environ.get("SLURM_RESTART_COUNT", "")
caught = open(f"caught-{rank}", "a", buffering=1)
signal.signal(signal.SIGUSR1, lambda *_: print("USR1", file=caught))
pathlib.Path(f"up-{rank}-{restarts}").write_text("")
while not restarts:
    time.sleep(0.1)
"""


@BY_BOTH
def test_ranks_are_the_tasks_and_the_step_ends_as_the_guilty_rank_did(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, FAILS="3,7", GUILTY="1", SLURM_CONF=slurm.environment["SLURM_CONF"])
    command = (*GUARD, "--max-restarts", "1", "--record", "rec", "--", sys.executable, "-c", RANKS)

    step = slurm.srun("-N2", "--ntasks=3", "--label", *command, cwd=tmp_path, env=env)
    out, err = step.communicate(timeout=PATIENCE_S)

    assert step.returncode == 7, err
    assert "task 1: Exited with exit code 7" in err
    assert err.count("Exited with exit code") == 1, "the victims' tasks end well"
    # Two tasks on the first node, one on the second.
    ranks = [f"{rank}: rank {rank} of 3 local {local} generation 2" for rank, local in ((0, 0), (1, 1), (2, 0))]
    assert sorted(line for line in out.splitlines() if line.endswith("generation 2")) == ranks
    assert "guard: 1 recovery" in err
    assert (tmp_path / "rec/job.json").exists()
    nothing_is_left(env)


@BY_BOTH
def test_a_cancelled_step_leaves_nothing(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N2", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists(), "both ranks run")

    if slurm.cgroups:
        inside = f":freezer:/slurm_{slurm.name}"
        outside = [
            line for pid, line in processes(env).items() if inside not in Path(f"/proc/{pid}/cgroup").read_text()
        ]
        assert all(line.startswith("srun ") for line in outside), "what Slurm would not find"
    slurm.run("scancel", "--me")

    step.communicate(timeout=PATIENCE_S)
    assert step.returncode != 0
    nothing_is_left(env)


def test_a_training_goes_on_after_a_rank_that_hangs_and_one_that_is_killed(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"], OMP_NUM_THREADS="1")
    sizes = "--epochs 12 --report-every 4 --step-time 0.01 --checkpoint-every 25 --checkpoint-dir saved"
    fault = "--hang-rank 3 --hang-step 60"
    options = ("--restart-on-hang", "--hang-timeout", "5s", "--record", "rec")
    training = (sys.executable, str(EXAMPLES / "digits/train.py"), *sizes.split(), *fault.split())
    step = slurm.srun("-N4", "-o", "out", *GUARD, *options, "--", *training, cwd=tmp_path, env=env)
    out = tmp_path / "out"
    wait_for(
        lambda: out.exists() and "rank=1 world_size=4 local_rank=0 generation=2" in out.read_text(), "it went on"
    )

    os.kill(rank_pid(env, 1, generation=2), signal.SIGKILL)

    step.communicate(timeout=PATIENCE_S)
    said = out.read_text()
    assert step.returncode == 0, said
    resumed = re.findall(r"rank=0 .* generation=(\d) resumed from step (\d+)", said)
    assert [generation for generation, _ in resumed] == ["2", "3"] and resumed[0][1] == "50"
    assert "done step=528" in said
    assert "guard: 2 recoveries" in said and "1 hang noticed; see rec" in said
    assert "rank 3 is in data_loader.py" in (tmp_path / "rec/hang-1.txt").read_text()
    nothing_is_left(env)


@pytest.mark.require("torch")
def test_ddp_goes_on_from_its_checkpoint_after_a_rank_is_killed(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"], OMP_NUM_THREADS="1")
    env["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "compiled")  # it would lie in the scratch folder
    sizes = "--epochs 2 --log-every 20 --checkpoint-every 25 --checkpoint-dir saved"
    fault = f"--crash-rank 1 --crash-step 60 --crash-signal {int(signal.SIGKILL)}"
    training = (sys.executable, str(EXAMPLES / "ddp_torch/train.py"), *sizes.split(), *fault.split())

    step = slurm.srun("-N2", *GUARD, "--", *training, cwd=tmp_path, env=env)
    out, err = step.communicate(timeout=PATIENCE_S)

    assert step.returncode == 0, err
    assert "rank=0 world_size=2 device=cpu from step 50" in out
    assert "done step=" in out and "guard: 1 recovery" in err
    nothing_is_left(env)


@BY_BOTH
def test_a_signal_reaches_the_ranks_once_and_a_requeued_job_goes_on_with_a_record_of_its_own(
    slurm: Slurm, tmp_path: Path
) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    (tmp_path / "train.py").write_text(CATCHES)
    step = f"srun {' '.join(GUARD)} -- {sys.executable} train.py"
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n#SBATCH -N2 --requeue --open-mode=append -o out\n{step}\n")
    submitted = ("sbatch", "--parsable", "--chdir", str(tmp_path), "job.sh")
    job = slurm.run(*submitted, cwd=tmp_path, env=env).strip()
    wait_for(lambda: (tmp_path / "up-0-").exists() and (tmp_path / "up-1-").exists(), "both ranks run")

    slurm.run("scancel", "--signal=USR1", job)

    wait_for(lambda: all((tmp_path / f"caught-{rank}").read_text() for rank in (0, 1)), "both got USR1")
    time.sleep(4 * rank_signals.SPREADS_S)  # a second one would have come by now
    assert [(tmp_path / f"caught-{rank}").read_text() for rank in (0, 1)] == ["USR1\n", "USR1\n"]
    slurm.run("scontrol", "requeue", job)

    def begins_again() -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):  # Slurm has it wait two minutes once it has ended
            slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        return (tmp_path / "up-0-1").exists()

    wait_for(begins_again, "it begins again")
    wait_for(lambda: "JobState=COMPLETED" in slurm.run("scontrol", "show", "job", job), "it has ended")
    records = {path.name: (path / "job.txt").read_text() for path in tmp_path.glob("holdfast-*")}
    assert set(records) == {f"holdfast-{job}.0", f"holdfast-{job}.0-restart1"}, (tmp_path / "out").read_text()
    assert "slurm-restarts" not in records[f"holdfast-{job}.0"]
    assert f"slurm-job={job}, slurm-restarts=1" in records[f"holdfast-{job}.0-restart1"]
    nothing_is_left(env)


@BY_BOTH
def test_a_task_whose_guard_is_killed_ends_the_step(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N2", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists(), "both ranks run")

    os.kill(guard_of(env, 1), signal.SIGKILL)

    _, err = step.communicate(timeout=PATIENCE_S)
    assert re.search(r"Task 1 on \w*n[1-4] is gone before its time", err), err
    (record,) = tmp_path.glob("holdfast-*")
    assert {"job.json", "job.txt", "events.jsonl"} <= {path.name for path in record.iterdir()}
    assert f"guard: see {record.name}" in err
    assert step.returncode != 0
    if slurm.cgroups:  # by which Slurm kills what would remove the scratch of the dead guard, too
        wait_for(lambda: not processes(env), "no process is left")
        assert guard(tmp_path, "--", "true", env=env).returncode == 0
    nothing_is_left(env)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def child_of(pid: int, word: str) -> int:
    """The pid of a child with this word in its command line; 0 without one."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    return 0


def test_a_spare_node_takes_the_place_of_one_whose_slurmstepd_dies(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"], NUMBERS="SLURM_PROCID SLURM_NTASKS")
    # Slurm itself waits for ever for a slurmstepd that is dead, unless it is told how long.
    options = ("-N3", "--wait=5", "--label")
    step = slurm.srun(*options, *GUARD, "--spares=1", "--", sys.executable, "-c", GOES_ON, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0-1").exists() and (tmp_path / "up-1-1").exists(), "both ranks run")

    os.kill(parent_of(guard_of(env, 1)), signal.SIGKILL)

    wait_for(lambda: any((tmp_path / f"up-1-{each}").exists() for each in (2, 3)), "it runs again")
    (tmp_path / "over").touch()
    out, err = step.communicate(timeout=PATIENCE_S)
    assert re.search("2: rank 1 of 2 as 1 2 generation [23]", out), out
    assert re.search(r"task 1 on \w*n[1-4] is gone: no spares are left", err), err
    assert step.returncode == 0, err
    nothing_is_left(env)


@BY_BOTH
@pytest.mark.parametrize("task", [0, 1])
def test_a_step_ends_when_a_slurmstepd_of_it_dies(slurm: Slurm, tmp_path: Path, task: int) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N2", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists(), "both ranks run")

    os.kill(parent_of(guard_of(env, task)), signal.SIGKILL)

    _, err = step.communicate(timeout=PATIENCE_S)
    assert step.returncode != 0, err
    nothing_is_left(env)


@pytest.mark.parametrize("daemon", ["holdfast_agent", "holdfast_controller"])
def test_ranks_run_on_when_a_daemon_of_the_guard_is_killed(slurm: Slurm, tmp_path: Path, daemon: str) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"], NUMBERS="SLURM_PROCID SLURM_NTASKS")
    step = slurm.srun("-N2", "--label", *GUARD, "--", sys.executable, "-c", GOES_ON, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0-1").exists() and (tmp_path / "up-1-1").exists(), "both ranks run")
    first = guard_of(env, 0)
    killed = child_of(first, daemon)

    os.kill(killed, signal.SIGKILL)

    wait_for(lambda: child_of(first, daemon) not in (0, killed), "it is started again")
    (tmp_path / "over").touch()
    out, err = step.communicate(timeout=PATIENCE_S)
    assert step.returncode == 0, err
    assert sorted(out.splitlines()) == [f"{rank}: rank {rank} of 2 as {rank} 2 generation 1" for rank in (0, 1)]
    nothing_is_left(env)


# Reports its first step after a while, and then steps until it is told to stop; SIGUSR1 is noted.
TRAINS = """\
import os, pathlib, signal, sys, time
generation = os.environ["HOLDFAST_GENERATION"]
signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path("warned").write_text(generation))
time.sleep(float(os.environ["STARTS"]))
for step in range(100000):
    print(f"step={step}", flush=True)
    if os.path.exists("crash"):
        sys.exit(3)
    time.sleep(0.2)
"""


def limited(slurm: Slurm, folder: Path, starts_s: float) -> tuple[str, dict[str, str]]:
    """A job of one minute, the shortest limit, in which a guard runs; its number and environment."""
    env = environment(folder, SLURM_CONF=slurm.environment["SLURM_CONF"], STARTS=str(starts_s))
    (folder / "train.py").write_text(TRAINS)
    step = f"srun {' '.join(GUARD)} --signal=USR1@20 --record rec -- {sys.executable} train.py"
    (folder / "job.sh").write_text(f"#!/bin/sh\n#SBATCH -N1 -t1 -o out\n{step}\n")
    return slurm.run("sbatch", "--parsable", "--chdir", str(folder), "job.sh", cwd=folder, env=env).strip(), env


def test_a_time_limit_is_warned_of_and_recorded_as_such_also_by_slurm(slurm: Slurm, tmp_path: Path) -> None:
    job, env = limited(slurm, tmp_path, 0)

    wait_for((tmp_path / "warned").exists, "the rank is warned 20 s before the limit")
    wait_for(lambda: "JobState=TIMEOUT" in slurm.run("scontrol", "show", "job", job), "Slurm calls it a timeout")
    nothing_is_left(env)
    said = (tmp_path / "out").read_text()
    assert "guard: ended by the time limit; see rec" in said
    assert "ended-by=time-limit" in (tmp_path / "rec/job.txt").read_text()


def test_no_relaunch_begins_that_the_time_limit_would_end_before_its_first_step(
    slurm: Slurm, tmp_path: Path
) -> None:
    job, env = limited(slurm, tmp_path, 25)
    wait_for((tmp_path / "warned").exists, "it is 20 s before the limit")
    wait_for(lambda: "step=0\n" in (tmp_path / "out").read_text(), "it has begun its work")

    (tmp_path / "crash").touch()

    wait_for(lambda: "JobState=FAILED" in slurm.run("scontrol", "show", "job", job), "the job has ended")
    assert "ExitCode=3:0" in slurm.run("scontrol", "show", "job", job)
    said = (tmp_path / "out").read_text()
    assert re.search(r"Its time is over in \d+ s, and it takes 2\d s to begin its work", said), said
    assert "restarting" not in said
    nothing_is_left(env)


def test_components_of_a_heterogeneous_step_are_one_job(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, FAILS="3,0", GUILTY="2", SLURM_CONF=slurm.environment["SLURM_CONF"])
    command = (*GUARD, "--", sys.executable, "-c", RANKS)

    step = slurm.srun("-N1", "-n1", *command, ":", "-N1", "-n2", *command, cwd=tmp_path, env=env)
    out, err = step.communicate(timeout=PATIENCE_S)

    assert step.returncode == 0, err
    ranks = [f"rank {rank} of 3 local {local} generation 2" for rank, local in ((0, 0), (1, 0), (2, 1))]
    assert sorted(line for line in out.splitlines() if line.endswith("generation 2")) == ranks
    nothing_is_left(env)
