"""Terminal records that no host will report: each launched rank gets exactly one, even where its exit is unknown.

An agent sends every end that it knows of before it says that a place is empty or ready for the next generation,
and says neither in its hello. So whatever is unaccounted for at that point will stay so.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._base.dataclass import replace
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.step import Step

LOST = "how it ended was lost with the controller's disk"


def unaccounted(job: Job, member: Member) -> list[tuple[int, int]]:
    """(generation, rank) of every rank that was ordered to start and has no record.

    An attempt may be given up before its launch, and a worker be relaunched by itself: a generation that a worker
    was not launched in owes nothing of it.
    """
    return [
        (generation, rank)
        for generation in range(1, job.generation + 1)
        if len(ended := job.exits.get(generation, {})) < job.gang.rank_count
        and job.was_launched(generation, member.index)
        for rank in member.ranks
        if rank not in ended
    ]


def last_heard(cluster: Cluster, host: str, now: Wall) -> Wall:
    """When ranks of a host whose end was not observed last ran for certain: as it was heard before it was silent.

    That is before its present session, if it has one. Where the controller itself was away, too, when that last ran.
    """
    presence = cluster.presence_of(host)
    heard = presence.last_seen_wall if presence.session is None else presence.heard_before
    return min(heard or cluster.stopped_at or now, now)


def as_known_here(step: Step, host: str, exits: Iterable[Exit], job: Job | None = None) -> list[Exit]:
    """Exits that an agent reports, by our clock: after their launch and not in the future, whatever its host's shows.

    Of one lost to a reboot the agent knows only when it found that out.
    """
    now, wrong_s = step.now.wall, step.cluster.presence_of(host).wrong_s
    begun: dict[int, Wall] = {}
    found = []
    for exit_ in exits:
        at, generation = exit_.end_time, exit_.generation
        if at:
            if generation not in begun:
                begun[generation] = _begun(job, generation) if job is not None else NEVER
            at = min(max(at + wrong_s, begun[generation]), now)
        if exit_.reason is ExitReason.LOST_REBOOT:
            heard = last_heard(step.cluster, host, now)
            at = min(at or heard, heard)
        found.append(exit_ if at == exit_.end_time else replace(exit_, end_time=at))
    return found


def _begun(job: Job, generation: int) -> Wall:
    """A time before a generation was launched: when it was decided or placed."""
    placed = job.attempts and generation >= job.attempts[-1].generation
    decided = (each.started_at for each in reversed(job.recoveries) if each.generation <= generation)
    return max(job.created_at, job.placement.since if placed else NEVER, next(decided, NEVER))


def unknown_ends(job: Job, member: Member, reason: ExitReason, message: str, at: Wall) -> list[Exit]:
    """A record without a code for each rank that is unaccounted for, oldest generation first."""
    return [
        Exit(job.attempt, generation, rank, reason, message=message, end_time=at)
        for generation, rank in unaccounted(job, member)
    ]


def close_records(step: Step, job: Job, member: Member, reason: ExitReason, message: str) -> None:
    """Write them, where nothing is to be decided from them: of older generations, or of one that is ending."""
    owed = [
        replace(exit_, reason=ExitReason.LOST_RECORD, message=LOST)
        if exit_.generation < job.unsure_below
        else exit_
        for exit_ in unknown_ends(job, member, reason, message, step.now.wall)
        if exit_.generation < job.generation_of(member.index) or job.stopping
    ]
    step.emit_exits(job, member.name, owed)
