"""R5: suspects of a hang. Only ranks that differ from their waiting peers are named, by the strongest sign there is.

Where more than half of the ranks are alike, the others are the odd ones. A gang of two has no majority, nor has one
that is split in halves; then it counts what the ranks do: who waits in a collective waits for others, so the one
that doesn't is named. If nothing distinguishes them, none is named: a wrong name costs more than none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.hang.evidence.stacks import RankStack, mismatched, odd_ones, outside_collectives
from holdfast.hang.judge.snapshot import Seen, View
from holdfast.hang.judge.waiting import Gang
from holdfast.hang.pipeline.features import GpuLook, Motion
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import WaitKind

# Where the kernel lets a thread wait for another one, or for a peer at the other end of a pipe or a connection.
_TO_BE_WOKEN = ("futex", "pipe_read", "poll", "sk_wait", "wait_woken", "unix_stream")


def find_suspects(view: View, gang: Gang) -> tuple[str, ...]:
    """The ranks that differ from their waiting peers; none when none differs.

    A rank that works or can't be seen is never named. Both of two ranks are, where each waits in a collective of
    its own: one of them has taken a wrong turn, and which one only the program's author can tell.
    """
    for sign in _SIGNS:
        named = sign(view, gang)
        if named and (len(named) < max(2, len(view.ranks)) or sign is _in_other_collectives):
            return tuple(seen.name for seen in named)
    return ()


def oddity(seen: Seen, view: View, gang: Gang) -> str:
    """R1: what is odd about a rank whatever its peers do, in words; empty where nothing is."""
    rank = seen.features
    if rank.hardware:
        return f"can't go on: {rank.hardware}"
    if rank.traced:
        return ""
    if rank.motion is Motion.STOPPED:
        return "is stopped by a signal"
    if rank.motion is Motion.ZOMBIE:
        return "has ended, and its exit is not recorded yet"
    if rank.motion is Motion.EXITED and rank.exit_code == 0 and _is_missed(view, gang):
        return "has ended with success while its peers wait for it"
    return ""


def _is_missed(view: View, gang: Gang) -> bool:
    """Whether all live ranks may be waiting for one that has ended: none is seen to wait for something else.

    What a rank waits for may show only in its frames, which are read once it has stood still for a while.
    """
    if not gang.still:
        return False
    for seen in view.live:
        wait = gang.wait(seen)
        read = bool(wait.place) or view.now_s - seen.features.still_since_s >= view.tuning.still_floor_s
        if wait.kind is not WaitKind.PEER and not (wait.kind is WaitKind.UNKNOWN and read):
            return False
    return True


# -- Signs, the strongest first ----------------------------------------------------------------------------------


def _failed(view: View, gang: Gang) -> Sequence[Seen]:
    return [seen for seen in view.ranks if oddity(seen, view, gang)]


def _uninterruptible(view: View, _gang: Gang) -> Sequence[Seen]:
    return [seen for seen in view.live if seen.features.state is State.DISK]


def _burning(view: View, gang: Gang) -> Sequence[Seen]:
    burning = [seen for seen in view.moving if seen.features.motion is Motion.BURNING]
    return [seen for seen in burning if not gang.is_busy_victim(seen)]


def _by_stack(view: View, _gang: Gang) -> Sequence[Seen]:
    return _with_stacks(view, odd_ones(view.diagnosis.groups) if view.diagnosis else ())


def _in_no_collective(view: View, _gang: Gang) -> Sequence[Seen]:
    return _with_stacks(view, outside_collectives(view.diagnosis.groups) if view.diagnosis else ())


def _in_other_collectives(view: View, _gang: Gang) -> Sequence[Seen]:
    """Both of two ranks: in a larger gang without a majority all would be named, which is no help."""
    if view.diagnosis is None or len(view.live) != 2 or not mismatched(view.diagnosis.groups):
        return []
    return _with_stacks(view, tuple(stack for group in view.diagnosis.groups for stack in group.stacks))


def _by_gpu(view: View, _gang: Gang) -> Sequence[Seen]:
    return _minority(view.live, _look)


def _by_wait(view: View, _gang: Gang) -> Sequence[Seen]:
    return _minority(view.live, lambda seen: (seen.features.state, seen.features.wchan))


def _idle_beside_spinning(view: View, _gang: Gang) -> Sequence[Seen]:
    """A collective's kernel spins on the GPUs that wait; the one that never entered it is idle."""
    looks = {_look(seen) for seen in view.live}
    if looks != {GpuLook.IDLE, GpuLook.SPIN}:
        return []
    return [seen for seen in view.live if _look(seen) is GpuLook.IDLE]


def _by_counts(view: View, _gang: Gang) -> Sequence[Seen]:
    """Ranks that have launched fewer collectives than their peers, where the counts are known and stand still."""
    behind = view.counts.laggards if view.counts is not None and view.counts.mismatched else frozenset()
    return [seen for seen in view.live if seen.key in behind and seen.features.still]


def _asleep(view: View, _gang: Gang) -> Sequence[Seen]:
    """Ranks that sleep by the clock, beside others that wait to be woken by another process."""
    asleep = [seen for seen in view.live if seen.features.still and "nanosleep" in seen.features.wchan]
    waits = [seen for seen in view.live if any(word in seen.features.wchan for word in _TO_BE_WOKEN)]
    return asleep if len(asleep) + len(waits) == len(view.live) else []


def _behind(view: View, _gang: Gang) -> Sequence[Seen]:
    """The worker that reported a smaller step than all the others, if each reported one and has one rank."""
    told = [view.steps.get(seen.worker) for seen in view.live]
    steps = [step for step in told if step is not None]
    if len(steps) < max(2, len(view.live)) or len({seen.worker for seen in view.live}) < len(view.live):
        return []
    if min(steps) == max(steps):
        return []
    return [seen for seen, step in zip(view.live, steps, strict=True) if step == min(steps)]


_SIGNS: tuple[Callable[[View, Gang], Sequence[Seen]], ...] = (
    _failed,
    _uninterruptible,
    _burning,
    _by_counts,
    _by_stack,
    _in_no_collective,
    _in_other_collectives,
    _by_gpu,
    _idle_beside_spinning,
    _by_wait,
    _asleep,
    _behind,
)


def _look(seen: Seen) -> GpuLook | None:
    return seen.features.gpu.look if seen.features.gpu else None


def _with_stacks(view: View, stacks: Sequence[RankStack]) -> Sequence[Seen]:
    keys = {(stack.worker, stack.rank) for stack in stacks}
    return [seen for seen in view.live if seen.key in keys]


def _minority(ranks: Sequence[Seen], key: Callable[[Seen], object]) -> Sequence[Seen]:
    """Ranks outside the group of equals that holds more than half of all."""
    sizes = Counter(key(seen) for seen in ranks)
    if not sizes:
        return []
    common, size = sizes.most_common(1)[0]
    return [seen for seen in ranks if key(seen) != common] if 2 * size > len(ranks) else []
