"""The training that ranks of a hollow worker seem to run: a step every five seconds, a checkpoint now and then."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.support.training import RankCounters

from holdfast._session.reports import WorkerId
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, State
from holdfast.hang.records.recording import SavedFiles, WorkerSample
from holdfast.training.rank_progress import RankProgress

STEP_S = 5.0
STEPS = 100_000
STEPS_OF_SAVE = 12
"""Steps from one checkpoint to the next."""
SAVE_S = 2.0
GPU_S = 5.0
"""Between two readings of a GPU."""


class Training:
    """One worker in one generation, from ``began_s`` on. Times are on the monotonic clock."""

    def __init__(self, key: WorkerId, generation: int, ranks: Sequence[int], began_s: float, resumed: int) -> None:
        self.generation = generation
        self._key = key
        self._began_s = began_s
        self._resumed = resumed
        """The step of the checkpoint that it goes on from; 0: none."""
        self._at_s = began_s
        self._stopped_s: float | None = None
        dice = random.Random()
        self._counters = {rank: RankCounters(dice, at) for at, rank in enumerate(ranks)}
        self._gpus: dict[int, GpuSample] = {}
        self._gpus_at_s = -GPU_S

    @property
    def stopped(self) -> bool:
        """Whether its ranks are gone."""
        return self._stopped_s is not None

    def stop(self, now_s: float) -> None:
        """Take no further step."""
        self._stopped_s = now_s

    def saved(self, now_s: float) -> int:
        """The step of the newest checkpoint that is complete; 0 while there is none."""
        return self._resumed + self._done(now_s - SAVE_S) // STEPS_OF_SAVE * STEPS_OF_SAVE

    def sample(self, now_s: float) -> WorkerSample:
        """What an agent's look at it finds."""
        saves = self._saves(now_s)
        for counted in self._counters.values():
            counted.go_on(now_s - self._at_s, saves=saves)
        self._at_s = now_s
        if now_s - self._gpus_at_s >= GPU_S:
            self._gpus_at_s = now_s
            self._gpus = {rank: each.gpu(now_s, saves=saves) for rank, each in self._counters.items()}
        ranks = tuple(self._rank(rank, now_s) for rank in self._counters)
        return WorkerSample(
            self._key.job,
            self._key.worker,
            self.generation,
            now_s,
            ranks,
            files=SavedFiles(checkpoint_open=saves),
            progress=self._progress(now_s),
        )

    def last_words(self, now_s: float) -> WorkerSample:
        """What is read of it as one of its ranks has failed."""
        said = self._progress(now_s)
        return WorkerSample(self._key.job, self._key.worker, self.generation, now_s, progress=said)

    def _rank(self, rank: int, now_s: float) -> RankSample:
        counted = self._counters[rank]
        switches = int((now_s - self._began_s) * 100)
        process = ProcessSample(State.SLEEPING, counted.cpu_s, switches, int(counted.cpu_s * (1 << 20)))
        return RankSample(now_s, rank, process, gpu=self._gpus[rank])

    def _progress(self, now_s: float) -> tuple[RankProgress, ...]:
        done, saved, saves = self._done(now_s), self.saved(now_s), self._saves(now_s)
        return tuple(
            RankProgress(
                rank,
                reports=done,
                step=self._resumed + done if done else None,
                at_s=self._began_s + done * STEP_S,
                total=STEPS,
                saved=saved or None,
                resumed=self._resumed or None,
                resumes=int(self._resumed > 0),
                saves=saves,
            )
            for rank in self._counters
        )

    def _done(self, now_s: float) -> int:
        """Steps since the launch."""
        until_s = now_s if self._stopped_s is None else min(now_s, self._stopped_s)
        return max(0, int((until_s - self._began_s) / STEP_S))

    def _saves(self, now_s: float) -> bool:
        done = self._done(now_s)
        since_s = now_s - self._began_s - done * STEP_S
        return done > 0 and done % STEPS_OF_SAVE == 0 and since_s < SAVE_S
