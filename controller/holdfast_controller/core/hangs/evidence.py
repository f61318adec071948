"""Evidence of a hang: ask every live worker's host for it, combine the answers, store them with the hang.

An answer counts only for the order that it was given to: one that comes late, of an earlier suspicion of the same
generation, says nothing of this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.hang.evidence.evidence import Evidence, diagnosis, recorder_blame
from holdfast.hang.judge.snapshot import Counts
from holdfast.hang.pipeline.nccl_ras import Mismatch, mismatch
from holdfast_controller.core.model.hang import Dump, Standstill
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import RankName
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.step.actions import KeepEvidence, TakeEvidence
from holdfast_controller.core.step.commands import EvidenceArrived
from holdfast_controller.core.step.step import Step


def take_evidence(step: Step, job: Job, runtime: Runtime, suspects: tuple[RankName, ...]) -> None:
    """Order dumps of every worker that has a live rank; the suspect ranks are looked at more closely."""
    ended = job.exits_now()
    live = [m.index for m in job.gang.members if not all(rank in ended for rank in m.ranks)]
    runtime.dumps += 1
    runtime.dump = Dump(runtime.dumps, set(live), suspects)
    for index in live:
        _order(step, job, runtime.dump, index)


def take_again(step: Step, job: Job, runtime: Runtime, index: int) -> None:
    """Ask a worker once more that is heard of again after its answer was lost, as by a restart of its agent."""
    dump = runtime.dump
    if dump is None or index not in dump.lost:
        return
    dump.lost.discard(index)
    dump.awaited.add(index)
    dump.again.add(index)
    _order(step, job, dump, index)


def _order(step: Step, job: Job, dump: Dump, index: int) -> None:
    member = job.gang.members[index]
    wanted = tuple(suspect.rank for suspect in dump.suspects if suspect.worker == member.name)
    step.do(
        TakeEvidence(job.places[index].host, job.id, job.generation_of(index), member.name, dump.number, wanted)
    )


def take_in(step: Step, job: Job, index: int, arrived: EvidenceArrived) -> Dump | None:
    """Add a worker's evidence to that of the others; returns the dump, or None if it was no longer wanted.

    Where every answer is lost, each worker is asked once more and waited for until then: without any
    evidence there is no diagnosis. One answer is, though: a host that is away for good is not waited for.
    """
    dump = step.cluster.runtime_of(job.id).dump
    if dump is None or dump.number != arrived.dump or index not in dump.awaited:
        return None
    dump.awaited.discard(index)
    if arrived.evidence is not None:
        dump.parts.append(arrived.evidence)
        _note_counts(step, job, arrived.evidence)
    elif index not in dump.again:
        dump.lost.add(index)
    if arrived.content:
        dump.contents[arrived.worker] = arrived.content
        dump.attachments[arrived.worker] = arrived.samples, arrived.dumps
    if not dump.awaited and (dump.parts or not dump.lost):
        dump.lost.clear()
        dump.diagnosis = diagnosis(dump.parts, step.now.mono)
        _note_blame(step, job, dump.parts)
        dump.parts = []
    return dump


def _note_counts(step: Step, job: Job, evidence: Evidence) -> None:
    """Take NCCL's counts in, where two answers agree that they differ: since the first answer they stand still.

    A job whose counts moved meanwhile has none; a worker that NCCL doesn't answer says nothing of them.
    """
    if not evidence.ras or not evidence.ras_after:
        return
    runtime, world = step.cluster.runtime_of(job.id), job.gang.world_size
    found = mismatch(evidence.ras_after, world)
    if found is None or found != mismatch(evidence.ras, world):
        runtime.counts = None
    elif runtime.counts is None or runtime.counts.found != found:
        runtime.counts = Standstill(found, step.now.mono - evidence.interval_s)


def _note_blame(step: Step, job: Job, parts: Sequence[Evidence]) -> None:
    """Take the flight recorders in: ranks that keep others waiting are laggards, as long as the others have waited."""
    if (blame := recorder_blame(parts)) is not None:
        waits = Mismatch((), blame.ranks)
        step.cluster.runtime_of(job.id).counts = Standstill(waits, step.now.mono - blame.waited_s)


def counts_of(runtime: Runtime) -> Counts | None:
    """The counts as the detector takes them: laggards by worker and rank."""
    if runtime.counts is None:
        return None
    behind = runtime.counts.found.laggards
    # Ranks below a launcher are known from the vectors alone.
    names = frozenset(
        (vector.worker, rank.rank)
        for vector in runtime.features.values()
        for rank in vector.ranks
        if rank.rank in behind
    )
    return Counts(runtime.counts.since_s, mismatched=True, laggards=names)


def keep(step: Step, job: Job, dump: Dump) -> None:
    """Hand what has come over to the store, as the newest hang's, once."""
    for worker, content in dump.contents.items():
        step.do(
            KeepEvidence(job.id, job.hangs[-1].number, worker, content, *dump.attachments.get(worker, (b"", b"")))
        )
    dump.contents, dump.attachments = {}, {}
