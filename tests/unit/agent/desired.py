"""Assignments and hosts for the agent's unit tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast._session.assignment import Assignment, Launch, Phase, Rendezvous, Task
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser

KEY = WorkerId("job-1", "workerpool0-0")
FACTS = HostFacts(
    name="host-0",
    log_dir="/logs",
    scratch_dir="/scratch",
    user=WorkerUser("ada", "/home/ada", "/bin/bash"),
    cpu_count=16,
)
LAUNCH = Launch(task=Task(("python",), ("train.py",)), first_rank=0, processes=2, world_size=2)
RENDEZVOUS = Rendezvous("10.0.0.1", 20001, "s3cret", (("10.0.0.1:20000",),))


def desired(
    phase: Phase, generation: int = 1, *, key: WorkerId = KEY, epoch: int = 1, **changes: Any
) -> Assignment:
    """What a controller would want."""
    launch: Launch | None = None
    if phase is Phase.PREPARE:
        launch = LAUNCH
    if phase is Phase.RUN:
        launch = replace(LAUNCH, rendezvous=RENDEZVOUS)
    return replace(Assignment(epoch, key, 1, generation, phase, launch=launch), **changes)
