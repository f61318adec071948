"""Forks the ranks of a generation, or releases those that wait with their imports done."""

from __future__ import annotations

import signal

from holdfast_agent.shim import error_file
from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.generation import Rank
from holdfast_agent.shim.launch import spawn
from holdfast_agent.shim.process_setup import hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.warm.release import Release


def fork(
    generation: Generation, plans: list[Plan], identity: Identity, null: int, failures: int, release: Release | None
) -> None:
    """Start all ranks and record each; what can't be forked is recorded as not started."""
    hold(signal.SIGTERM)
    pids: list[tuple[Plan, int]] = []
    generation.forking()

    def start(plan: Plan, failures: int = failures) -> int | None:
        try:
            hit("shim.fork.before")
            return spawn(plan, identity, generation, null, failures)
        except OSError as error:
            generation.not_forked(plan.rank, f"cannot fork: {error.strerror}")
            return None

    for plan in plans:
        # What stops a child that hands over is no answer yet: its rank is then started cold, and says it itself.
        pid = start(plan, null) if release and plan.rank in release.parked else start(plan)
        if pid is not None:
            pids.append((plan, pid))
    if release:
        pids = release.ready(pids, start)
        for plan, pid in pids:
            if plan.binding and plan.rank in release.parked:
                plan.binding.give(pid, plan.files[1])
    hold()
    hit("shim.fork.after")
    for plan, pid in pids:
        words = plan.stdout if plan.terminal else plan.stderr  # on a terminal both are one
        rank = Rank(plan.rank, pid, plan.stdout, words, plan.env.get(error_file.VARIABLE, b""))
        how = release.parked.get(plan.rank) if release else None
        generation.started(rank, warm=how is not None, in_process=how is not None and how.survived)
    hit("shim.started.before")
    if release:
        release.go()
