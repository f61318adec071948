"""The state of an agent: its workers, its controller, and the exits that it keeps for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast._session.assignment import Assignment
from holdfast._session.reports import Exit, ExitReport, RankBinding, WorkerId
from holdfast_agent.core.launch.binding import bind
from holdfast_agent.core.launch.environment import HostFacts, plan_ranks
from holdfast_agent.core.model.launch import RankLaunch
from holdfast_agent.core.model.topology import cpus_in
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker.actions import Action
from holdfast_agent.core.worker.states import Forgetting, Launching, Preparing, Running
from holdfast_agent.core.worker.worker import Worker, close, keep_going
from holdfast_agent.core.worker.worker import advance as next_steps

ExitId = tuple[WorkerId, int, int]
UNABLE = "not bound: its worker's shim is of an earlier release, until the job is placed again"


@dataclass
class HostState:
    """The state of one agent, and the moves that the answers to several events share."""

    facts: HostFacts
    epoch: int = 0
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    outbox: dict[ExitId, ExitReport] = field(default_factory=dict)
    """Exits that the controller may not have, without a sequence."""
    unused: dict[str, int] = field(default_factory=dict)
    """Bytes that each GPU holds while unused, by UUID."""
    heard_s: float = 0.0
    """Send time of the newest message that the controller answered; seconds since boot."""
    going_down: bool = False
    """Nothing is started any more."""
    unwanted: set[str] = field(default_factory=set)
    """Deleted jobs whose workers are still here: their output goes with the last of them."""
    connected: bool = False
    """Whether a controller has welcomed us and is not gone since."""
    said_alive: list[WorkerId] = field(default_factory=list)
    """Workers that the newest hello has not reported as empty."""
    answered: int = 0
    """Messages of this session that the controller has answered, its hello among them."""
    sequence: int = 0
    """Of the exit that was sent last in this session."""
    sent: dict[int, ExitId] = field(default_factory=dict)

    def plan(self, desired: Assignment) -> tuple[RankLaunch, ...]:
        """The ranks of a launch, as this host starts them."""
        worker = self.workers[desired.key]
        prepared = worker.prepared
        assert prepared is not None
        facts = self.facts.running_as(prepared.user)
        bindings = bind(facts.topology, desired.launch, self.bound_but(worker)) if desired.launch else ()
        if not prepared.binds:
            bindings = tuple(each and RankBinding(nics=each.nics, note=UNABLE) for each in bindings)
        return plan_ranks(desired, facts, prepared.container, prepared.code, bindings)

    def bound_but(self, worker: Worker) -> frozenset[int]:
        """CPUs that ranks of other workers share with none: of those that run, or that stay for another generation."""
        others = (each for each in self.workers.values() if each is not worker and each.holds_cores())
        return frozenset(
            cpu
            for other in others
            for binding in other.bindings.values()
            if binding.exclusive
            for cpu in cpus_in(binding.cpus)
        )

    def advance(self, worker: Worker, now: float, *, always: bool = False) -> list[Action]:
        """Take steps towards the desired state, then report where the state has changed (or ``always``).

        Of a state that ends by itself in a moment the report would be late before it is read.
        """
        before = worker.state
        starts = worker.desired is not None and worker.desired.launch is not None
        actions = [] if self.going_down and starts else next_steps(worker, self.plan, now)
        long = not isinstance(worker.state, Preparing) or worker.doing
        if (always or worker.state != before) and long and not isinstance(worker.state, (Launching, Forgetting)):
            actions += self.report(worker)
        return actions

    def settle(self, worker: Worker, now: float) -> list[Action]:
        """Report the worker's state, then go on."""
        return [*self.report(worker), *self.advance(worker, now)]

    def emptied(self, worker: Worker, now: float) -> list[Action]:
        """Run the admin's epilog, where there is one, before anything else; no process is left."""
        return close(worker) if self.facts.has_epilog else self.settle(worker, now)

    def report(self, worker: Worker) -> list[Action]:
        """Report where the worker stands, while there is a controller to hear it."""
        return [act.SendReport(worker.report())] if self.connected else []

    def account(self, worker: Worker) -> list[Action]:
        """Mark the worker as running, and report it once every rank has started or failed to."""
        generation = worker.state.generation
        if isinstance(worker.state, Launching):
            worker.move(Running(generation))
        known = worker.pids.keys() | {rank for number, rank in worker.ended if number == generation}
        complete = worker.launched is not None and len(known) == worker.launched.processes
        return self.report(worker) + keep_going(worker) if complete and isinstance(worker.state, Running) else []

    def in_state(self, key: WorkerId, kind: type[object], generation: int) -> Worker | None:
        """The worker, if it is in the state that an answer about this generation expects."""
        worker = self.workers.get(key)
        if worker is None or not isinstance(worker.state, kind) or worker.state.generation != generation:
            return None
        return worker

    def keep(self, worker: Worker, exit_: Exit, *, port_taken: bool) -> list[Action]:
        """Keep an exit until the controller has acknowledged it, and send it."""
        exit_id = (worker.key, exit_.generation, exit_.rank)
        self.outbox[exit_id] = ExitReport(0, worker.key, exit_, port_taken)
        worker.unacked.add((exit_.generation, exit_.rank))
        return [self.send_exit(exit_id)] if self.connected else []

    def keep_again(self) -> None:
        """Put exits that were acknowledged into the outbox again."""
        for worker in self.workers.values():
            for (generation, rank), exit_ in worker.ended.items():
                exit_id = (worker.key, generation, rank)
                if exit_id not in self.outbox:
                    self.outbox[exit_id] = ExitReport(0, worker.key, exit_)
                    worker.unacked.add((generation, rank))

    def send_exit(self, exit_id: ExitId) -> Action:
        """Send an exit under the session's next number, which its acknowledgement names."""
        self.sequence += 1
        self.sent[self.sequence] = exit_id
        return act.SendExit(replace(self.outbox[exit_id], sequence=self.sequence))


def shell_code(exit_: Exit) -> int:
    """The exit code as a shell shows it; 125 where the end is unknown."""
    return 125 if exit_.shell_code is None else exit_.shell_code
