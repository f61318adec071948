"""Answers of the Slurm that has started this task, and of the Flux around it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import time
from collections.abc import Collection, Mapping

from holdfast.guard.allocation import Allocation

TOOL_S = 10.0
USUAL_GRACE_S = 10.0
ENDS_S = 5.0
"""For the guard to end after its ranks, before Slurm kills what is left."""
LEAST_GRACE_S = 1.0
_NO_GPU = ("", "-1", "NoDevFiles")
OTHERS_END_S = 3.0
"""For the other tasks to remove their scratch folders once they have left."""


def end_step() -> None:
    """Have Slurm kill what is left of this step: ``srun`` waits for ever for a task whose slurmstepd is dead."""
    time.sleep(OTHERS_END_S)  # all tasks are killed
    step = f"{os.environ.get('SLURM_JOB_ID')}.{os.environ.get('SLURM_STEP_ID')}"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", step], capture_output=True, timeout=TOOL_S, check=False)


def hidden_gpus(environ: Mapping[str, str], devices: Collection[str], host: str) -> str:
    """Why a program finds none of the GPUs that Slurm says this task has, and what to do; empty where it finds them."""
    given = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS")
    visible = environ.get("CUDA_VISIBLE_DEVICES", "all")
    if not given:
        return ""
    if visible in _NO_GPU:
        why, fix = f"CUDA_VISIBLE_DEVICES is {visible!r}", "See --gpus-per-task and --gpu-bind of srun"
    elif not any(name == "kfd" or re.fullmatch(r"nvidia\d+", name) for name in devices):
        why, fix = "there is no device of one in /dev", "See that its driver is loaded"
    else:
        return ""
    said = f"Slurm has given GPU {given} of {host} to this step, and the program sees none: {why}."
    return f"{said} {fix}, or --exclude={host}."


def beside_script(environ: Mapping[str, str], ranks: int) -> str:
    """Say what of a job is left out by a guard of so many ranks that the job's script has started, and no step.

    Empty where it leaves nothing out, or Slurm hasn't started it.
    """
    if not environ.get("SLURM_JOB_ID"):
        return ""
    hosts, tasks = (_whole(environ.get(name, "")) or 0 for name in ("SLURM_JOB_NUM_NODES", "SLURM_NTASKS"))
    if hosts > 1:
        given, here = f"{hosts} hosts", ", on this host alone"
    elif tasks > ranks:
        given, here = f"{tasks} tasks", " beside them"
    else:
        return ""
    runs = "one rank" if ranks == 1 else f"{ranks} ranks"
    return f"Slurm has given this job {given}, and the guard runs {runs}{here}. For all: srun holdfast guard -- …"


def settings() -> Mapping[str, str]:
    """Its configuration by name; empty where Slurm doesn't say."""
    try:
        done = subprocess.run(["scontrol", "show", "config"], capture_output=True, timeout=TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return facts(done.stdout, "=")


def facts(text: bytes, separator: str) -> dict[str, str]:
    """The name and value in each line of a tool's output."""
    lines = (line.partition(separator) for line in os.fsdecode(text).splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def is_around() -> bool:
    """Whether this is a task of Slurm's job, its script, or the shell of ``salloc``."""
    return bool(os.environ.get("SLURM_JOB_ID"))


def grace_s(wanted: float | None) -> float | None:
    """The time between TERM and KILL: as wanted, else what Slurm's ``KillWait`` leaves; None is the usual one."""
    if wanted is not None or not is_around():
        return wanted
    found = re.match(r"\d+", settings().get("KillWait", ""))
    return max(LEAST_GRACE_S, min(USUAL_GRACE_S, int(found[0]) - ENDS_S)) if found else None


def time_left_s(place: Allocation) -> float | None:
    """Seconds until Slurm ends this step or its job for its time; None where it has no limit, or doesn't say."""
    if not is_around():
        return None
    end = (_whole(os.environ.get("SLURM_JOB_END_TIME", "")) or 0) - time.time()
    # One that is over may be of a job that a shell, such as tmux's, has outlived.
    of_job = end if end > 0 else _seconds(_squeue("-j", os.environ["SLURM_JOB_ID"], "-o", "%L"))
    step = place.job.partition("-")[0] if place.kind == "slurm" else ""
    limit, _, used = (_squeue("-s", step, "-o", "%l %M") if step else "").partition(" ")
    left = [each for each in (of_job, _seconds(limit) - _seconds(used)) if not math.isnan(each)]
    over = re.match(r"\d+ ", settings().get("OverTimeLimit", "")) if left else None
    return min(left) + (60 * int(over[0]) if over else 0) if left else None


def _whole(text: str) -> int | None:
    """The whole number that a variable holds; None where it holds none, or one of absurd length."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def size_of_flux() -> str:
    """How many hosts Flux has given to the job around this process, by its own word; empty without one."""
    return _asked("flux", "getattr", "size")


def _squeue(*options: str) -> str:
    """The answer of squeue about one job or step; empty without one."""
    return _asked("squeue", "-h", *options)


def _asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout).strip()


def _seconds(text: str) -> float:
    """``1-02:03:04``, ``02:03:04`` or ``3:04`` in seconds; not a number for anything else, such as UNLIMITED."""
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return math.nan
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
