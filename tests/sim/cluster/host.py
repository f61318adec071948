"""A machine that runs work: disk, process table, clock, power; an agent, and a shim for each place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.cluster.agent import Agent
from tests.sim.cluster.clock import Clock
from tests.sim.cluster.disk import Disk
from tests.sim.cluster.processes import Process, ProcessTable
from tests.sim.cluster.shim_model import REAP_S, Shim

from holdfast._session.reports import WorkerId
from holdfast_controller.core.model.hosts.host import Gpu, Inventory

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

GIB = 1 << 30
SEEN_S = 0.001
"""From the end of a shim to its agent's notice."""
AGENT_BACK_S = 2.0
BOOT_S = 30.0


class Host:
    """One machine."""

    def __init__(self, world: World, name: str, clock: Clock, gpus: int = 2) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.disk = Disk()
        self.table = ProcessTable(name, self._process_ended)
        self.shims: dict[WorkerId, Shim] = {}
        """Those that can be reached through their place's directory."""
        self.powered = True
        self.boots = 1
        self.outputs: set[tuple[WorkerId, int]] = set()
        self.busy_until: dict[str, float] = {}
        """By GPU: true time at which the driver has given its memory back."""
        self.inventory = Inventory(
            16, 64 * GIB, tuple(Gpu(f"{name}-gpu{i}", i, "H100", 80 * GIB) for i in range(gpus))
        )
        self.agent: Agent | None = Agent(self)
        self._pids = 1000

    @property
    def boot_id(self) -> str:
        """Changes with every boot."""
        return f"{self.name}-boot{self.boots}"

    @property
    def address(self) -> str:
        """Under which others reach it."""
        return f"10.0.0.{self.name.removeprefix('host-')}"

    # --- the agent ----------------------------------------------------------------------------------------------

    def crash_agent(self, back_s: float = AGENT_BACK_S) -> None:
        """Its process dies; what it looks after doesn't mind; a supervisor starts it again."""
        if self.agent is None:
            return
        self.world.tell(f"the agent of {self.name} dies")
        self.world.seen("agent crash")
        agent, self.agent = self.agent, None
        agent.end()
        boots = self.boots
        self.world.engine.after(back_s, lambda: self._start_agent(boots))

    def _start_agent(self, boots: int) -> None:
        if self.powered and self.boots == boots and self.agent is None:
            self.world.tell(f"the agent of {self.name} starts")
            self.agent = Agent(self)

    # --- shims --------------------------------------------------------------------------------------------------

    def new_shim(self, key: WorkerId) -> Shim:
        """Started by the agent, and ready to listen in the place's directory."""
        self._pids += 1
        shim = self.shims[key] = Shim(self, key, self._pids)
        return shim

    def shim_died(self, shim: Shim) -> None:
        """Its children are adopted by init; its agent is told by the kernel."""
        self.world.seen("shim crash")
        if self.shims.get(shim.key) is shim:
            del self.shims[shim.key]
        for process in self.table.of(shim.key, 1 << 30):
            if not process.runs:
                self.table.reap(process)
        agent = self.agent
        if agent is not None:
            self.world.engine.after(SEEN_S, lambda: agent.on_shim_gone(shim), agent.life, self.crash_agent)

    def _process_ended(self, process: Process) -> None:
        process.ended_at = self.world.engine.now
        self.world.oracles.on_end(process)
        weights, dice = self.world.weights, self.world.dice
        if process.gpus and dice.random() < weights.gpu_slow:
            for gpu in process.gpus:
                self.busy_until[gpu] = self.world.engine.now + dice.random() * 15.0
        shim = self.shims.get(process.key)
        if shim is None or not shim.life.alive:
            self.table.reap(process)
            return
        delay_s = dice.random() * 3.0 if dice.random() < weights.reap_slow else REAP_S
        self.world.engine.after(delay_s, shim.reap, shim.life, shim.die)

    # --- power --------------------------------------------------------------------------------------------------

    def lose_power(self, for_s: float = BOOT_S) -> None:
        """Everything that runs is gone at once, and what was not synced."""
        if not self.powered:
            return
        self.world.tell(f"{self.name} loses power")
        self.world.seen("power loss")
        self.powered = False
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.end(silently=True)
        for shim in self.shims.values():
            shim.life.alive = False
        self.shims.clear()
        for process in self.table.power_off():
            process.ended_at = self.world.engine.now
        self.disk.lose_power(self.world.dice)
        self.outputs.clear()
        self.busy_until.clear()
        self.world.engine.after(for_s, self.boot)

    def boot(self) -> None:
        """Power is back."""
        if self.powered or self.world.is_held_off(self.name):
            return
        self.powered = True
        self.boots += 1
        self.world.tell(f"{self.name} is back")
        self.agent = Agent(self)
