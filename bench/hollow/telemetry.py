"""What a hollow host tells of its ranks' work: features, minutes of series and marks, as an agent makes and sends them.

The samples are made up (``bench.hollow.training``). What folds them, when their news are sent, the connection with its
credit and the codec are the agent's own. There is no disk: nothing is journalled, and no samples are kept.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.hollow.training import Training

from holdfast._base.addresses import Addresses
from holdfast._security.tls import TlsFiles
from holdfast._session import hang_wire
from holdfast._session.reports import Exit, WorkerId
from holdfast.hang.records.recording import WorkerSample
from holdfast.hang.worker_watch import WorkerWatch
from holdfast.v1 import agent_pb2
from holdfast_agent.core.launch.accounts import AccountRules
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.shell.sampling.history import SampleHistory
from holdfast_agent.shell.sampling.listeners import Listeners
from holdfast_agent.shell.sampling.sampler import TICK_S
from holdfast_agent.shell.sampling.series import SeriesKeeper, SeriesReports
from holdfast_agent.shell.session.injections import Injections
from holdfast_agent.shell.session.rank_shells import Limits, RankShells
from holdfast_agent.shell.session.terminal_input import TerminalInput
from holdfast_agent.shell.session.transfer import Transfer
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shell.shims.spawner import Spawner
from holdfast_agent.shell.shims.worker_files import WorkerFiles
from holdfast_agent.shell.users.accounts import Accounts

NOWHERE = Path("/nowhere")
LOOK_S = 2 * TICK_S
"""Between two looks at a worker, twice an agent's: a look costs 1 ms of CPU, and a thousand hosts share two cores."""


class Telemetry:
    """Of one host. ``send`` says whether there is a session; ``epoch`` is as ``Transfer`` wants it.

    ``counts`` gets features, and minutes: reports of series that the controller has dealt with.
    """

    def __init__(
        self,
        controller: str,
        tls: TlsFiles,
        facts: HostFacts,
        epoch: Callable[[], int],
        send: Callable[[agent_pb2.SessionRequest], bool],
        counts: Counter[str],
    ) -> None:
        self._host = facts.name
        self._send = send
        self._counts = counts
        self._series = SeriesKeeper(_Counted(counts))
        self._trainings: dict[WorkerId, Training] = {}
        self._watches: dict[WorkerId, WorkerWatch] = {}
        self._recording: set[asyncio.Task[None]] = set()
        shims = Shims(WorkerFiles(NOWHERE, facts), Spawner(NOWHERE), lambda *_: None, lambda *_: None)
        self._transfer = Transfer(
            Addresses(controller),
            tls,
            facts,
            lambda *_: True,
            _examine,
            Listeners(),
            SampleHistory(NOWHERE),
            Accounts(facts.user, AccountRules(0)),
            TerminalInput(NOWHERE),
            self._series.reports,
            RankShells(NOWHERE, shims, Limits(0, 0.0)),
            Injections(NOWHERE, shims),
            epoch,
        )

    async def run(self) -> None:
        """Look at all ranks every four seconds, from a moment of this host's own on, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._transfer.run())
            tasks.create_task(self._series.run())
            due_s = time.monotonic() + random.uniform(0, LOOK_S)
            while True:
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                due_s = max(due_s + LOOK_S, time.monotonic())
                for training in self._trainings.values():
                    if not training.stopped:
                        self._take(training.sample(time.monotonic()))

    def on_launch(self, key: WorkerId, generation: int, ranks: Sequence[int]) -> None:
        """Let ranks begin; they go on from the last checkpoint of the generation before."""
        now_s = time.monotonic()
        before = self._trainings.get(key)
        self._trainings[key] = Training(key, generation, ranks, now_s, before.saved(now_s) if before else 0)

    def on_failure(self, key: WorkerId, ended: Exit) -> None:
        """Send what its worker has said, ahead of a failing exit; a recording of what went before it follows."""
        training = self._trainings.get(key)
        if training is not None:
            self._take(training.last_words(time.monotonic()))
        if recording := self._series.on_exit(key, ended):
            keeping = asyncio.get_running_loop().create_task(self._series.keep(recording))
            self._recording.add(keeping)
            keeping.add_done_callback(self._recording.discard)

    def on_empty(self, key: WorkerId) -> None:
        """Let a worker's ranks be looked at no more; what they saved is known until it is forgotten."""
        if training := self._trainings.get(key):
            training.stop(time.monotonic())

    def forget(self, key: WorkerId) -> None:
        """Drop all state of a worker that is gone."""
        self._trainings.pop(key, None)
        self._watches.pop(key, None)

    def _take(self, sample: WorkerSample) -> None:
        """As the agent's ``FeatureReporter`` does, but for what that keeps on its disk."""
        key = WorkerId(sample.job, sample.worker)
        watch = self._watches.get(key)
        if watch is None or watch.generation != sample.generation:
            watch = self._watches[key] = WorkerWatch(self._host, sample.generation)
        vector = watch.take(sample)
        if sample.ranks:
            self._series.on_sample(sample, vector.output.step)
        if watch.is_news(vector):
            report = hang_wire.to_proto(sample.job, sample.generation, vector, time.monotonic())
            sent = self._send(agent_pb2.SessionRequest(features=report))
            watch.sent = vector if sent else None
            self._counts["features"] += sent


class _Counted(SeriesReports):
    """Counts what the controller has dealt with."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def taken(self, number: int) -> None:
        """See ``SeriesReports``."""
        before = len(self)
        super().taken(number)
        self._counts["minutes"] += before - len(self)


async def _examine(order: agent_pb2.TakeEvidence) -> agent_pb2.EvidenceReport:
    return agent_pb2.EvidenceReport(id=order.id, problem="a hollow rank has no process")
