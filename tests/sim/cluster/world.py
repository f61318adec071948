"""The simulated cluster: engine, machines, network, database, users; and what a plan may do to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim import moves
from tests.sim.bugs import Bugs
from tests.sim.cluster import hangs
from tests.sim.cluster.clock import Clock
from tests.sim.cluster.controller import Controller
from tests.sim.cluster.database import Database, Fate
from tests.sim.cluster.host import Host
from tests.sim.cluster.network import Network
from tests.sim.cluster.programs import Programs
from tests.sim.cluster.users import Users
from tests.sim.coverage import Coverage
from tests.sim.engine import Crash, Engine, Life, Violation
from tests.sim.faults import Weights
from tests.sim.moves import Move
from tests.sim.oracles import Oracles
from tests.sim.plan import Plan

from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.step import actions as act

CONTROLLER_BACK_S = 3.0
SETTLES_WITHIN_S = 1800.0
"""Once nothing fails any more every job ends within this time: the stated bound of liveness."""
LOOK_EVERY_S, HEAL_S = 10.0, 30.0


class World:
    """One plan, carried out. ``run`` raises ``Violation`` when something doesn't hold that must."""

    def __init__(self, plan: Plan, bugs: Bugs | None = None) -> None:
        self.plan = plan
        self.bugs = bugs or Bugs()
        self.engine = Engine()
        self.dice = random.Random(plan.dice)
        self.weights: Weights = plan.weights
        self.has_epilog = plan.has_epilog
        self.healed = False
        self.story: list[tuple[float, str]] = []
        self.jobs: dict[str, Gang] = {}
        self.watched: set[str] = set()
        self.still_since: dict[tuple[str, int], float] = {}
        self.working_since: dict[tuple[str, str, int], float] = {}
        """By host, job and generation: when its agent first looked, on the host's clock."""
        self.crash_at: frozenset[int] = frozenset()
        """Effects, by their number, right before which whoever has them dies."""
        self.effects: list[str] = []
        """Every effect so far, where ``crash_at`` or its length is asked for."""
        self.count_effects = False
        self._held_off: set[str] = set()
        self._port = 20000
        self.coverage = Coverage(self)
        self.oracles = Oracles(self)
        self.network = Network(self)
        self.database = Database(check_epoch=not self.bugs.ignores_epoch)
        self.programs = Programs(self)
        self.programs.scripts.update({(job, generation): script for job, generation, script in plan.scripts})
        self.replaced: list[Controller] = []
        """Controllers of the past that don't know it yet."""
        self.controller_clock = Clock(self.engine, plan.controller_rate, origin=50.0)
        self.controller: Controller | None = None
        self.begin_control()
        self.hosts: dict[str, Host] = {}
        for index, rate in enumerate(plan.rates):
            name = f"host-{index}"
            self.hosts[name] = Host(self, name, Clock(self.engine, rate, origin=1000.0 * (index + 1)), plan.gpus)
        self.users = Users(self)

    def begin_control(self) -> None:
        """Start whoever is the controller."""
        self.controller = Controller(self)

    # --- what the parts ask of their world ----------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """For the story."""
        self.story.append((self.engine.now, line))

    def seen(self, fault: str) -> None:
        """A fault is at work."""
        self.coverage.fault(fault)

    def roll(self, weight: str) -> bool:
        """Whether this fault happens now."""
        chance: float = getattr(self.weights, weight)
        return chance > 0 and self.dice.random() < chance

    def boundary(self, actor: str, what: str, life: Life | None = None) -> None:
        """An effect is about to be had; whoever has it may die instead."""
        if self.count_effects:
            self.effects.append(f"{actor}: {what}")
            if len(self.effects) in self.crash_at:
                self.tell(f"crash before: {actor} {what} ({life.name if life else actor})")
                raise Crash
        if self.weights.crash and self.dice.random() < self.weights.crash:
            raise Crash

    def latency_s(self) -> float:
        """Of one message."""
        if self.weights.slow and self.dice.random() < self.weights.slow:
            self.seen("slow")
            return self.dice.random() * 8.0
        return self.weights.latency_s * (0.5 + self.dice.random())

    def commit_fate(self) -> tuple[Fate, float]:
        """What becomes of a commit, and when."""
        weights = self.weights
        delay_s = self.dice.random() * 2.0 if self.roll("commit_slow") else weights.commit_s
        if self.roll("commit_unanswered"):
            return Fate.LANDS_UNANSWERED, delay_s
        return (Fate.FAILS if self.roll("commit_fails") else Fate.LANDS), delay_s

    def new_port(self) -> int:
        """One that nobody has."""
        self._port += 1
        return self._port

    def is_held_off(self, host: str) -> bool:
        """Whether an admin keeps it switched off."""
        return host in self._held_off

    def take_evidence(self, controller: Controller, asked: act.TakeEvidence) -> None:
        """On a connection of its own, which may fail."""
        if not self.hosts[asked.host].powered or self.network.is_cut(asked.host, up=True):
            return
        answer = hangs.evidence(self, asked)
        self.engine.after(6.0, lambda: controller.feed(answer), controller.life, controller.die)

    # --- the controller's supervisor ----------------------------------------------------------------------------

    def controller_died(self, controller: Controller) -> None:
        """Another one is started, unless there is one already."""
        self.seen("controller crash")
        if self.controller is controller:
            self.controller = None
            self.engine.after(CONTROLLER_BACK_S, self.start_controller)

    def start_controller(self) -> None:
        """If there is none."""
        if self.controller is None:
            self.controller = Controller(self)
            self.tell(f"the controller starts, epoch {self.controller.epoch}")

    def freeze_controller(self, for_s: float, *, replaced: bool) -> None:
        """It stands still for a while; somebody may have started another one meanwhile."""
        frozen = self.controller
        if frozen is None or frozen.life.frozen:
            return
        self.seen("controller frozen")
        frozen.freeze()
        if replaced:
            self.controller = None
            self.replaced.append(frozen)
            self.engine.after(CONTROLLER_BACK_S, self.start_controller)
        self.engine.after(for_s, lambda: self.thaw(frozen))

    def freeze_agent(self, host: str, for_s: float) -> None:
        """It stands still for a while; shims and ranks go on."""
        agent = self.hosts[host].agent
        if agent is None or agent.life.frozen or self.healed:
            return
        self.seen("agent frozen")
        agent.life.frozen = True
        self.engine.after(for_s, agent.thaw)

    def thaw(self, controller: Controller) -> None:
        """It goes on where it stood, with what has come meanwhile."""
        life = controller.life
        if not life.frozen:
            return
        self.seen("controller frozen")
        controller.thaw()

    def reached(self, host: str = "") -> Controller | None:
        """At the controller's address, by a host or a user: while an old one lives, maybe that one."""
        old = [controller for controller in self.replaced if controller.life.alive]
        if old and self.dice.random() < 0.3:
            return self.dice.choice(old)
        return self.controller

    def answers(self) -> Controller | None:
        """At the address that clients call."""
        return self.controller

    def hold_off(self, host: str) -> None:
        """An admin switches a host off and keeps it so."""
        self._held_off.add(host)
        self.hosts[host].lose_power(1e9)

    def let_on(self, host: str) -> None:
        """And on again."""
        self._held_off.discard(host)
        self.hosts[host].boot()

    # --- the run ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry the plan out, heal, and see that everything comes to an end."""
        for move in self.plan.moves:
            self.engine.after(move.at_s, self._mover(move))
        self.engine.run(self.plan.lasts_s)
        self.heal()
        if self.plan.probe:
            self.engine.run(self.engine.now + HEAL_S)  # until all hosts have said hello
        self.settle()

    def _mover(self, move: Move) -> Callable[[], None]:
        def make() -> None:
            self.tell(moves.words(move))
            moves.make(self, move)

        return make

    def heal(self) -> None:
        """From now on nothing fails."""
        self.tell("everything is healed")
        self.healed = True
        self.weights = self.weights.calm()
        for host in self.hosts.values():
            if host.agent is not None:
                host.agent.thaw()
            self.network.set_cut(host.name, (False, False))
            self.network.set_apart(list(self.network.apart), apart=False)
            self._held_off.discard(host.name)
            host.boot()
            for process in host.table.all_running():
                self.programs.release(process)
        for controller in (self.controller, *self.replaced):
            if controller is not None:
                self.thaw(controller)

    def settle(self, within_s: float = SETTLES_WITHIN_S) -> None:
        """Users and admins clear up; then everything has to have ended, and every GPU to be free for others."""
        began = self.engine.now
        while not self.is_settled():
            if self.engine.now - began > within_s:
                raise Violation("18 liveness", f"after {within_s:g} s: {'; '.join(self.unsettled())}")
            self.users.clear_up(first=self.engine.now - began > 60.0)
            self.engine.run(self.engine.now + LOOK_EVERY_S)
        if not self.plan.probe:
            return
        # Where nothing ever ran, nothing was cleared up so far: no quota and no reservation is to be in its way.
        self.users.clear_up(first=False)
        self.engine.run(self.engine.now + LOOK_EVERY_S)
        self.tell("a job for all GPUs is submitted")
        self.users.probe()
        began = self.engine.now
        while not self.is_settled() or not self.users.probe_ended:
            if self.engine.now - began > within_s:
                raise Violation("8 no orphans", f"a job for all GPUs finds none: {'; '.join(self.unsettled())}")
            self.users.clear_up(first=False)
            self.engine.run(self.engine.now + LOOK_EVERY_S)

    def unsettled(self) -> list[str]:
        """What has not come to an end."""
        found = [f"{name} has not ended" for name, job in self.oracles.ledger.jobs.items() if not job.ended]
        found += [f"{what} was not answered" for what in self.users.open]
        for host in self.hosts.values():
            found += [f"{p.key} runs on {p.host}" for p in host.table.all_running()]
            found += [f"{key} is still on {host.name}" for key in host.disk.workers]
        return found

    def is_settled(self) -> bool:
        """Every job has ended and left nothing."""
        if any(not job.ended for job in self.oracles.ledger.jobs.values()) or self.users.open:
            return False
        return not any(host.disk.workers or host.table.running for host in self.hosts.values())

    def any_of(self, found: list[Any]) -> Any:
        """One of them; None of none."""
        return self.dice.choice(found) if found else None
