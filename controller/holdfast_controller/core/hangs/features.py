"""Workers' vectors as they are judged: complete, on our clock, with the ends of ranks that we know of.

An agent tells nothing more of a worker that has ended, and after a restart of ours it never will; but a rank that
is gone with success while its peers wait is what the judge has to see. So ends come from our own records. A rank
that an agent leaves out is unseen, which is neither healthy nor hung.
"""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast._session.reports import Exit
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.runtime import Runtime


def of_member(vector: WorkerFeatures, member: Member) -> WorkerFeatures:
    """The vector with exactly the ranks of its worker, in order.

    A worker of one process may be a launcher such as torchrun: its ranks are those that the agent finds below it.
    """
    if [rank.rank for rank in vector.ranks] == list(member.ranks):
        return vector
    told = {rank.rank: rank for rank in vector.ranks}
    if told and len(member.ranks) == 1:
        return replace(vector, ranks=tuple(rank for _, rank in sorted(told.items())))
    ranks = (told.get(n) or RankFeatures(n, Motion.UNSEEN, vector.at_s) for n in member.ranks)
    return replace(vector, ranks=tuple(ranks))


def vectors_of(job: Job, runtime: Runtime, now: Now) -> tuple[list[WorkerFeatures], list[str]]:
    """The newest vector of every worker in gang order, and the names of workers of which there is none."""
    ended = job.exits_now()
    if not ended and len(runtime.features) == len(job.gang.members):
        return [runtime.features[member.index] for member in job.gang.members], []
    found: list[WorkerFeatures] = []
    missing: list[str] = []
    for member in job.gang.members:
        vector = _with_ends(job, member, runtime.features.get(member.index), ended, now)
        if vector is None:
            missing.append(member.name)
        else:
            found.append(vector)
    return found, missing


def _with_ends(
    job: Job, member: Member, vector: WorkerFeatures | None, ended: dict[int, Exit], now: Now
) -> WorkerFeatures | None:
    gone = {rank: _gone(job, ended[rank], now) for rank in member.ranks if rank in ended}
    if len(gone) == len(member.ranks):
        output = vector.output if vector is not None else OutputFeatures()
        host = job.places[member.index].host
        return WorkerFeatures(member.name, host, now.mono, tuple(gone.values()), output)
    if vector is None or not gone:
        return vector
    return replace(vector, ranks=tuple(gone.get(rank.rank, rank) for rank in vector.ranks))


def _gone(job: Job, exit_: Exit, now: Now) -> RankFeatures:
    ago_s = max(now.wall - (exit_.end_time or job.updated_at), 0.0)
    return RankFeatures(exit_.rank, Motion.EXITED, now.mono - ago_s, exit_code=exit_.shell_code)
