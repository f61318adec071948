"""The agent's metrics, as far as its core knows them: counters of events, and gauges of the current state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast._daemon.metrics.series import Series
from holdfast._session.reports import WorkerId
from holdfast_agent.core.gpu.signals import STALE_S, HostGpus
from holdfast_agent.core.metrics import families as fam
from holdfast_agent.core.model.gpus import Gpu
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.states import StateKind

_GONE = frozenset({StateKind.EMPTY, StateKind.FORGETTING, StateKind.FORGOTTEN})


class Meter:
    """Counts since the agent started; ``series`` returns them for an exposition."""

    def __init__(self) -> None:
        self.series = Series()
        self._launching: dict[WorkerId, tuple[int, set[int], float]] = {}
        """By worker: the generation that was ordered, its ranks that are not started yet, and when it was."""
        plain = (fam.SESSIONS, fam.SHIMS_LOST, fam.LAUNCH, fam.LAUNCH_REFUSALS, fam.SAMPLING, fam.SAMPLING_LATE)
        for family in plain:
            self.series.declare(family)
        for fault in ("host", "program"):
            self.series.declare(fam.PREPARATION_FAILURES, fault)

    def take(self, event: ev.Event, actions: Sequence[act.Action], now: float) -> None:
        """Count an event and what was decided about it. ``now`` is monotonic seconds."""
        match event:
            case ev.RankStarted(key, generation, rank):
                self._on_started(key, generation, rank, now)
            case ev.Welcomed():
                self.series.add(fam.SESSIONS)
            case ev.ShimLost(key):
                self.series.add(fam.SHIMS_LOST)
                self._launching.pop(key, None)
            case ev.LaunchRefused(key):
                self.series.add(fam.LAUNCH_REFUSALS)
                self._launching.pop(key, None)
            case ev.PreparationFailed():
                self.series.add(fam.PREPARATION_FAILURES, "host" if event.host_fault else "program")
            case ev.WorkerEmptied(key):
                self._launching.pop(key, None)
        for action in actions:
            if isinstance(action, act.LaunchRanks):
                self._on_ordered(action, now)

    def sampled(self, took_s: float, *, late: bool) -> None:
        """The hang detector has looked at all workers."""
        self.series.observe(fam.SAMPLING, took_s)
        if late:
            self.series.add(fam.SAMPLING_LATE)

    def _on_ordered(self, order: act.LaunchRanks, now: float) -> None:
        known = self._launching.get(order.key)
        if known is None or known[0] != order.generation:
            # An order that is repeated counts from the first time.
            self._launching[order.key] = order.generation, {rank.rank for rank in order.ranks}, now

    def _on_started(self, key: WorkerId, generation: int, rank: int, now: float) -> None:
        known = self._launching.get(key)
        if known is None or known[0] != generation:
            return
        known[1].discard(rank)
        if not known[1]:
            self.series.observe(fam.LAUNCH, now - known[2])
            del self._launching[key]


def gauges(reactor: Reactor, gpus: Iterable[Gpu], gpu_problem: str, signals: HostGpus, now: float) -> Series:
    """The gauges of this host's workers and GPUs, for one scrape."""
    series = Series()
    series.set(fam.CONNECTED, reactor.connected)
    series.set(fam.OUTBOX, len(reactor.outbox))
    counts = Counter(worker.state.kind for worker in reactor.workers.values())
    for kind in StateKind:
        if kind not in _GONE:
            series.set(fam.WORKERS, counts[kind], kind.name)
    series.set(fam.GPUS_READABLE, not gpu_problem)
    fresh = not signals.blind and now - signals.at_s <= STALE_S
    for gpu in gpus:
        who = str(gpu.index), gpu.uuid
        series.set(fam.GPU_HEALTHY, not (gpu.problem or gpu_problem), *who)
        series.set(fam.GPU_MEMORY, gpu.memory_bytes, *who)
        told = signals.reading.get(gpu.uuid) if fresh else None
        if told is None:
            continue
        for family, pct in ((fam.GPU_UTILIZATION, told.util_pct), (fam.GPU_MEMORY_BUSY, told.memory_util_pct)):
            if pct is not None:
                series.set(family, pct / 100, *who)
        for family, value in (
            (fam.GPU_ENERGY, None if told.energy_mj is None else told.energy_mj / 1000),
            (fam.GPU_MEMORY_USED, told.memory_used_bytes),
            (fam.GPU_TEMPERATURE, told.temperature_c),
            (fam.GPU_CLOCK, None if told.sm_clock_mhz is None else told.sm_clock_mhz * 1e6),
        ):
            if value is not None:
                series.set(family, value, *who)
    return series
