"""Sends each worker's vector when the controller would judge differently by it, and takes evidence on order."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holdfast._daemon import log
from holdfast._session import hang_wire
from holdfast._session.assignment import Launch
from holdfast._session.reports import WorkerId
from holdfast.hang.pipeline.features import GpuUse
from holdfast.hang.pipeline.step_pattern import BadPattern
from holdfast.hang.records.recording import WorkerSample
from holdfast.hang.thresholds import HangSettings, tuned
from holdfast.hang.worker_watch import WorkerWatch
from holdfast.v1 import agent_pb2
from holdfast_agent.core.gpu.idle import IdleGpus
from holdfast_agent.core.gpu.signals import HostGpus
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.shell.evidence import Examiner
from holdfast_agent.shell.hangs.stack_watch import StackWatch
from holdfast_agent.shell.sampling.history import SampleHistory
from holdfast_agent.shell.sampling.series import SeriesKeeper

JOURNAL_EVERY_S = 10.0


class FeatureReporter:
    """The hang reports of one host. ``worker`` looks a worker up; ``send`` returns whether there is a session."""

    def __init__(
        self,
        host: str,
        workers: Path,
        examiner: Examiner,
        history: SampleHistory,
        series: SeriesKeeper,
        worker: Callable[[WorkerId], Worker | None],
        send: Callable[[agent_pb2.SessionRequest], bool],
    ) -> None:
        self._host = host
        self._workers = workers
        self._examiner = examiner
        self._history = history
        self._series = series
        self._worker = worker
        self._send = send
        self._watches: dict[WorkerId, WorkerWatch] = {}
        self._untold: set[WorkerId] = set()
        """Whose settings no controller has sent since this agent began."""
        self._idle: dict[WorkerId, tuple[int, IdleGpus]] = {}
        self.gpus = HostGpus()
        """The newest reading of the host's GPUs; those of the sampler, once it is there."""
        self._journalled: dict[WorkerId, float] = {}
        self._examined: set[WorkerId] = set()
        self.stacks = StackWatch(examiner.python_frames)

    def on_sample(self, sample: WorkerSample) -> None:
        """Fold a sample in, and send the controller the features that changed."""
        key = WorkerId(sample.job, sample.worker)
        worker = self._worker(key)
        if worker is None:
            self.forget(key)
            return
        self._history.on_sample(sample)
        watch = self._watches.get(key)
        if watch is None or watch.generation != sample.generation:
            watch = self._watches[key] = self._begin(key, worker, sample.generation)
        elif key in self._untold and _launch_of(worker) is not None:
            self._journal(key, watch)
            watch = self._watches[key] = self._begin(key, worker, sample.generation)
        vector = replace(watch.take(sample), gpus=self._gpus_of(key, worker, sample))
        output = vector.output
        if sample.ranks:
            self._series.on_sample(sample, output.bar_step if output.step is None else output.step)
            self.stacks.note(key, sample, vector)
        if watch.is_news(vector):
            report = hang_wire.to_proto(sample.job, sample.generation, vector, time.monotonic())
            watch.sent = vector if self._send(agent_pb2.SessionRequest(features=report)) else None
        if sample.at_s - self._journalled.get(key, 0.0) >= JOURNAL_EVERY_S:
            self._journalled[key] = sample.at_s
            self._journal(key, watch)

    def examining(self, key: WorkerId) -> bool:
        """Whether evidence of this worker is being taken."""
        return key in self._examined

    def forget(self, key: WorkerId) -> None:
        """Drop all state of a worker that is gone."""
        self._watches.pop(key, None)
        self._untold.discard(key)
        self._idle.pop(key, None)
        self._journalled.pop(key, None)
        self._history.forget(key)
        self.stacks.forget(key)

    def close(self) -> None:
        """Write down what is kept of samples."""
        self._history.close()

    def _gpus_of(self, key: WorkerId, worker: Worker, sample: WorkerSample) -> tuple[GpuUse, ...]:
        launch = _launch_of(worker)
        if launch is None or not launch.idle_below_pct:
            return ()
        generation, idle = self._idle.get(key, (0, None))
        if idle is None or generation != sample.generation:
            idle = IdleGpus(launch.idle_below_pct)
            self._idle[key] = sample.generation, idle
        return idle.look(launch.gpus, self.gpus, sample.at_s)

    def _begin(self, key: WorkerId, worker: Worker, generation: int) -> WorkerWatch:
        launch = _launch_of(worker)
        (self._untold.discard if launch else self._untold.add)(key)
        pattern = launch.step_pattern if launch else ""
        tuning = tuned(HangSettings(timeout_s=(launch.hang_timeout_s if launch else 0) or None))
        try:
            watch = WorkerWatch(self._host, generation, pattern, tuning)
        except BadPattern as error:
            # One that an earlier controller accepted. The job's other output still tells of its progress.
            log.warning("step_pattern.unusable", worker=str(key), error=f"stepPattern {error}", fix=error.fix)
            watch = WorkerWatch(self._host, generation, tuning=tuning)
        try:
            watch.restore(json.loads(self._path(key).read_text()))
        except FileNotFoundError:
            pass  # The worker is new.
        except (ValueError, OSError) as error:
            log.warning("baseline.unreadable", worker=str(key), error=str(error))
        return watch

    def _journal(self, key: WorkerId, watch: WorkerWatch) -> None:
        """Not synced: after a power cut the ranks are gone, and their baselines with them."""
        path = self._path(key)
        fresh = path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(watch.journal()))
            os.replace(fresh, path)
        except OSError as error:
            log.warning("baseline.write_failed", worker=str(key), error=str(error))

    def _path(self, key: WorkerId) -> Path:
        return self._workers / key.job / key.worker / "baseline.json"

    async def examine(self, order: agent_pb2.TakeEvidence) -> agent_pb2.EvidenceReport:
        """Evidence of one worker, or why there is none."""
        worker = self._worker(WorkerId(order.job_id, order.worker))
        if worker is None:
            return agent_pb2.EvidenceReport(id=order.id, problem=f"{self._host} knows no such worker")
        self._examined.add(worker.key)
        began_s, dumps = time.monotonic(), dict[int, bytes]()
        try:
            found = await self._examiner.diagnose(
                worker, order.generation, order.suspects, native=True, dumps=dumps
            )
        finally:
            self._examined.discard(worker.key)
        self.stacks.on_evidence(worker.key, found, began_s)
        log.info(
            "evidence.collected", worker=str(worker.key), ranks=len(found.ranks), duration_s=round(found.took_s, 1)
        )
        report = agent_pb2.EvidenceReport(id=order.id, content=hang_wire.pack(found))
        if order.samples:
            report.samples = self._history.read(worker.key)
            report.dumps = hang_wire.pack_dumps(dumps)
            report.recording = await self._series.recording(worker.key)
        return report


def _launch_of(worker: Worker) -> Launch | None:
    return worker.launched or (worker.desired.launch if worker.desired else None)
