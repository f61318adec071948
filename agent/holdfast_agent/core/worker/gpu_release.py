"""Whether a generation's GPUs are free again: the second half of the proof that a worker is empty.

Theory of operation. The kernel may have reaped the last process of a generation while the driver still tears
down its memory, so a worker that was given GPUs goes from "no process is left" through ``Freeing``. It is empty
once each of its devices lists no compute process of the worker's and holds no more than ``SLACK_BYTES`` above
what it held when nothing used it: the lowest figure ever read of it while it listed no compute process. Looks
come at once, then after 50 ms, twice that, and so on. What takes longer than ``STUCK_AFTER_S`` is said; the
looks go on.

A figure that the driver doesn't have proves nothing and keeps nothing back; then the processes' end alone counts. The
same holds for a device that is gone or faulty: the inventory says so and keeps work away from it. But while the
driver as a whole doesn't answer, nothing at all can be known, and the worker is quarantined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast_agent.core.model.gpus import Blind, GpuUsage
from holdfast_agent.core.worker.actions import Action, FreePorts, ReadGpus, RememberFreed
from holdfast_agent.core.worker.events import GpusRead
from holdfast_agent.core.worker.states import Empty, Freeing, Quarantined
from holdfast_agent.core.worker.worker import Worker

MIB = 1 << 20
SLACK_BYTES = 64 * MIB
"""An empty GPU's figure wanders by some MiB; a process with a context holds hundreds."""
NOISE_BYTES = MIB
"""What a lower figure has to differ by to be worth a write."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
STUCK_AFTER_S = 10.0
"""Tearing down a full GPU takes seconds at most."""
_MOST_PIDS = 8


def learn(unused: dict[str, int], usage: Iterable[GpuUsage]) -> bool:
    """Keep the lowest figure of each device without compute processes. Returns whether one is new."""
    fresh = False
    for gpu in usage:
        if gpu.pids == () and gpu.used_bytes is not None:
            known = unused.get(gpu.uuid)
            if known is None or gpu.used_bytes <= known - NOISE_BYTES:
                unused[gpu.uuid] = gpu.used_bytes
                fresh = True
    return fresh


def still_held(
    uuids: Iterable[str],
    read: GpusRead,
    unused: Mapping[str, int],
    names: Mapping[str, str],
    survivors: frozenset[int] = frozenset(),
) -> str:
    """Why these devices are not free, in words; empty where they are.

    ``survivors`` may go on to use theirs: of a device that lists one nothing is said of the memory, and where the
    driver lists no processes, of no device.
    """
    if isinstance(read.usage, Blind):
        return f"the GPU driver doesn't answer, so nothing is proven of its GPUs ({read.usage.reason})"
    usage = {gpu.uuid: gpu for gpu in read.usage}
    return "; ".join(
        words
        for uuid in uuids
        if uuid in usage
        and (words := _held(usage[uuid], read.foreign | survivors, _bound(usage[uuid], unused, survivors), names))
    )


def _bound(gpu: GpuUsage, unused: Mapping[str, int], survivors: frozenset[int]) -> int | None:
    """Most bytes that it holds when nothing uses it; None where that is not known, or a survivor may use it."""
    used_on = survivors and (gpu.pids is None or survivors.intersection(gpu.pids))
    return None if used_on else unused.get(gpu.uuid)


def _held(gpu: GpuUsage, foreign: frozenset[int], unused: int | None, names: Mapping[str, str]) -> str:
    holds, name = [], names.get(gpu.uuid, "")
    if gpu.used_bytes is not None and unused is not None and gpu.used_bytes > unused + SLACK_BYTES:
        holds.append(f"holds {(gpu.used_bytes - unused) // MIB} MiB more than when it was empty")
    pids = [pid for pid in gpu.pids or () if pid not in foreign]
    if pids:
        shown = ", ".join(map(str, pids[:_MOST_PIDS])) + (", ..." if len(pids) > _MOST_PIDS else "")
        holds.append(f"is used by {'process' if len(pids) == 1 else 'processes'} {shown}")
    # MIG instances are called by their UUID, here as by CUDA.
    called = f"GPU {name} ({gpu.uuid})" if name not in ("", gpu.uuid) else f"GPU {gpu.uuid}"
    return f"{called} {' and '.join(holds)}" if holds else ""


def begin(worker: Worker, now: float) -> list[Action]:
    """No process of the worker is left: look at its GPUs."""
    generation = worker.state.generation
    worker.move(Freeing(generation, now, FIRST_PAUSE_S))
    return [ReadGpus(worker.key, generation)]


def resume(worker: Worker, generation: int, now: float) -> list[Action]:
    """Look at the GPUs of a worker that an earlier run of the agent left in ``Freeing``."""
    worker.find(Freeing(generation, now, FIRST_PAUSE_S))
    return [ReadGpus(worker.key, generation)]


def after_look(worker: Worker, held: str, now: float) -> list[Action]:
    """Move the worker to ``Empty`` where nothing is ``held``, else read its GPUs again after a pause."""
    state = worker.state
    generation, pause_s = state.generation, LONGEST_PAUSE_S
    if not held:
        worker.move(Empty(generation))
        return [RememberFreed(worker.key, generation), FreePorts(worker.key)]
    if isinstance(state, Quarantined) or (isinstance(state, Freeing) and now - state.since_s >= STUCK_AFTER_S):
        worker.move(Quarantined(generation, held))
    elif isinstance(state, Freeing):
        pause_s = state.pause_s
        longer_s = min(2 * pause_s, LONGEST_PAUSE_S)
        worker.move(Freeing(generation, state.since_s, longer_s, held))
    return [ReadGpus(worker.key, generation, pause_s)]
