"""One worker on this host: its state, and the next step towards what the controller wants.

Theory of operation. A worker has a *state* (see `states`) and, once the
controller has spoken, a *desired* state: the newest assignment. ``advance`` compares the two and takes the next step.
It is called after everything that changes either, so the order in which assignments and events arrive doesn't matter,
and an assignment that comes twice changes nothing. A generation is launched only from ``Prepared``, and that of a newer
generation is reached only through ``Empty`` of the older: so two generations never run at once. Where ranks were
given GPUs, ``Empty`` is reached only through ``Freeing`` (see ``core/worker/gpu_release``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

from holdfast._session.assignment import Assignment, Launch, Phase
from holdfast._session.reports import Exit, ExitReason, RankBinding, WorkerId, WorkerReport
from holdfast_agent.core.model.launch import RankLaunch
from holdfast_agent.core.worker.actions import (
    AbandonPreparation,
    Action,
    ClearOrphans,
    Forget,
    FreePorts,
    LaunchRanks,
    Prepare,
    RenewFence,
    RunEpilog,
    SignalRanks,
    StopRanks,
)
from holdfast_agent.core.worker.events import WorkerPrepared
from holdfast_agent.core.worker.peers import peers_of
from holdfast_agent.core.worker.states import (
    FOUND,
    TRANSITIONS,
    CannotPrepare,
    Closing,
    Empty,
    Forgetting,
    Forgotten,
    Freeing,
    IllegalTransition,
    Launching,
    Lost,
    Prepared,
    Preparing,
    Quarantined,
    Running,
    State,
    Stopping,
    Stuck,
)


@dataclass
class Worker:
    """Everything that is known of one worker."""

    key: WorkerId
    state: State = field(default_factory=lambda: Empty(0))
    desired: Assignment | None = None
    shim_pid: int = 0
    attempts: list[tuple[int, int]] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    """Rank to pid, of the generation that was launched last."""
    codes: dict[int, int] = field(default_factory=dict)
    """Rank to the code that a shell would show, of the same generation; 125 where the end is unknown."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the devices of that generation."""
    bindings: dict[int, RankBinding] = field(default_factory=dict)
    """By rank, of that generation; without those whose job asks for none."""
    launched: Launch | None = None
    """The last launch in this run of the agent."""
    launched_at: float | None = None
    """Monotonic seconds; None where an earlier run of the agent launched it."""
    checked: Launch | None = None
    """The launch whose program passed the checks here."""
    prepared: WorkerPrepared | None = None
    """The last preparation in this run of the agent: container, code and account of its generation."""
    doing: str = ""
    """The long step of the preparation that is under way; empty for none."""
    heard_s: float = 0.0
    """Send time of the newest message that the controller answered; seconds since boot."""
    silent_peers: tuple[tuple[int, int], ...] = ()
    """(Worker index, generation) of the job's workers that its shim hears nothing more of."""
    warm: str = ""
    """What is prepared for a warm start of the next generation, or why nothing is."""
    parked: bool = False
    """Its shim may have processes that wait to become the next generation's ranks."""
    survivors: frozenset[int] = frozenset()
    """Pids of those that were ranks of the last one: what they hold of a GPU is the next one's."""
    started_warm: set[int] = field(default_factory=set)
    """Ranks of the generation that was launched last whose imports had been done before."""
    in_process: set[int] = field(default_factory=set)
    """Ranks of it that went on in the process of the one before."""
    warned: int = 0
    """The newest generation whose shim was ordered to send its ranks the signal."""
    notice_s: float = 0.0
    """Time that its ranks have since they were warned of the host's shutdown."""
    stop_asked: tuple[int, float] | None = None
    """Generation and grace of the last stop."""
    unacked: set[tuple[int, int]] = field(default_factory=set)
    """(generation, rank) of ends that the controller has not acknowledged."""
    ended: dict[tuple[int, int], Exit] = field(default_factory=dict)
    """Exits of the newest generations, acknowledged or not, by generation and rank."""

    def move(self, state: State) -> None:
        """The only way from one state to another. Raises ``IllegalTransition`` for any not in the table."""
        if state.kind not in TRANSITIONS[self.state.kind]:
            raise IllegalTransition(f"{self.key}: {self.state} to {state}")
        self.state = state

    def find(self, state: State) -> None:
        """Set the state that an earlier run's files show. Raises ``IllegalTransition`` for any not in FOUND."""
        if state.kind not in FOUND:
            raise IllegalTransition(f"{self.key}: found as {state}")
        self.state = state

    def attempt(self, generation: int) -> int:
        """The number of the attempt that a generation belongs to; 0 for none."""
        return max((entry for entry in self.attempts if entry[0] <= generation), default=(0, 0))[1]

    @property
    def generation(self) -> int:
        """The newest generation of the state and of the assignment."""
        return max(self.state.generation, self.desired.generation if self.desired else 0)

    def with_attempt(self, exit_: Exit) -> Exit:
        """A recorded exit with the attempt to which its generation belongs."""
        return replace(exit_, attempt=self.attempt(exit_.generation))

    def holds_cores(self) -> bool:
        """Whether what its ranks are bound to is in use, or will be by its next generation."""
        runs = isinstance(self.state, (Launching, Running, Stopping, Stuck, Lost))
        return runs or (self.desired is not None and not _ended(self.desired))

    def report(self) -> WorkerReport:
        """The worker's state as a report for the controller."""
        state = self.state
        prepared = state if isinstance(state, (Prepared, Launching)) else None
        live = isinstance(state, (Running, Stopping, Stuck, Lost))
        return WorkerReport(
            key=self.key,
            attempt=self.attempt(state.generation),
            generation=state.generation,
            state=state.kind.reported,
            port=prepared.port if prepared else 0,
            master_port=prepared.master_port if prepared else 0,
            shim_pid=self.shim_pid,
            pids=tuple(sorted(self.pids.items())) if live else (),
            message=self.doing if isinstance(state, Preparing) else getattr(state, "message", ""),
            host_fault=getattr(state, "host_fault", False),
            gpus=self.gpus if live else (),
            silent_peers=self.silent_peers,
            warm_ranks=len(self.started_warm & self.pids.keys()) if live else 0,
            warm=self.warm,
            in_process_ranks=len(self.in_process & self.pids.keys()) if live else 0,
            bindings=tuple(sorted(self.bindings.items())) if live else (),
        )


UNTOLD_GRACE_S = 10.0
"""As the job spec's default: no controller has been heard since the agent's start."""

PlanRanks = Callable[[Assignment], tuple[RankLaunch, ...]]


def advance(worker: Worker, plan: PlanRanks, now: float) -> list[Action]:
    """The next steps of a worker towards its desired state; none where it is there or an answer is awaited."""
    actions: list[Action] = []
    while step := _step(worker, plan, now, actions):
        if step is Settled.DONE:
            break
    return actions


class Settled(enum.Enum):
    """Whether another look at the worker may find more to do."""

    AGAIN = 1
    DONE = 2


def _step(worker: Worker, plan: PlanRanks, now: float, actions: list[Action]) -> Settled:
    desired, state = worker.desired, worker.state
    if desired is None:
        return Settled.DONE
    match state:
        case Empty():
            return _from_empty(worker, desired, state, actions)
        case Prepared():
            return _from_prepared(worker, desired, state, plan, now, actions)
        case CannotPrepare(generation):
            if _ended(desired) or desired.generation > generation:
                worker.move(Empty(generation))
                return Settled.AGAIN
            return Settled.DONE
        case Launching(generation) | Running(generation):
            if _ended(desired) or desired.generation > generation:
                actions.append(_stop(worker, desired, generation))
                worker.move(Stopping(generation))
            return Settled.DONE
        case Stopping(generation) | Stuck(generation):
            asked = worker.stop_asked
            if (_ended(desired) or desired.generation > generation) and (
                asked is None or asked[0] < generation or desired.grace_s < asked[1]
            ):
                actions.append(_stop(worker, desired, generation))
            return Settled.DONE
        case Preparing(generation) if worker.doing and (_ended(desired) or desired.generation > generation):
            actions.append(AbandonPreparation(worker.key, generation))
            return Settled.DONE
        case Preparing() | Lost() | Freeing() | Quarantined() | Closing() | Forgetting() | Forgotten():
            return Settled.DONE
        case _:
            assert_never(state)


def _from_empty(worker: Worker, desired: Assignment, state: Empty, actions: list[Action]) -> Settled:
    if _ended(desired) and worker.parked:
        worker.parked = False
        actions.append(_stop(worker, desired, max(state.generation, 1)))
        worker.move(Stopping(state.generation))
        return Settled.DONE
    if _ended(desired):
        unsaid = state.unsaid or state.generation < desired.generation
        if unsaid:
            worker.move(Empty(desired.generation, state.message))
        if desired.phase is Phase.FORGET and not worker.unacked:
            worker.move(Forgetting(desired.generation, unsaid))
            actions.append(Forget(worker.key))
        return Settled.DONE
    if state.generation >= desired.generation or desired.launch is None:
        return Settled.DONE
    if state.host_fault:
        worker.move(CannotPrepare(desired.generation, state.message, host_fault=True))
        return Settled.DONE
    if desired.launch.lacks:
        worker.move(CannotPrepare(desired.generation, desired.launch.lacks))
        return Settled.DONE
    worker.move(Preparing(desired.generation))
    worker.doing = ""
    ports: tuple[int, ...] = ()
    if desired.phase is Phase.RUN and desired.launch.rendezvous is not None:
        # Prepared by an earlier run of the agent; the other workers already know these ports.
        master = (desired.launch.rendezvous.master_port,) if desired.launch.first_rank == 0 else ()
        ports = (desired.launch.own_port, *master)
    known_good = worker.checked is not None and worker.checked.task == desired.launch.task
    actions.append(Prepare(desired, ports, known_good, worker.survivors))
    return Settled.DONE


def _from_prepared(
    worker: Worker, desired: Assignment, state: Prepared, plan: PlanRanks, now: float, actions: list[Action]
) -> Settled:
    if _ended(desired) or desired.generation > state.generation:
        actions.append(FreePorts(worker.key))
        worker.move(Empty(state.generation, unsaid=True))
        return Settled.AGAIN
    if desired.phase is not Phase.RUN:
        return Settled.DONE
    problem = desired.launch.lacks if desired.launch else ""
    ranks: tuple[RankLaunch, ...] = ()
    try:
        ranks = () if problem else plan(desired)
    except ValueError as error:
        problem = str(error)
    if problem:
        actions.append(FreePorts(worker.key))
        worker.move(CannotPrepare(state.generation, problem))
        return Settled.DONE
    worker.move(Launching(state.generation, state.port, state.master_port))
    worker.pids = {}
    worker.codes = {}
    worker.started_warm = set()
    worker.in_process = set()
    worker.ended = {key: end for key, end in worker.ended.items() if key[0] >= state.generation - 1}
    worker.launched = desired.launch
    worker.gpus = desired.launch.gpus if desired.launch else ()
    worker.launched_at = now
    worker.stop_asked = None
    actions.append(launch_of(worker, ranks))
    return Settled.DONE


def launch_of(worker: Worker, ranks: tuple[RankLaunch, ...]) -> LaunchRanks:
    """The order to start the generation that the worker is in."""
    worker.bindings = {each.rank: each.binding for each in ranks if each.binding is not None}
    desired, launch, prepared = worker.desired, worker.launched, worker.prepared
    assert desired is not None
    assert launch is not None
    assert prepared is not None
    peers = peers_of(desired)
    # A worker without peers is not stopped for want of them.
    fence_s = desired.peer_fence_s if peers else desired.fence_s
    return LaunchRanks(
        worker.key,
        worker.state.generation,
        ranks,
        worker.gpus,
        launch.memory_mb,
        fence_s,
        worker.heard_s + fence_s if fence_s else 0.0,
        peers,
        prepared.container,
        prepared.user,
        launch.warm,
    )


def keep_going(worker: Worker) -> list[Action]:
    """The orders that a running generation's shim gets periodically: its deadline, and the warning."""
    desired, generation = worker.desired, worker.state.generation
    if desired is None or not isinstance(worker.state, (Launching, Running, Stopping)):
        return []
    actions: list[Action] = []
    if fence_s := desired.fence_s or desired.peer_fence_s:
        actions.append(RenewFence(worker.key, generation, worker.heard_s + fence_s))
    runs = isinstance(worker.state, Running) and desired.generation == generation and desired.phase is Phase.RUN
    if runs and desired.warn_signal and worker.warned < generation:
        worker.warned = generation
        actions.append(SignalRanks(worker.key, generation, desired.warn_signal))
    return actions


def give_notice(worker: Worker) -> list[Action]:
    """Warn ranks that run that the host shuts down, if their job asked for it; once in a generation."""
    desired, generation = worker.desired, worker.state.generation
    runs = isinstance(worker.state, Running) and desired is not None and desired.generation == generation
    if desired is None or not runs or not desired.notice_signal or worker.warned >= generation:
        return []
    worker.warned, worker.notice_s = generation, desired.notice_s
    return [SignalRanks(worker.key, generation, desired.notice_signal)]


def close(worker: Worker) -> list[Action]:
    """Run the epilog of an empty worker before it counts as empty."""
    generation = worker.state.generation
    worker.move(Closing(generation))
    return [RunEpilog(worker.key, generation, worker.attempt(generation), worker.gpus)]


def _stop(worker: Worker, desired: Assignment, generation: int) -> StopRanks:
    worker.stop_asked = (generation, desired.grace_s)
    another = desired.launch is not None and desired.launch.warm is not None
    worker.parked = worker.parked and another
    hung = desired.hung_ranks if another else ()
    return StopRanks(worker.key, generation, desired.grace_s, desired.stop_reason, another, hung)


def wind_down(worker: Worker) -> StopRanks:
    """End what runs because the host goes down, whatever the controller wants; it may not be within reach."""
    generation = worker.state.generation
    grace_s = worker.desired.grace_s if worker.desired else UNTOLD_GRACE_S
    worker.stop_asked = (generation, grace_s)
    worker.move(Stopping(generation))
    return StopRanks(worker.key, generation, grace_s, ExitReason.STOPPED)


def _ended(desired: Assignment) -> bool:
    return desired.phase in (Phase.STOP, Phase.FORGET)


def lose(worker: Worker) -> list[Action]:
    """Clear orphans, because the shim is gone; only a launched generation can have left some."""
    worker.shim_pid = 0
    worker.silent_peers = ()
    worker.parked, worker.survivors, worker.warm = False, frozenset(), ""
    match worker.state:
        case Launching(generation) | Running(generation) | Stopping(generation) | Stuck(generation):
            worker.move(Lost(generation))
            return [ClearOrphans(worker.key, generation)]
        case _:
            return []


def forget_unused(worker: Worker) -> list[Action]:
    """Forget a worker of an earlier run in which nothing was ever launched; an assignment creates it again.

    One that an attempt was noted of may be ordered to launch by now: it is kept until the controller has heard of it.
    """
    worker.move(Forgetting(0))
    return [Forget(worker.key)]
