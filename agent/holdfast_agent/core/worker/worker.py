"""One worker's place on this host: where it stands, and the next step towards what the controller wants.

Theory of operation. A place has a *standing* (one of the variants below, each with its own data) and, once the
controller has spoken, a *wish*: the newest assignment. ``advance`` compares the two and takes the next step; it is
called after everything that changes either, so the order in which wishes and events arrive doesn't matter, and a
wish that is said twice changes nothing. A generation is launched only from ``Prepared``, and that of a newer
generation is reached only through ``Empty`` of the older: so two generations never run at once. Where ranks were
given GPUs, ``Empty`` is reached only through ``Freeing`` (see ``core/worker/gpu_release``).

Longer than 400 lines because the standings, their table and the steps between them are read together.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

from holdfast._session.assignment import Assignment, Launch, Phase
from holdfast._session.reports import Exit, ExitReason, ReportedState, WorkerId, WorkerReport
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.model.model import Container, PreparedCode, RankLaunch
from holdfast_agent.core.worker.events import (
    AbandonPreparation,
    Action,
    ClearStrays,
    Forget,
    FreePorts,
    LaunchRanks,
    Prepare,
    RenewFence,
    RunEpilog,
    SignalRanks,
    StopRanks,
)


class State(enum.Enum):
    """Where a place stands."""

    EMPTY = "EMPTY"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    CANNOT_PREPARE = "CANNOT_PREPARE"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STUCK = "STUCK"
    LOST = "LOST"
    FREEING = "FREEING"
    WITHHELD = "WITHHELD"
    CLOSING = "CLOSING"
    FORGETTING = "FORGETTING"
    FORGOTTEN = "FORGOTTEN"

    @property
    def reported(self) -> ReportedState:
        """The state that the controller is told, which knows fewer."""
        return _REPORTED.get(self) or ReportedState[self.name]


_REPORTED = {
    State.LAUNCHING: ReportedState.PREPARED,
    State.LOST: ReportedState.STOPPING,
    State.FREEING: ReportedState.STOPPING,
    State.WITHHELD: ReportedState.STUCK,
    State.CLOSING: ReportedState.STOPPING,
    State.FORGETTING: ReportedState.EMPTY,
    State.FORGOTTEN: ReportedState.EMPTY,
}


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing of this generation, or an older one, is left. ``message``: what the host failed in at its end."""

    generation: int
    message: str = ""
    state = State.EMPTY

    @property
    def host_fault(self) -> bool:
        """Its epilog has failed."""
        return bool(self.message)


@dataclass(frozen=True, slots=True)
class Preparing:
    """Checks and ports of this generation are under way."""

    generation: int
    state = State.PREPARING


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything is ready and nothing has been forked."""

    generation: int
    port: int
    master_port: int
    state = State.PREPARED


@dataclass(frozen=True, slots=True)
class CannotPrepare:
    """Why this generation can't run here."""

    generation: int
    message: str
    host_fault: bool = False
    state = State.CANNOT_PREPARE


@dataclass(frozen=True, slots=True)
class Launching:
    """The shim was told to start the ranks."""

    generation: int
    port: int
    master_port: int
    state = State.LAUNCHING


@dataclass(frozen=True, slots=True)
class Running:
    """Ranks were started; some may have ended."""

    generation: int
    state = State.RUNNING


@dataclass(frozen=True, slots=True)
class Stopping:
    """The shim was told to stop this generation, or stops what its ranks have left."""

    generation: int
    state = State.STOPPING


@dataclass(frozen=True, slots=True)
class Stuck:
    """Processes outlive KILL."""

    generation: int
    message: str
    state = State.STUCK


@dataclass(frozen=True, slots=True)
class Lost:
    """The shim is gone; what it left is being killed."""

    generation: int
    message: str = ""
    state = State.LOST


@dataclass(frozen=True, slots=True)
class Freeing:
    """No process is left; whether its GPUs are free is being looked at. ``since_s`` is monotonic."""

    generation: int
    since_s: float
    pause_s: float
    message: str = ""
    state = State.FREEING


@dataclass(frozen=True, slots=True)
class Withheld:
    """No process is left, but its GPUs are still not free, or can't be read."""

    generation: int
    message: str
    state = State.WITHHELD


@dataclass(frozen=True, slots=True)
class Closing:
    """No process is left and the GPUs are free; the admin's epilog runs."""

    generation: int
    state = State.CLOSING


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The place's files are being removed."""

    generation: int
    state = State.FORGETTING


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The end of the place."""

    generation: int
    state = State.FORGOTTEN


Standing = (
    Empty
    | Preparing
    | Prepared
    | CannotPrepare
    | Launching
    | Running
    | Stopping
    | Stuck
    | Lost
    | Freeing
    | Withheld
    | Closing
    | Forgetting
    | Forgotten
)

TRANSITIONS: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset(
        {State.EMPTY, State.PREPARING, State.CANNOT_PREPARE, State.RUNNING, State.CLOSING, State.FORGETTING}
    ),
    State.PREPARING: frozenset({State.PREPARED, State.CANNOT_PREPARE}),
    State.PREPARED: frozenset({State.LAUNCHING, State.CANNOT_PREPARE, State.EMPTY}),
    State.CANNOT_PREPARE: frozenset({State.EMPTY}),
    State.LAUNCHING: frozenset(
        {
            State.RUNNING,
            State.STOPPING,
            State.STUCK,
            State.LOST,
            State.FREEING,
            State.EMPTY,
            State.CANNOT_PREPARE,
        }
    ),
    State.RUNNING: frozenset({State.STOPPING, State.STUCK, State.LOST, State.FREEING, State.EMPTY}),
    State.STOPPING: frozenset({State.STUCK, State.LOST, State.FREEING, State.EMPTY}),
    State.STUCK: frozenset({State.STUCK, State.LOST, State.FREEING, State.EMPTY}),
    State.LOST: frozenset({State.LOST, State.STUCK, State.FREEING, State.EMPTY}),
    State.FREEING: frozenset({State.FREEING, State.WITHHELD, State.EMPTY}),
    State.WITHHELD: frozenset({State.WITHHELD, State.EMPTY}),
    State.CLOSING: frozenset({State.EMPTY}),
    State.FORGETTING: frozenset({State.FORGOTTEN}),
    State.FORGOTTEN: frozenset(),
}
"""From where to where a place may go."""

FOUND = frozenset({State.EMPTY, State.RUNNING, State.STOPPING, State.LOST, State.FREEING})
"""Where a place may stand when the agent starts."""


class IllegalTransition(Exception):
    """A step that the table doesn't have: a fault of ours."""


@dataclass
class Place:
    """Everything that is known of one place."""

    key: WorkerId
    standing: Standing = field(default_factory=lambda: Empty(0))
    wish: Assignment | None = None
    shim_pid: int = 0
    attempts: list[tuple[int, int]] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    """Rank to pid, of the generation that was launched last."""
    codes: dict[int, int] = field(default_factory=dict)
    """Rank to the code that a shell would show, of the same generation; 125 where the end is unknown."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the devices of that generation."""
    launched: Launch | None = None
    """The last launch of this agent's life."""
    launched_at: float | None = None
    """Monotonic; None where an earlier life launched it."""
    checked: Launch | None = None
    """Whose program was found good here."""
    container: Container | None = None
    """As the last preparation found or made it; None where work runs on the bare host."""
    code: PreparedCode | None = None
    """Of the generation that was prepared last."""
    user: WorkerUser | None = None
    """As whom that runs; None: as this host's workers do by default."""
    doing: str = ""
    """What takes long in its preparation; empty where nothing does."""
    heard_s: float = 0.0
    """When that was sent which the controller has answered last; seconds since boot."""
    warned: int = 0
    """The newest generation whose shim was told to send its ranks the signal."""
    stop_asked: tuple[int, float] | None = None
    """Generation and grace of the last stop."""
    unacked: set[tuple[int, int]] = field(default_factory=set)
    """(generation, rank) of ends that the controller has not acknowledged."""
    ended: dict[tuple[int, int], Exit] = field(default_factory=dict)
    """Exits of the newest generations, acknowledged or not, by generation and rank."""

    def move(self, standing: Standing) -> None:
        """The only way from one standing to another. Raises ``IllegalTransition`` for any not in the table."""
        if standing.state not in TRANSITIONS[self.standing.state]:
            raise IllegalTransition(f"{self.key}: {self.standing} to {standing}")
        self.standing = standing

    def find(self, standing: Standing) -> None:
        """Where the files of an earlier life say it stands. Raises ``IllegalTransition`` for any not in FOUND."""
        if standing.state not in FOUND:
            raise IllegalTransition(f"{self.key}: found as {standing}")
        self.standing = standing

    def attempt(self, generation: int) -> int:
        """To which attempt a generation belongs."""
        return max((entry for entry in self.attempts if entry[0] <= generation), default=(0, 0))[1]

    @property
    def generation(self) -> int:
        """The newest that has been heard of."""
        return max(self.standing.generation, self.wish.generation if self.wish else 0)

    def with_attempt(self, exit_: Exit) -> Exit:
        """A recorded exit with the attempt to which its generation belongs."""
        return replace(exit_, attempt=self.attempt(exit_.generation))

    def report(self) -> WorkerReport:
        """For the controller."""
        standing = self.standing
        prepared = standing if isinstance(standing, (Prepared, Launching)) else None
        live = isinstance(standing, (Running, Stopping, Stuck, Lost))
        return WorkerReport(
            key=self.key,
            attempt=self.attempt(standing.generation),
            generation=standing.generation,
            state=standing.state.reported,
            port=prepared.port if prepared else 0,
            master_port=prepared.master_port if prepared else 0,
            shim_pid=self.shim_pid,
            pids=tuple(sorted(self.pids.items())) if live else (),
            message=self.doing if isinstance(standing, Preparing) else getattr(standing, "message", ""),
            host_fault=getattr(standing, "host_fault", False),
            gpus=self.gpus if live else (),
        )


UNTOLD_GRACE_S = 10.0
"""As the job spec's default: no controller has been heard since the agent's start."""

PlanRanks = Callable[[Assignment], tuple[RankLaunch, ...]]


def advance(place: Place, plan: PlanRanks, now: float) -> list[Action]:
    """The next steps of a place towards its wish; none where it has arrived or an answer is awaited."""
    actions: list[Action] = []
    while step := _step(place, plan, now, actions):
        if step is Settled.DONE:
            break
    return actions


class Settled(enum.Enum):
    """Whether another look at the place may find more to do."""

    AGAIN = 1
    DONE = 2


def _step(place: Place, plan: PlanRanks, now: float, actions: list[Action]) -> Settled:
    wish, standing = place.wish, place.standing
    if wish is None:
        return Settled.DONE
    match standing:
        case Empty():
            return _from_empty(place, wish, standing, actions)
        case Prepared():
            return _from_prepared(place, wish, standing, plan, now, actions)
        case CannotPrepare(generation):
            if _ended(wish) or wish.generation > generation:
                place.move(Empty(generation))
                return Settled.AGAIN
            return Settled.DONE
        case Launching(generation) | Running(generation):
            if _ended(wish) or wish.generation > generation:
                actions.append(_stop(place, wish, generation))
                place.move(Stopping(generation))
            return Settled.DONE
        case Stopping(generation) | Stuck(generation):
            asked = place.stop_asked
            if (_ended(wish) or wish.generation > generation) and (
                asked is None or asked[0] < generation or wish.grace_s < asked[1]
            ):
                actions.append(_stop(place, wish, generation))
            return Settled.DONE
        case Preparing(generation) if place.doing and (_ended(wish) or wish.generation > generation):
            actions.append(AbandonPreparation(place.key, generation))
            return Settled.DONE
        case Preparing() | Lost() | Freeing() | Withheld() | Closing() | Forgetting() | Forgotten():
            return Settled.DONE
        case _:
            assert_never(standing)


def _from_empty(place: Place, wish: Assignment, standing: Empty, actions: list[Action]) -> Settled:
    if _ended(wish):
        if standing.generation < wish.generation:
            place.move(Empty(wish.generation, standing.message))
        if wish.phase is Phase.FORGET and not place.unacked:
            place.move(Forgetting(wish.generation))
            actions.append(Forget(place.key))
        return Settled.DONE
    if standing.generation >= wish.generation or wish.launch is None:
        return Settled.DONE
    if standing.host_fault:
        place.move(CannotPrepare(wish.generation, standing.message, host_fault=True))
        return Settled.DONE
    if wish.launch.lacks:
        place.move(CannotPrepare(wish.generation, wish.launch.lacks))
        return Settled.DONE
    place.move(Preparing(wish.generation))
    place.doing = ""
    ports: tuple[int, ...] = ()
    if wish.phase is Phase.RUN and wish.launch.rendezvous is not None:
        # Prepared in an earlier life of the agent; the others already know these ports.
        master = (wish.launch.rendezvous.master_port,) if wish.launch.first_rank == 0 else ()
        ports = (wish.launch.own_port, *master)
    known_good = place.checked is not None and place.checked.task == wish.launch.task
    actions.append(Prepare(wish, ports, known_good))
    return Settled.DONE


def _from_prepared(
    place: Place, wish: Assignment, standing: Prepared, plan: PlanRanks, now: float, actions: list[Action]
) -> Settled:
    if _ended(wish) or wish.generation > standing.generation:
        actions.append(FreePorts(place.key))
        place.move(Empty(standing.generation))
        return Settled.AGAIN
    if wish.phase is not Phase.RUN:
        return Settled.DONE
    problem = wish.launch.lacks if wish.launch else ""
    ranks: tuple[RankLaunch, ...] = ()
    try:
        ranks = () if problem else plan(wish)
    except ValueError as error:
        problem = str(error)
    if problem:
        actions.append(FreePorts(place.key))
        place.move(CannotPrepare(standing.generation, problem))
        return Settled.DONE
    place.move(Launching(standing.generation, standing.port, standing.master_port))
    place.pids = {}
    place.codes = {}
    place.ended = {key: end for key, end in place.ended.items() if key[0] >= standing.generation - 1}
    place.launched = wish.launch
    place.gpus = wish.launch.gpus if wish.launch else ()
    place.launched_at = now
    place.stop_asked = None
    actions.append(launch_of(place, ranks))
    return Settled.DONE


def launch_of(place: Place, ranks: tuple[RankLaunch, ...]) -> LaunchRanks:
    """The order to start the generation at which the place stands."""
    memory_mb = place.launched.memory_mb if place.launched else 0
    fence_s = place.wish.fence_s if place.wish else 0.0
    return LaunchRanks(
        place.key,
        place.standing.generation,
        ranks,
        place.gpus,
        memory_mb,
        fence_s,
        place.heard_s + fence_s if fence_s else 0.0,
        place.container,
        place.user,
    )


def keep_going(place: Place) -> list[Action]:
    """What the shim of a running generation has to hear from time to time: its deadline, and the warning."""
    wish, generation = place.wish, place.standing.generation
    if wish is None or not isinstance(place.standing, (Launching, Running, Stopping)):
        return []
    actions: list[Action] = []
    if wish.fence_s:
        actions.append(RenewFence(place.key, generation, place.heard_s + wish.fence_s))
    runs = isinstance(place.standing, Running) and wish.generation == generation and wish.phase is Phase.RUN
    if runs and wish.warn_signal and place.warned < generation:
        place.warned = generation
        actions.append(SignalRanks(place.key, generation, wish.warn_signal))
    return actions


def close(place: Place) -> list[Action]:
    """An empty place has its epilog run before it counts as empty."""
    generation = place.standing.generation
    place.move(Closing(generation))
    return [RunEpilog(place.key, generation, place.attempt(generation), place.gpus)]


def _stop(place: Place, wish: Assignment, generation: int) -> StopRanks:
    place.stop_asked = (generation, wish.grace_s)
    return StopRanks(place.key, generation, wish.grace_s, wish.stop_reason)


def wind_down(place: Place) -> StopRanks:
    """End what runs because the host goes down, whatever the controller wants; it may not be within reach."""
    generation = place.standing.generation
    grace_s = place.wish.grace_s if place.wish else UNTOLD_GRACE_S
    place.stop_asked = (generation, grace_s)
    place.move(Stopping(generation))
    return StopRanks(place.key, generation, grace_s, ExitReason.STOPPED)


def _ended(wish: Assignment) -> bool:
    return wish.phase in (Phase.STOP, Phase.FORGET)


def lose(place: Place) -> list[Action]:
    """The shim is gone. Only what was launched can have left something behind."""
    place.shim_pid = 0
    match place.standing:
        case Launching(generation) | Running(generation) | Stopping(generation) | Stuck(generation):
            place.move(Lost(generation))
            return [ClearStrays(place.key, generation)]
        case _:
            return []
