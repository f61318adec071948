"""What users, admins and misfortune do at some time of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.gang import Gang

if TYPE_CHECKING:
    from tests.sim.cluster.world import World


PROJECTS = ("default", "speech", "vision")
RESERVATIONS = ("exam", "race")


@dataclass(frozen=True)
class Submit:
    """A user hands a job in."""

    at_s: float
    job: str
    gang: Gang
    runs_s: float = 0.0
    after: tuple[Dependency, ...] = ()
    """On jobs by their names; those that the user has no answer for by then are left out."""
    indices: tuple[int, ...] = ()
    """Of an array."""
    at_once: int = 0


@dataclass(frozen=True)
class OfJob:
    """cancel, pause, resume, restart or hold; or cancel all, of an array."""

    at_s: float
    verb: str
    job: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class OfHost:
    """cordon, uncordon, drain, check or plan (a drain)."""

    at_s: float
    verb: str
    host: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Weigh:
    """An admin gives a project a weight, or none."""

    at_s: float
    project: str
    weight: float | None


@dataclass(frozen=True)
class Guarantee:
    """An admin guarantees a project GPUs, or takes that back."""

    at_s: float
    project: str
    gpus: int


@dataclass(frozen=True)
class Reserve:
    """An admin reserves hosts for a project: the named ones, or so many of all."""

    at_s: float
    name: str
    project: str
    in_s: float
    for_s: float
    hosts: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Limit:
    """An admin sets how many GPUs a project may hold, or takes that back."""

    at_s: float
    project: str
    gpus: int | None


@dataclass(frozen=True)
class Cut:
    """Messages of a host, or to it, don't get through for a while.

    ``peers``: nor between these hosts and the others; otherwise only those from and to the controller.
    """

    at_s: float
    hosts: tuple[str, ...]
    up: bool
    down: bool
    for_s: float
    peers: bool = False


@dataclass(frozen=True)
class Dies:
    """agent, shim, controller or rank: the process is killed."""

    at_s: float
    what: str
    host: str = ""


@dataclass(frozen=True)
class PowerLoss:
    """Of one host, for a while."""

    at_s: float
    host: str
    for_s: float


@dataclass(frozen=True)
class SwitchedOff:
    """An admin switches a host off, vouches for that, and switches it on again."""

    at_s: float
    host: str
    for_s: float


@dataclass(frozen=True)
class Frozen:
    """A daemon stands still: the agent of ``host``, or the controller, ``replaced`` by another one meanwhile or not."""

    at_s: float
    for_s: float
    replaced: bool = False
    host: str = ""


@dataclass(frozen=True)
class ClockSet:
    """A wall clock is set; host '' is the controller's."""

    at_s: float
    host: str
    by_s: float


Move = (
    Submit
    | OfJob
    | OfHost
    | Weigh
    | Guarantee
    | Reserve
    | Limit
    | Cut
    | Dies
    | PowerLoss
    | SwitchedOff
    | Frozen
    | ClockSet
)


def make(world: World, move: Move) -> None:
    """Do it now."""
    match move:
        case Submit(_, job, gang, runs_s, after, indices, at_once):
            world.users.submit(job, gang, runs_s, after, indices, at_once)
        case OfJob(_, verb, job, args):
            world.users.of_job(verb, job, *args)
        case OfHost(_, verb, host, args):
            world.users.of_host(verb, host, *args)
        case Weigh(_, project, weight):
            world.users.weigh(project, weight)
        case Guarantee(_, project, gpus):
            world.users.guarantee(project, gpus)
        case Reserve(_, name, project, in_s, for_s, hosts, count):
            world.users.reserve(name, project, in_s, for_s, hosts, count)
        case Limit(_, project, gpus):
            world.users.limit(project, gpus)
        case Cut(_, hosts, up, down, for_s, peers):
            _cut(world, hosts, (up, down), peers=peers)
            world.engine.after(for_s, lambda: _cut(world, hosts, (False, False), peers=peers))
        case Dies(_, what, host):
            _die(world, what, host)
        case PowerLoss(_, host, for_s):
            world.hosts[host].lose_power(for_s)
        case SwitchedOff(_, host, for_s):
            world.hold_off(host)
            world.engine.after(for_s, lambda: world.let_on(host))
            if for_s > 30.0:
                # The admin is still there when the last try of this call is made.
                world.engine.after(1.0, lambda: _fence(world, host))
        case Frozen(_, for_s, replaced, ""):
            world.freeze_controller(for_s, replaced=replaced)
        case Frozen(_, for_s, _, host):
            world.freeze_agent(host, for_s)
        case ClockSet(_, host, by_s):
            world.seen("clock jump")
            clock = world.hosts[host].clock if host else world.controller_clock
            clock.jumped += by_s
        case _:
            assert_never(move)


def _cut(world: World, hosts: tuple[str, ...], cut: tuple[bool, bool], *, peers: bool) -> None:
    world.seen("cut")
    if world.healed and True in cut:
        return
    for host in hosts:
        world.network.set_cut(host, cut)
    if peers:
        pairs = [(host, other) for host in hosts for other in world.hosts if other not in hosts]
        world.network.set_apart(pairs, apart=cut[0])
        world.network.set_apart([(other, host) for host, other in pairs], apart=cut[1])


def _fence(world: World, host: str) -> None:
    controller = world.controller
    if world.is_held_off(host) and controller is not None and not controller.life.frozen:
        world.tell(f"an admin vouches that {host} is off")
        world.users.fence_now(host, controller)


def _die(world: World, what: str, host: str) -> None:
    if what == "controller":
        if world.controller is not None:
            world.controller.die()
    elif what == "agent":
        world.hosts[host].crash_agent()
    elif what == "shim":
        shim = world.any_of(list(world.hosts[host].shims.values()))
        if shim is not None:
            shim.die()
    else:
        ranks = [p for p in world.hosts[host].table.all_running() if not p.helper]
        rank = world.any_of(ranks)
        if rank is not None:
            world.tell(f"somebody kills rank {rank.rank} of {rank.key} generation {rank.generation}")
            world.programs.signal(rank, 9)


def words(move: Move) -> str:
    """For the story."""
    match move:
        case Submit(_, job, gang, runs_s, after, indices, at_once):
            parts = [f"{len(gang.members)} workers", f"{gang.gpus} GPUs"]
            parts += [f"{runs_s:g} s"] if runs_s else []
            parts += ["STOP_AND_REPLACE"] if gang.replace_when_lost else []
            parts += ["REPLACE_IF_ISOLATED"] if gang.replace_if_isolated else []
            parts += [gang.retries.scope.name] if gang.retries.scope.name == "WORKER" else []
            parts += [f"after {each.job}, for it to {each.end.in_words}" for each in after]
            parts += [f"{len(indices)} times, {at_once or 'all'} at once"] if indices else []
            parts += ["or pauses"] if gang.pause_if_unmet else []
            return f"a user submits {job} ({', '.join(parts)})"
        case OfJob(_, verb, job, args):
            return f"a user asks: {verb} {job}{' ' + str(args) if args else ''}"
        case OfHost(_, verb, host, args):
            return f"an admin asks: {verb} {host}{' ' + str(args) if args else ''}"
        case Weigh(_, project, weight):
            return f"an admin gives {project} {'no weight' if weight is None else f'the weight {weight:g}'}"
        case Guarantee(_, project, gpus):
            return f"an admin guarantees {project} {gpus} GPUs"
        case Reserve(_, name, project, in_s, for_s, hosts, count):
            which = ", ".join(hosts) or f"{count} hosts"
            return f"an admin reserves {which} for {project}, in {in_s:.0f} s and for {for_s:.0f} s, as {name}"
        case Limit(_, project, gpus):
            return f"an admin lets {project} hold {'what it can' if gpus is None else f'{gpus} GPUs'}"
        case Cut(_, hosts, up, down, for_s, peers):
            way = "both ways" if up and down else "towards the controller" if up else "from the controller"
            others = ", and the other hosts" if peers else ""
            return f"{', '.join(hosts)} cut off {way}{others} for {for_s:.0f} s"
        case Dies(_, what, host):
            return f"a {what}{' on ' + host if host else ''} is killed"
        case PowerLoss(_, host, for_s):
            return f"{host} loses power for {for_s:.0f} s"
        case SwitchedOff(_, host, for_s):
            return f"an admin switches {host} off for {for_s:.0f} s"
        case Frozen(_, for_s, replaced, host):
            if host:
                return f"the agent of {host} stands still for {for_s:.0f} s"
            return f"the controller stands still for {for_s:.0f} s{', another is started' if replaced else ''}"
        case ClockSet(_, host, by_s):
            return f"the wall clock of {host or 'the controller'} is set by {by_s:+.0f} s"
