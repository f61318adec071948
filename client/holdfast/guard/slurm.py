"""The settings of the Slurm that has started this task."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping

from holdfast.guard.allocation import Allocation

TOOL_S = 10.0
USUAL_GRACE_S = 10.0
ENDS_S = 5.0
"""For the guard to end after its ranks, before Slurm kills what is left."""
LEAST_GRACE_S = 1.0
OTHERS_END_S = 3.0
"""For the other tasks to remove their scratch folders once they have left."""


def end_step() -> None:
    """Have Slurm kill what is left of this step: ``srun`` waits for ever for a task whose slurmstepd is dead."""
    time.sleep(OTHERS_END_S)  # all tasks are killed
    step = f"{os.environ.get('SLURM_JOB_ID')}.{os.environ.get('SLURM_STEP_ID')}"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", step], capture_output=True, timeout=TOOL_S, check=False)


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


def grace_s(place: Allocation, wanted: float | None) -> float | None:
    """The time between TERM and KILL: as wanted, else what Slurm's ``KillWait`` leaves; None is the usual one."""
    if wanted is not None or place.kind != "slurm":
        return wanted
    found = re.match(r"\d+", settings().get("KillWait", ""))
    return max(LEAST_GRACE_S, min(USUAL_GRACE_S, int(found[0]) - ENDS_S)) if found else None
