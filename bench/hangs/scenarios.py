"""The fault matrix and the negatives, as scenarios for ``hang_world``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.hangs.world import (
    ALL_REDUCE,
    BARRIER,
    IDLE_W,
    IMPORTING,
    LOADER,
    LOOPS,
    PEERS,
    SLEEPS,
    SPIN_W,
    TRAINING,
    WAITING,
    WAITING_BUSILY,
    WAITING_IDLY,
    Doing,
    Scenario,
    steady_lines,
)

from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import Wait, WaitKind

START_S = 60.0


def usual(at_s: float, _rank: int) -> Doing:
    """Imports for a minute, then trains."""
    return IMPORTING if at_s < START_S else TRAINING


def _from(fault_s: float, guilty: int, culprit: Doing, victim: Doing = WAITING) -> Callable[[float, int], Doing]:
    """Training until the fault; then one rank is the culprit and the rest are victims."""

    def doing(at_s: float, rank: int) -> Doing:
        if at_s <= fault_s:
            return usual(at_s, rank)
        return culprit if rank == guilty else victim

    return doing


def _blocked(wchan: str, **changes: object) -> Doing:
    return replace(Doing(0.0, 0.0, wchan=wchan, changing=False), **changes)  # type: ignore[arg-type]


ENDLESS = Wait(WaitKind.SLEEP, place="train.py:41 `nap`", until_s=36000.0)
IN_LOADER = Wait(WaitKind.LOCK, place="data_loader.py:212 `queue.get`")
ON_MOUNT = Wait(WaitKind.FILE, "/data", place="data_loader.py:212 `read`")
IN_DRIVER = Wait(WaitKind.FILE, "/dev/nvidia0")
ON_DISK = Wait(WaitKind.FILE, "/dev/sda1", place="data_loader.py:212 `read`")

CULPRITS: dict[str, Doing] = {
    "SIGSTOP": _blocked("do_signal_stop", state=State.STOPPED),
    "early exit 0": Doing(exit_code=0, changing=False),
    "endless sleep": _blocked("hrtimer_nanosleep", frames=SLEEPS, wait=ENDLESS),
    "mismatched collective": replace(WAITING, frames=BARRIER),
    "CPU livelock": Doing(1.0, 0.3, state=State.RUNNING, wchan="0", frames=LOOPS, changing=False),
    "dataloader deadlock": replace(
        WAITING_IDLY, switches=0.2, wchan="futex_wait_queue", frames=LOADER, wait=IN_LOADER
    ),
    "disk stall (D)": _blocked(
        "nfs_wait_on_request", state=State.DISK, frames=LOADER, mount="/data", wait=ON_MOUNT
    ),
    "unkillable (D)": _blocked("rq_qos_wait", state=State.DISK, frames=LOADER, wait=ON_DISK),
    "driver call hangs": _blocked("nv_wait", state=State.DISK, gpu_blind=True, frames=ALL_REDUCE, wait=IN_DRIVER),
    "GPU lost": _blocked("futex_wait_queue", gpu_lost=True, frames=ALL_REDUCE, wait=PEERS),
    "Xid": _blocked("futex_wait_queue", xid=79, frames=ALL_REDUCE, wait=PEERS),
    "loop of short sleeps": Doing(0.01, 20.0, wchan="hrtimer_nanosleep", frames=SLEEPS, changing=False),
}


def fault(
    name: str,
    *,
    fault_s: float = 700.0,
    guilty: int = 5,
    gpu: bool = True,
    busy: bool = False,
    line_every_s: float = 10.0,
) -> Scenario:
    """One row of the fault matrix. ``busy``: the victims' main threads spin the CPU in a synchronise call."""
    victim = (WAITING_BUSILY if busy else WAITING) if gpu else WAITING_IDLY
    lines = steady_lines(line_every_s, until_s=fault_s)
    if name == "spin-wait of all":
        doing, blame = _from(fault_s, guilty, victim, victim), None
    elif name == "log heartbeat while hung":
        doing, blame = _from(fault_s, guilty, CULPRITS["endless sleep"], victim), guilty
        lines = _heartbeat(fault_s, line_every_s)
    else:
        doing, blame = _from(fault_s, guilty, CULPRITS[name], victim), guilty
    return Scenario(
        name,
        doing,
        ends_s=fault_s + 7200,
        fault_s=fault_s,
        guilty=blame,
        lines=lines,
        at_ceiling=name in ("CPU livelock", "loop of short sleeps"),
        external=name in ("disk stall (D)", "unkillable (D)"),
        unkillable=name == "unkillable (D)",
    )


def _heartbeat(fault_s: float, line_every_s: float) -> Callable[[float, float], list[str]]:
    train = steady_lines(line_every_s, until_s=fault_s)

    def lines(after_s: float, before_s: float) -> list[str]:
        beat = int(before_s // 20) > int(after_s // 20)
        hour, minute = int(before_s // 3600), int(before_s // 60) % 60
        return train(after_s, before_s) + ([f"PULSE {hour:02d}:{minute:02d}:00 still alive"] if beat else [])

    return lines


FAULTS = (*CULPRITS, "spin-wait of all", "log heartbeat while hung")


def _during(
    start_s: float, end_s: float, lone: Doing, peer: Doing, rank_0_only: bool
) -> Callable[[float, int], Doing]:
    def doing(at_s: float, rank: int) -> Doing:
        if not start_s < at_s <= end_s:
            return usual(at_s, rank)
        return lone if rank == 0 or not rank_0_only else peer

    return doing


def _pausing(start_s: float, end_s: float, every_s: float = 10.0) -> Callable[[float, float], list[str]]:
    """A log that is silent between the two times."""
    before, after = steady_lines(every_s, until_s=start_s), steady_lines(every_s, from_s=60.0)
    return lambda a, b: before(a, b) if b <= start_s else after(a, b) if a > end_s else []


def _pause(name: str, lone: Doing, minutes: float, *, alone: bool, peer: Doing = WAITING) -> Scenario:
    start_s, end_s = 700.0, 700.0 + 60 * minutes
    return Scenario(
        name,
        _during(start_s, end_s, lone, peer, alone),
        ends_s=end_s + 600,
        lines=_pausing(start_s, end_s),
        may_notice=alone and minutes > 5,
    )


EVALUATES = replace(TRAINING, util=60, memory_util=20, power_w=350.0)
EVALUATES_ON_CPU = Doing(1.0, 5.0, state=State.RUNNING, wchan="0")
SAVES = Doing(0.3, 30.0, storage=8e7, wchan="folio_wait_bit")
TOKENISES = Doing(1.0, 5.0, storage=2e6, state=State.RUNNING, wchan="0")
DOWNLOADS = Doing(0.08, 400.0, wchan="wait_woken", frames=LOADER, changing=False)
WAITS_FOR_CHILDREN = Doing(0.0, 0.1, wchan="do_wait", child_cpu=4.0, child_storage=1e5, spawns=0.5, changing=False)
COMPILES = Doing(1.0, 0.5, state=State.RUNNING, wchan="0")


def _tokenising() -> Scenario:
    end_s = 60 + 45 * 60.0
    return Scenario(
        "45-minute tokenising at the start",
        lambda t, r: IMPORTING if t < 60 else (TOKENISES if r == 0 else WAITING_IDLY) if t < end_s else TRAINING,
        ends_s=end_s + 900,
        lines=lambda a, b: ["loading"] if a < 20 <= b else steady_lines(10.0, from_s=end_s)(a, b),
    )


def _compile_at_start() -> Scenario:
    return Scenario(
        "compile in children at the start",
        lambda t, r: IMPORTING if t < 60 else WAITS_FOR_CHILDREN if t < 1500 else TRAINING,
        ends_s=2400,
        lines=lambda a, b: ["building extensions"] if a < 20 <= b else steady_lines(10.0, from_s=1500)(a, b),
    )


def _checkpoint() -> Scenario:
    start_s, wrote_s, end_s = 700.0, 1000.0, 1300.0
    stalls = Doing(0.0, 0.0, state=State.DISK, wchan="nfs_commit", changing=False)

    def doing(at_s: float, rank: int) -> Doing:
        if not start_s < at_s <= end_s:
            return usual(at_s, rank)
        return WAITING if rank else SAVES if at_s <= wrote_s else stalls

    return Scenario(
        "10-minute checkpoint, half of it without a byte",
        doing,
        ends_s=end_s + 600,
        lines=_pausing(start_s, end_s),
        checkpoint=lambda t: (None, False) if t <= start_s else (min(t, wrote_s), t <= end_s),
        may_notice=True,
    )


def _debugger() -> Scenario:
    start_s, end_s = 700.0, 1900.0
    held = Doing(0.0, 0.0, state=State.TRACED, wchan="ptrace_stop", traced=True, changing=False)

    def doing(at_s: float, rank: int) -> Doing:
        if not start_s < at_s <= end_s:
            return usual(at_s, rank)
        return held if rank == 3 else WAITING

    return Scenario("debugger attached", doing, ends_s=end_s + 600, lines=_pausing(start_s, end_s))


def _straggler(slowness: float) -> Scenario:
    """One rank is so many times slower: its peers spin most of the time, and their averages look like it."""
    share = 1 / slowness
    slow = replace(TRAINING, cpu=0.6, util=40, memory_util=20, power_w=300.0)
    peer = replace(
        WAITING, cpu=0.9 * share, switches=9.2 * share, memory_util=45 * share, power_w=SPIN_W + 448 * share
    )
    start_s, end_s = 700.0, 1900.0

    def printed(at_s: float) -> int:
        """Lines by then: one every 10 s, fewer while it straggles."""
        slow_s = max(0.0, min(at_s, end_s) - start_s)
        return max(0, int((at_s - 60.0 - slow_s * (1 - share)) // 10))

    def lines(after_s: float, before_s: float) -> list[str]:
        return [f"step {n} loss {2.5 / (1 + n):.4f}" for n in range(printed(after_s), printed(before_s))]

    return Scenario(
        f"straggler at {slowness:g}×",
        lambda t, r: usual(t, r) if not start_s < t <= end_s else slow if r == 3 else peer,
        ends_s=end_s + 300,
        lines=lines,
    )


def _declared_idle() -> Scenario:
    start_s, end_s = 700.0, 4300.0
    return Scenario(
        "declared idle",
        _during(start_s, end_s, WAITING_IDLY, WAITING_IDLY, False),
        ends_s=end_s + 600,
        lines=_pausing(start_s, end_s),
        idle=lambda t: "waits for the night tariff" if start_s < t <= end_s else "",
    )


def _away(name: str, *, agents: bool, seconds: float) -> Scenario:
    def gone(at_s: float) -> bool:
        return 700.0 < at_s <= 700.0 + seconds

    return Scenario(
        name,
        usual,
        ends_s=1500 + seconds,
        lines=steady_lines(10.0),
        agents_away=gone if agents else lambda _t: False,
        controller_away=(lambda _t: False) if agents else gone,
    )


def _clock_jump() -> Scenario:
    """The machine sleeps for an hour: the next sample of everything is an hour later, with the counters where
    they were.
    """
    return Scenario(
        "clock jump",
        lambda t, r: usual(t, r) if not 700 < t <= 4300 else WAITING_IDLY,
        ends_s=5000,
        lines=_pausing(700.0, 4300.0),
        agents_away=lambda t: 700 < t <= 4300,
        controller_away=lambda t: 700 < t <= 4300,
    )


def negatives() -> list[Scenario]:
    """Healthy stories that look like hangs."""
    idle_eval = replace(WAITING_IDLY, power_w=IDLE_W)
    return [
        _pause("rank-0 evaluation on its GPU, 4 min", EVALUATES, 4, alone=True),
        _pause("rank-0 evaluation on its GPU, 20 min", EVALUATES, 20, alone=True),
        _pause("rank-0 evaluation on the CPU, 20 min", EVALUATES_ON_CPU, 20, alone=True),
        _pause("rank-0 save, 4 min", SAVES, 4, alone=True),
        _pause("rank-0 save, 12 min", SAVES, 12, alone=True),
        _pause("rank-0 evaluation, peers on gloo", EVALUATES_ON_CPU, 4, alone=True, peer=idle_eval),
        _pause("rank-0 download, 20 min", DOWNLOADS, 20, alone=True),
        _tokenising(),
        _compile_at_start(),
        _pause("compile in children only, 12 min", WAITS_FOR_CHILDREN, 12, alone=False),
        _pause("long compile, 12 min", COMPILES, 12, alone=False),
        _pause("evaluation pause of all, 10 min", EVALUATES, 10, alone=False),
        _checkpoint(),
        _debugger(),
        *(_straggler(slowness) for slowness in (3, 5, 8)),
        Scenario("saturated, a line every 30 min", usual, ends_s=3 * 3600, lines=steady_lines(1800.0)),
        _declared_idle(),
        _away("agents restart, 60 s", agents=True, seconds=60),
        _away("agents restart, 10 min", agents=True, seconds=600),
        _away("controller restarts, 10 min", agents=False, seconds=600),
        _clock_jump(),
        _pause("undeclared sleep of all ranks, 50 s", _sleeps(50), 50 / 60, alone=False),
        _pause("undeclared sleep of all ranks, 2 min", _sleeps(120), 2, alone=False),
        _pause("rank 0 sleeps for 9 min", _sleeps(540), 9, alone=True),
        _told("rank 0 waits for a remote service, 3 min", REMOTE, 3),
        _told("rank 0 waits for a remote service, 9 min", REMOTE, 9),
        _told("rank 0 uploads the last file by a child", replace(REMOTE, wait=BY_CHILD), 5),
        _pause("rank 0 in a debugger's prompt, 2 h", replace(REMOTE, wait=PROMPT), 120, alone=True),
        _lines_of_remote_evaluation(),
        *_published_saves(),
    ]


REMOTE = Doing(
    0.001, 0.1, wchan="wait_woken", frames=SLEEPS, changing=False, wait=Wait(WaitKind.OUTSIDE, "10.9.8.7:443")
)
BY_CHILD = Wait(WaitKind.OUTSIDE, "pid 77 `aws s3 cp` waits for 10.9.8.7:443")
PROMPT = Wait(WaitKind.PERSON, "/dev/pts/3", place="train.py:9 `breakpoint`")


def _sleeps(seconds: float) -> Doing:
    wait = Wait(WaitKind.SLEEP, place="train.py:41 `nap`", until_s=seconds)
    return Doing(0.0, 0.0, wchan="hrtimer_nanosleep", frames=SLEEPS, changing=False, wait=wait)


def _told(name: str, lone: Doing, minutes: float) -> Scenario:
    return replace(_pause(name, lone, minutes, alone=True), may_notice=True)


TRAINS_AT_550_W = replace(TRAINING, power_w=550.0)
SAVES_AT_145_W = replace(SAVES, util=3, power_w=145.0)
WAITS_AT_150_W = replace(WAITING, power_w=150.0)
HIDDEN_SAVES: dict[str, Doing] = {
    "bytes in a file of an unknown name": SAVES_AT_145_W,
    "no byte, CPU at work": replace(SAVES_AT_145_W, storage=0.0, cpu=0.6, wchan="0", state=State.RUNNING),
    "no byte, waits for object storage": replace(REMOTE, util=3, power_w=145.0),
    "no byte, waits for a mount": _blocked("nfs_wait_on_request", util=3, power_w=145.0, wait=ON_MOUNT),
    "no byte, wait unknown": _blocked("futex_wait_queue", util=3, power_w=145.0),
}
"""Rank 0 while it saves and no checkpoint is seen to grow: what else can be seen of it."""


def save_on_8_h100s(what: str, seconds: float, *, hangs: bool = False) -> Scenario:
    """A save by rank 0 as published of 8 H100s: GPU 0 at 3 % and 145 W, the others at 100 % and 150 W against 550 W.

    It took 15 to 107 s, once 549 s. By its GPUs it looks as a hung collective does. ``what`` is a key of
    ``HIDDEN_SAVES``, or "checkpoint seen". With ``hangs`` it ends never: rank 0 waits for a thread that is dead.
    """
    start_s, end_s = 700.0, 700.0 + seconds
    seen = what == "checkpoint seen"
    saves = SAVES_AT_145_W if seen else HIDDEN_SAVES[what]
    if hangs:
        dead = Wait(WaitKind.LOCK, place="checkpoint.py:63 `join`")
        saves, end_s = replace(saves, cpu=0.0, switches=0.0, storage=0.0, changing=False, wait=dead), 8000.0

    def doing(at_s: float, rank: int) -> Doing:
        if at_s < START_S:
            return IMPORTING
        if not start_s < at_s <= end_s:
            return TRAINS_AT_550_W
        return WAITS_AT_150_W if rank else saves

    return Scenario(
        f"H100 save{' that hangs' if hangs else ''}, {seconds:.0f} s, {what}",
        doing,
        ends_s=end_s + 600,
        lines=_pausing(start_s, end_s),
        checkpoint=(lambda t: (None, False) if t <= start_s else (min(t, end_s), t <= end_s))
        if seen
        else (lambda _t: (None, False)),
        may_notice=not seen,
        fault_s=start_s if hangs else None,
        guilty=0 if hangs else None,
    )


def _published_saves() -> list[Scenario]:
    lasting = (15, 107, 549)
    hidden = [save_on_8_h100s(what, seconds) for what in HIDDEN_SAVES for seconds in lasting[1:]]
    return [*(save_on_8_h100s("checkpoint seen", seconds) for seconds in lasting), *hidden]


def _lines_of_remote_evaluation() -> Scenario:
    """A minute of steps, then 100 s in which all wait for an evaluation elsewhere, again and again."""
    cycle_s, train_s = 160.0, 60.0

    def trains(at_s: float) -> bool:
        return at_s < START_S or (at_s - START_S) % cycle_s < train_s

    def lines(after_s: float, before_s: float) -> list[str]:
        return steady_lines(10.0)(after_s, before_s) if trains(before_s) else []

    return Scenario(
        "60 s of steps, 100 s of remote evaluation",
        lambda t, r: usual(t, r) if trains(t) else REMOTE if r == 0 else WAITING_IDLY,
        ends_s=3600,
        lines=lines,
        may_notice=True,
    )
