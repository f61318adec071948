"""What agents tell of ranks that stand still: taken from the truth about the simulated programs."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tests.sim.cluster import framing

from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, ThreadStack
from holdfast.hang.evidence.evidence import Vector as Sample
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.samples import State
from holdfast_agent.core.worker.states import Running
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st

if TYPE_CHECKING:
    from tests.sim.cluster.agent import Agent
    from tests.sim.cluster.world import World

STEP_S = 2.0
SAVE_EVERY = 5.0
FRAMES = (
    Frame("all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2501),
    Frame("train", "/home/ann/train.py", 80),
)


def vectors(agent: Agent) -> list[framing.Vector]:
    """Of every worker here whose job is watched."""
    world, host = agent.host.world, agent.host
    found = []
    for worker in agent.reactor.workers.values():
        if not isinstance(worker.state, Running) or worker.key.job not in world.watched:
            continue
        processes = [p for p in host.table.of(worker.key, worker.state.generation) if p.runs and not p.helper]
        now = host.clock.mono()
        ranks = []
        for process in sorted(processes, key=lambda p: p.rank):
            still = world.still_since.setdefault((process.host, process.birth), now) if process.hung else now
            motion = Motion.BLOCKED if process.hung else Motion.WORKING
            ranks.append(RankFeatures(process.rank, motion, still, state=State.SLEEPING, wchan="futex"))
        if ranks:
            printed = None if any(p.hung for p in processes) else now
            since = printed if printed is not None else ranks[0].still_since_s
            output = progress(agent, worker.key.job, worker.state.generation, since)
            features = WorkerFeatures(worker.key.worker, host.name, now, tuple(ranks), output)
            found.append(framing.Vector(worker.key.job, worker.state.generation, now, features))
    return found


def progress(agent: Agent, job: str, generation: int, moved: float) -> OutputFeatures:
    """What the output of a worker tells of steps, saves and phases, with which no rule for hangs reckons.

    It depends on the job and its generation alone, so that worlds are what they were without it: some programs tell
    nothing, some count without a save, some go back to before their last save, some count what are no steps.
    """
    kind = zlib.crc32(f"{job}/{generation}".encode())
    host = agent.host
    began = host.world.working_since.setdefault((host.name, job, generation), host.clock.mono())
    step = max(moved - began, 0.0) // STEP_S
    resumed = float(kind // 64 % 40) if generation > 1 else None
    saved = step - step % SAVE_EVERY if kind % 8 in (2, 3, 4, 5) and step >= SAVE_EVERY else None
    match kind % 8:
        case 0:
            return OutputFeatures(moved)
        case 1:
            fell = kind // 8 % 20
            return OutputFeatures(
                moved, bar_step=step % (fell + 1), step_fell=step > fell, step_total=float(fell) / 2
            )
        case _:
            phase = ("train", "train", "save", "evaluate")[kind // 8 % 4] if step % 7 == 6 else ""
            return OutputFeatures(
                moved, bar_step=(resumed or 0.0) + step, phase=phase, saved_step=saved, resumed_step=resumed
            )


def evidence(world: World, asked: act.TakeEvidence) -> st.EvidenceArrived:
    """Dumps of a worker's ranks, taken where it is."""
    host = world.hosts[asked.host]
    ranks = [
        RankEvidence(process.rank, ProcessEvidence(process.pid, looks=_LOOKS))
        for process in host.table.all_running()
        if process.key == (asked.job_id, asked.worker) and process.generation == asked.generation
    ]
    if not ranks:
        return st.EvidenceArrived(
            asked.host, asked.job_id, asked.generation, asked.worker, asked.dump, problem="no rank runs there"
        )
    found = Evidence(
        asked.job_id, asked.worker, asked.host, asked.generation, host.clock.wall(), ranks=tuple(ranks)
    )
    return st.EvidenceArrived(asked.host, asked.job_id, asked.generation, asked.worker, asked.dump, found, b"dumps")


_LOOKS = tuple(
    Look(at_s, Sample("S"), Dump("py-spy", (ThreadStack(1, frames=FRAMES, main=True),))) for at_s in (0.0, 5.0)
)
