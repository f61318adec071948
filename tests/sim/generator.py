"""Draws a plan from a seed: a cluster, jobs for it, and what goes wrong."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.sim import faults
from tests.sim.cluster.framing import LEVELS
from tests.sim.moves import (
    PROJECTS,
    RESERVATIONS,
    ClockSet,
    Cut,
    Dies,
    Frozen,
    Guarantee,
    Limit,
    Move,
    OfHost,
    OfJob,
    PowerLoss,
    Reserve,
    Submit,
    SwitchedOff,
    Weigh,
)
from tests.sim.plan import Plan

from holdfast._base.job_file.choices import DependencyEnd, HangAction, RestartScope, SuccessPolicy
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Strategy, Task
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.model.warning import WarningSignal

LENGTHS_S = (100.0, 300.0, 600.0)
DAY_S = 86400.0


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(seed)
    weights = faults.draw(dice)
    hosts = dice.choice([3, 3, 4, 5])
    honest = dice.random() < 0.7
    spread = 0.03 if honest else 1.0
    rates = tuple(_rate(dice, spread) for _ in range(hosts))
    controller_rate = _rate(dice, spread)
    lasts_s = dice.choice(LENGTHS_S)
    names = [f"host-{index}" for index in range(hosts)]
    moves: list[Move] = []
    jobs = []
    for number in range(dice.randint(1, 6)):
        job = f"job-{number}"
        jobs.append(job)
        at_s = dice.random() * lasts_s * 0.7
        moves.append(Submit(at_s, job, _gang(dice, hosts, may_be_replaced=honest)))
        for _ in range(dice.choice([0, 0, 1, 3])):
            moves.append(_of_job(dice, job, at_s + dice.random() * lasts_s * 0.5))
    if honest and dice.random() < 0.25:
        moves += _cut_off(dice, names, lasts_s)
    for _ in range(dice.choice([0, 2, 5, 15, 30])):
        moves.append(_misfortune(dice, names, dice.random() * lasts_s))
    moves = _with_peers(moves, names, lasts_s, random.Random(f"peers {seed}"), honest=honest)
    moves += _stalls(random.Random(f"stalls {seed}"), names, lasts_s)
    moves.sort(key=lambda move: move.at_s)
    moves = _chained(moves, random.Random(f"after {seed}"))
    moves += _arrays(random.Random(f"array {seed}"), hosts, lasts_s, honest=honest)
    moves.sort(key=lambda move: move.at_s)
    moves = _shared(moves, random.Random(f"projects of {seed}"), lasts_s)
    moves = _near(moves, random.Random(f"near {seed}"))
    moves = _with_spares(moves, random.Random(f"spares of {seed}"), hosts)
    moves = _limited(moves, random.Random(f"limits of {seed}"), names, lasts_s)
    return Plan(
        seed,
        dice.getrandbits(64),
        weights,
        rates,
        controller_rate,
        lasts_s,
        tuple(moves),
        has_epilog=dice.random() < 0.3,
    )


def _cut_off(dice: random.Random, names: list[str], lasts_s: float) -> list[Move]:
    """A long job that goes on elsewhere, and a host that is cut off for longer than its lease."""
    gang = replace(_gang(dice, 2, may_be_replaced=True), replace_when_lost=True, timeout_s=DAY_S, waits=True)
    at_s = dice.random() * lasts_s * 0.3
    cut = Cut(at_s + 10.0 + dice.random() * 30.0, (dice.choice(names[:2]),), True, True, dice.uniform(80.0, 200.0))
    return [Submit(at_s, "long", gang, 300.0), cut]


def _with_peers(
    moves: list[Move], names: list[str], lasts_s: float, dice: random.Random, *, honest: bool
) -> list[Move]:
    """Half of the cuts are between hosts too, and jobs that keep their hosts leave those that their peers miss."""
    found: list[Move] = []
    for move in moves:
        match move:
            case Cut():
                found.append(replace(move, peers=dice.random() < 0.5))
            case Submit(gang=gang) if honest and not gang.replace_when_lost and dice.random() < 0.7:
                found.append(replace(move, gang=replace(gang, replace_if_isolated=True)))
            case _:
                found.append(move)
    if honest and dice.random() < 0.25:
        found += _missed(dice, names, lasts_s)
    return found


def _missed(dice: random.Random, names: list[str], lasts_s: float) -> list[Move]:
    """A long gang, and hosts of it that lose their power, the controller, or everything, for longer than the lease."""
    gang = replace(_gang(dice, 3, may_be_replaced=False), replace_if_isolated=True, timeout_s=DAY_S, waits=True)
    at_s = dice.random() * lasts_s * 0.3
    lost = tuple(dice.sample(names[:3], dice.choice([1, 1, 2])))
    begin_s, for_s = at_s + 10.0 + dice.random() * 30.0, dice.uniform(80.0, 300.0)
    moves: list[Move] = [Submit(at_s, "guarded", gang, 300.0)]
    if dice.random() < 0.2:
        return [*moves, PowerLoss(begin_s, lost[0], for_s)]
    return [*moves, Cut(begin_s, lost, True, True, for_s, peers=dice.random() < 0.6)]


def _chained(moves: list[Move], dice: random.Random) -> list[Move]:
    """In a third of the worlds jobs wait for the ends of earlier ones."""
    if dice.random() > 0.35:
        return moves
    found: list[Move] = []
    earlier: list[str] = []
    for move in moves:
        if isinstance(move, Submit):
            some = dice.sample(earlier, min(len(earlier), dice.choice([0, 1, 1, 2])))
            ends = [DependencyEnd.OK, DependencyEnd.OK, DependencyEnd.ANY, DependencyEnd.FAILED]
            after = tuple(Dependency(job, dice.choice(ends)) for job in some)
            pauses = bool(after) and dice.random() < 0.3
            earlier.append(move.job)
            move = replace(move, after=after, gang=replace(move.gang, pause_if_unmet=pauses))
        found.append(move)
    return found


def _arrays(dice: random.Random, hosts: int, lasts_s: float, *, honest: bool) -> list[Move]:
    """In a sixth of the worlds one submission makes several jobs, of which only some run at once."""
    if dice.random() > 0.17:
        return []
    at_s, count = dice.random() * lasts_s * 0.5, dice.randint(2, 5)
    gang = _gang(dice, min(hosts, 2), may_be_replaced=honest)
    indices, at_once = tuple(range(7, 7 + 2 * count, 2)), dice.choice([0, 1, 1, 2, 2, 3])
    moves: list[Move] = [Submit(at_s, "array", gang, dice.choice([0.0, 5.0, 20.0]), (), indices, at_once)]
    for _ in range(dice.choice([0, 1, 3])):
        verb = dice.choice(["cancel", "cancel all", "pause", "resume", "restart"])
        moves.append(OfJob(at_s + dice.random() * lasts_s * 0.5, verb, "array"))
    return moves


def _shared(moves: list[Move], dice: random.Random, lasts_s: float) -> list[Move]:
    """In a third of the worlds jobs are of several projects, which get weights and in half of these guarantees."""
    if dice.random() > 0.35:
        return moves
    found: list[Move] = []
    for move in moves:
        if isinstance(move, Submit):
            move = replace(move, gang=replace(move.gang, project=dice.choice(PROJECTS)))
        found.append(move)
    for _ in range(dice.choice([1, 2, 5])):
        weight = None if dice.random() < 0.3 else dice.choice([0.5, 1.0, 4.0])
        found.append(Weigh(dice.random() * lasts_s * 0.8, dice.choice(PROJECTS), weight))
    if dice.random() < 0.5:
        for _ in range(dice.choice([1, 2, 4])):
            gpus = dice.choice([0, 1, 2, 4, 6])
            found.append(Guarantee(dice.random() * lasts_s * 0.6, dice.choice(PROJECTS), gpus))
    return sorted(found, key=lambda move: move.at_s)


def _limited(moves: list[Move], dice: random.Random, names: list[str], lasts_s: float) -> list[Move]:
    """In a sixth of the worlds hosts are reserved for projects, and these get quotas; in half of these drains, too.

    The drains are of reserved hosts where these have names: planned for the same time, or begun at once.
    """
    if dice.random() > 0.17:
        return moves
    lengths = random.Random(f"lengths of {lasts_s} {moves[0].at_s}")
    found = [_declared(move, lengths) for move in moves]
    for name in RESERVATIONS[: dice.choice([1, 2])]:
        at_s, in_s = dice.random() * lasts_s * 0.5, dice.choice([0.0, 0.0, 30.0, 200.0])
        some = tuple(dice.sample(names, dice.choice([1, 1, 2]))) if dice.random() < 0.6 else ()
        for_s, count = dice.uniform(20.0, 300.0), 0 if some else dice.choice([1, 2])
        reserved = Reserve(at_s, name, dice.choice(PROJECTS), in_s, for_s, some, count)
        found += [reserved, *_drained(reserved, random.Random(f"drains of {name} {at_s}"), names)]
    for _ in range(dice.choice([0, 1, 3])):
        gpus = dice.choice([None, 1, 2, 4])
        found.append(Limit(dice.random() * lasts_s * 0.6, dice.choice(PROJECTS), gpus))
    return sorted(found, key=lambda move: move.at_s)


def _declared(move: Move, dice: random.Random) -> Move:
    """Half of the jobs there say how long they run, rightly or not: some start on a host before its drain."""
    if not isinstance(move, Submit) or dice.random() < 0.5:
        return move
    expected_s = min(dice.choice([10.0, 60.0, 200.0]), move.gang.timeout_s)
    return replace(move, gang=replace(move.gang, expected_s=expected_s))


def _drained(reserved: Reserve, dice: random.Random, names: list[str]) -> list[Move]:
    if dice.random() < 0.5:
        return []
    found: list[Move] = []
    for host in dice.sample(reserved.hosts or names, 1 if dice.random() < 0.7 else len(reserved.hosts) or 2):
        at_s, deadline_s = reserved.at_s + dice.uniform(-20.0, 60.0), dice.choice([None, 0.0, 30.0])
        if dice.random() < 0.3:
            found.append(OfHost(max(at_s, 0.0), "drain", host, (deadline_s, dice.random() < 0.3)))
        else:
            in_s, for_s = reserved.in_s + dice.choice([0.0, 40.0, 150.0]), dice.uniform(20.0, 200.0)
            found.append(OfHost(max(at_s, 0.0), "plan", host, (in_s, for_s, deadline_s)))
        if dice.random() < 0.3:
            found.append(OfHost(max(at_s, 0.0) + dice.uniform(5.0, 100.0), "call off", host))
    return found


def _near(moves: list[Move], dice: random.Random) -> list[Move]:
    """In a third of the worlds gangs prefer one rack, or have to be in one."""
    if dice.random() > 0.35:
        return moves
    found: list[Move] = []
    for move in moves:
        if isinstance(move, Submit) and len(move.gang.members) == 2:
            near = Locality(LEVELS, "rack", required=dice.random() < 0.7)
            move = replace(move, gang=replace(move.gang, near=near))
        found.append(move)
    return found


def _stalls(dice: random.Random, names: list[str], lasts_s: float) -> list[Move]:
    """Daemons whose event loops are held, in a third of the worlds: for a moment, or for longer than a lease."""
    if dice.random() > 0.35:
        return []
    found: list[Move] = []
    for _ in range(dice.choice([1, 3, 8])):
        at_s, for_s = dice.random() * lasts_s, dice.choice([2.0, 8.0, 30.0, 65.0, 120.0]) * dice.uniform(0.8, 1.2)
        found.append(Frozen(at_s, for_s, host=dice.choice(["", dice.choice(names)])))
    return found


def _rate(dice: random.Random, spread: float) -> float:
    """Monotonic clocks of machines differ by millionths; wild ones show whether anything depends on that.

    A fence does: it is safe while its host's clock and the controller's differ by less than a tenth. So jobs whose
    work is replaced are drawn only where clocks are honest.
    """
    return 1.0 if dice.random() < 0.3 else (1.0 + spread) ** dice.uniform(-1.0, 1.0)


def _gang(dice: random.Random, hosts: int, *, may_be_replaced: bool) -> Gang:
    processes, gpus = dice.choice([1, 1, 2]), dice.choice([0, 1, 2, 2])
    workers = dice.randint(1, min(hosts, 3))
    pool = Pool(1, Task(("train",)), processes=processes, gpus=gpus)
    pools = (pool,) if workers == 1 else (pool, Pool(workers - 1, Task(("train",)), processes=processes, gpus=gpus))
    backoff_s = dice.choice([0.0, 0.0, 5.0])
    retries = Retries(
        scope=dice.choice([RestartScope.GANG, RestartScope.GANG, RestartScope.WORKER]),
        job_retries=dice.choice([0, 1, 3]),
        backoff_s=backoff_s,
        backoff_limit_s=30.0,
        permanent_codes=frozenset({2}) if dice.random() < 0.2 else frozenset(),
    )
    return Gang(
        pools,
        timeout_s=dice.choice([604800.0, 604800.0, 150.0]),
        grace_s=dice.choice([1.0, 10.0]),
        end_grace_s=20.0,
        success=dice.choice(list(SuccessPolicy)),
        hang=_hang(dice),
        retries=retries,
        strategy=dice.choice([Strategy.STANDARD, Strategy.STANDARD, Strategy.SPOT]),
        priority=dice.randint(1, 3),
        max_wait_s=600.0,
        waits=dice.random() < 0.9,
        replace_when_lost=may_be_replaced and dice.random() < 0.5,
        warning=WarningSignal(10, 5.0) if dice.random() < 0.2 else None,
    )


def _hang(dice: random.Random) -> HangSettings:
    action, after_s = dice.choice(list(HangAction)), dice.choice([20.0, 60.0])
    return HangSettings(action, timeout_s=after_s, startup_timeout_s=after_s, ceiling_s=after_s)


def _of_job(dice: random.Random, job: str, at_s: float) -> Move:
    verb = dice.choice(["cancel", "pause", "resume", "resume", "restart", "hold"])
    args = (dice.choice([0.0, 60.0]),) if verb == "hold" else ()
    return OfJob(at_s, verb, job, args)


def _misfortune(dice: random.Random, names: list[str], at_s: float) -> Move:
    host, for_s = dice.choice(names), dice.choice([1.0, 15.0, 50.0, 70.0, 90.0, 200.0]) * dice.uniform(0.8, 1.2)
    match dice.randrange(12):
        case 0 | 1:
            up, down = dice.choice([(True, True), (True, False), (False, True)])
            some = tuple(dice.sample(names, dice.choice([1, 1, 1, 2, len(names)])))
            return Cut(at_s, some, up, down, for_s)
        case 2:
            return Dies(at_s, "agent", host)
        case 3:
            return Dies(at_s, "shim", host)
        case 4:
            return Dies(at_s, "rank", host)
        case 5:
            return Dies(at_s, "controller")
        case 6:
            return PowerLoss(at_s, host, for_s)
        case 7:
            return SwitchedOff(at_s, host, for_s)
        case 8:
            replaced = dice.random() < 0.5
            return Frozen(at_s, for_s, replaced)
        case 9:
            by_s = dice.choice([-DAY_S, -30.0, 30.0, DAY_S])
            return ClockSet(at_s, dice.choice(["", host]), by_s)
        case 10:
            return OfHost(at_s, dice.choice(["cordon", "uncordon"]), host)
        case _:
            deadline_s = dice.choice([None, 0.0, 30.0])
            return OfHost(at_s, "drain", host, (deadline_s, dice.random() < 0.3))


def _with_spares(moves: list[Move], dice: random.Random, hosts: int) -> list[Move]:
    """Jobs that may leave a lost host hold a spare or two: half of those that will; in a quarter of the worlds most."""
    chance = 0.8 if dice.random() < 0.25 else 0.0
    found: list[Move] = []
    for move in moves:
        if isinstance(move, Submit):
            gang = move.gang
            room = hosts - len(gang.members)
            leaves = gang.replace_when_lost or (gang.replace_if_isolated and len(gang.members) > 1)
            often = max(chance, 0.5) if move.job in ("long", "guarded") else chance
            if leaves and room > 0 and dice.random() < often:
                move = replace(move, gang=replace(gang, spares=dice.randint(1, min(room, 2))))
        found.append(move)
    return found
