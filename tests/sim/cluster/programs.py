"""What users' programs do: run, end, fail, hang, leave something behind, and take signals as they please."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.cluster.processes import KILL, Process

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

FAILURES = (1 << 8, 1 << 8, 2 << 8, 137 << 8, 6, 9, 11, 134 << 8)
"""Raw wait statuses."""
PEER_LOST_S = 2.0


@dataclass(frozen=True)
class Script:
    """How one generation of a job goes: how long, and which rank spoils it how (None: none)."""

    runs_s: float
    bad_rank: int | None = None
    status: int = 0
    hangs: bool = False


class Programs:
    """One script for each generation of each job, drawn when its first rank starts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scripts: dict[tuple[str, int], Script] = {}
        self.lengths: dict[str, float] = {}
        """Of jobs that a story has given one; drawn otherwise."""

    def start(self, process: Process) -> None:
        """A rank's program has begun."""
        world, dice, weights = self.world, self.world.dice, self.world.weights
        name = process.key.job, process.generation
        script = self.scripts.get(name)
        if script is None:
            script = self.scripts[name] = self._draw(process.key.job)
        process.unkillable = dice.random() < weights.unkillable
        process.deaf = dice.random() < weights.deaf
        if process.unkillable:
            world.engine.after(dice.random() * 200.0, lambda: self.release(process))
        if dice.random() < weights.helpers:
            left = world.hosts[process.host].table.spawn(
                process.key, process.generation, process.rank, (), helper=True
            )
            left.fence_at = process.fence_at
            world.engine.after(script.runs_s + dice.random() * 20.0, lambda: self._end(left, 0))
        if script.hangs:
            world.engine.after(script.runs_s * 0.5, lambda: setattr(process, "hung", True))
        elif script.bad_rank == process.rank:
            world.engine.after(script.runs_s * dice.random(), lambda: self._fail(process, script.status))
        else:
            world.engine.after(script.runs_s + dice.random() * 0.1, lambda: self._end(process, 0))

    def _draw(self, job: str) -> Script:
        world, dice, weights = self.world, self.world.dice, self.world.weights
        runs_s = self.lengths.get(job) or dice.choice([1.0, 20.0, 60.0, 200.0])
        if world.healed:
            return Script(min(runs_s, 10.0))
        roll = dice.random()
        if roll < weights.user_error:
            # A check of a host is a job of no user's.
            gang = world.jobs.get(job) or world.oracles.ledger.jobs[job].gang
            ranks = gang.rank_count
            return Script(runs_s, dice.randrange(ranks), dice.choice(FAILURES))
        return Script(runs_s, hangs=roll < weights.user_error + weights.hang)

    def signal(self, process: Process, number: int) -> None:
        """TERM may be ignored, and KILL takes no effect while a process is in the kernel."""
        if not process.runs or (number != KILL and process.deaf):
            return
        if process.unkillable:
            process.doomed |= number == KILL
            self.world.seen("unkillable")
            return
        delay_s = 0.0005 if number == KILL else 0.01 + self.world.dice.random() * 0.2
        self.world.engine.after(delay_s, lambda: self._end(process, number))

    def warned(self, process: Process) -> None:
        """It saves and leaves."""
        self.world.engine.after(1.0, lambda: self._end(process, 0))

    def release(self, process: Process) -> None:
        """It has come back from the kernel."""
        process.unkillable = False
        if process.doomed:
            self._end(process, KILL)

    def _fail(self, process: Process, status: int) -> None:
        """It ends by itself, and those that wait for it a while later."""
        if not process.runs:
            return
        self._end(process, status)
        for host in self.world.hosts.values():
            for peer in host.table.all_running():
                if peer.key.job == process.key.job and peer.generation == process.generation:
                    delay_s = self.world.dice.random() * PEER_LOST_S
                    self.world.engine.after(delay_s, partial(self._end, peer, 1 << 8))

    def _end(self, process: Process, status: int) -> None:
        if process.runs and not process.unkillable:
            self.world.hosts[process.host].table.end(process, status)
        elif process.runs:
            process.doomed = True
