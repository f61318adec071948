"""A job in words: is it healthy, what happened, what was done about it, and what should its user do.

Every view has these sentences from here: lists, a job's page, notifications and the API. None ends in a full stop, so
that a command at the end can be copied.
"""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.choices import HangAction, UnderuseAction, UnderuseShare
from holdfast._session.reports import ExitReason
from holdfast.hang.judge.state import waits_for_person
from holdfast.hang.pipeline.features import Motion
from holdfast_controller.core.goodput.pace import pace_in_words
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.clock import Now, moment
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import Hang, HangOutcome
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.model.slowness import Slowdown
from holdfast_controller.core.model.underuse import Underuse, UnderusePolicy
from holdfast_controller.core.scheduling.fair_share.guarantees import borrows
from holdfast_controller.core.scheduling.wait_reasons.holders import fewer_gpus, held_by, own_to_end
from holdfast_controller.core.scheduling.wait_reasons.host_waits import Pending, silent_hosts
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, pending
from holdfast_controller.core.slowness.pace import recent_ms
from holdfast_controller.core.slowness.thresholds import TUNING
from holdfast_controller.core.views.interruptions import what_happened, what_was_done
from holdfast_controller.core.views.training import Training, training_of

AGAIN = 2
"""So many equal failures, or hangs, in a row are worth a user's look."""


class Condition(enum.Enum):
    """The state of a job for a reader in a hurry. NEEDS_YOU: it does not go on well without a person."""

    WORKS = "WORKS"
    WAITS = "WAITS"
    RECOVERS = "RECOVERS"
    NEEDS_YOU = "NEEDS_YOU"
    ENDED = "ENDED"


@dataclass(frozen=True)
class Summary:
    """Answers to four questions about a job. ``advice`` ends in ``command``, if there is a line to type."""

    condition: Condition
    health: str
    advice: str = "Nothing"
    command: str = ""
    happened: str = ""
    done: str = ""
    waits: str = ""
    """Why it isn't running at present, as ``wait_reason`` has it."""
    interruptions: int = 0

    @property
    def headline(self) -> str:
        """One line for lists: its health, and with it what matters most beside."""
        if self.condition is Condition.NEEDS_YOU and self.command not in self.health:
            return f"{self.health}; {self.advice[0].lower()}{self.advice[1:]}"
        if self.condition is Condition.WORKS and self.interruptions:
            return f"{self.health}; {self.interruptions} interruption{'s' if self.interruptions > 1 else ''}"
        return self.health


def summary_of(cluster: Cluster, job: Job, queue_view: QueueView, now: Now) -> Summary:
    """The job in words as of now."""
    waits = pending(cluster, job, queue_view)
    found = _condition(cluster, job, waits, queue_view, now)
    if found.command:
        found = replace(found, advice=f"{found.advice}: {found.command}")
    happened, done = what_happened(job, now), what_was_done(job, now)
    silent = silent_hosts(cluster, job) if waits is not None and job.launch.primary_done_at is None else []
    if silent and job.state is JobState.RUNNING and job.started and job.vacating is None:
        seen = cluster.presence_of(silent[0]).last_seen_wall
        hosts = silent[0] if len(silent) == 1 else f"{silent[0]} and {len(silent) - 1} more of its hosts"
        happened = f"It ran until {hosts} fell silent" + (f" at {moment(seen, now)}" if seen else "")
        done = "Nothing yet: its ranks may still run there, and none is started beside them"
    said = str(waits or "")
    return replace(found, happened=happened, done=done, waits=said, interruptions=len(job.recoveries))


def _condition(cluster: Cluster, job: Job, waits: Pending | None, queue_view: QueueView, now: Now) -> Summary:
    if job.terminal:
        return _ended(job)
    found = _waiting(job, waits, queue_view, now) if waits is not None else _running(cluster, job, now)
    if found.condition in (Condition.WORKS, Condition.RECOVERS) and (again := _repeats(job)) is not None:
        return replace(again, health=f"{found.health}; {again.health}")
    return found


_DEBUGGER_QUIT = ("bdb.BdbQuit", "BdbQuit")


def _ended(job: Job) -> Summary:
    error = job.error
    why = "" if error is None else error.message.rstrip(".").replace("The job", "the job", 1)
    if error is not None and error.raised:
        who = "" if error.rank is None else f"rank {error.rank}: "
        why = f"{who}{error.raised}"
    match job.state:
        case JobState.SUCCEEDED:
            return Summary(Condition.ENDED, f"Succeeded{_after(job)}")
        case JobState.CANCELLED:
            return Summary(
                Condition.ENDED,
                f"Cancelled{_after(job)}" + (f": {why}" if why else ""),
                "Nothing; submit it again with",
                f"holdfast job rerun {job.id}",
            )
        case JobState.EXPIRED:
            advice = "Submit it again and let it wait for as long as it takes"
            return Summary(Condition.ENDED, f"Expired: {why}", advice, f"holdfast job rerun {job.id} --max-wait 0")
        case _:
            rank = f" --rank {error.rank}" if error is not None and error.rank is not None else ""
            advice, command = "See what it wrote last", f"holdfast logs {job.id}{rank} --tail 100"
            end = None if error is None or error.rank is None else job.exits_now().get(error.rank)
            if error is None or error.rank is None or (end and end.reason is ExitReason.NOT_STARTED):
                advice, command = "See what led to it", f"holdfast job events {job.id}"
            elif end and end.reason is ExitReason.CANNOT_START:  # it has written nothing
                advice, command = "Fix that in the job file or on its hosts, and submit it again", ""
            elif error.raised.startswith(_DEBUGGER_QUIT) and not any(pool.task.terminal for pool in job.gang.pools):
                advice = (
                    "breakpoint() takes a terminal, which each rank has by holdfast run --pty; see what it wrote by"
                )
            elif error.raised.startswith("ModuleNotFoundError"):
                advice = (
                    "What the hosts' Python has, or the job's requirements name, can be imported, and nothing of your "
                    "own environment unless COMMAND is its python; see what it wrote by"
                )
            return Summary(Condition.ENDED, f"Failed{_after(job)}: {why}".rstrip(": "), advice, command)


def _after(job: Job) -> str:
    """How long it took from the first launch to the end."""
    if job.started_at is None or job.ended_at is None:
        return " before it ran"
    return f" after {span(job.ended_at - job.started_at)}"


def _waiting(job: Job, waits: Pending, queue_view: QueueView, now: Now) -> Summary:
    health = _capital(str(waits))
    if job.state is JobState.PAUSED:
        if job.missed:
            return Summary(Condition.NEEDS_YOU, f"Paused: {job.missed}", "Go on all the same by", waits.command)
        return Summary(Condition.WAITS, "Paused; it holds no hosts", "Go on with it by", waits.command)
    if not waits.by_itself:
        advice = "Once that host is switched off for certain, and not before"
        return Summary(Condition.NEEDS_YOU, health, advice, waits.command)
    last = job.recoveries[-1] if job.recoveries else None
    recovers = last is not None and last.ended_at is None and last.end_reason is not EndReason.PREEMPTED
    condition = (
        Condition.RECOVERS if recovers or (job.state is JobState.RUNNING and job.started) else Condition.WAITS
    )
    if job.vacating is Leaving.PAUSE:
        condition = Condition.WAITS
    if job.outcome is not None:
        health, condition = f"Ends as {job.outcome.name}: {waits}", Condition.WAITS
        return Summary(condition, health, "Nothing: it ends by itself")
    if waits.command:
        return Summary(condition, health, "Nothing: it goes on by itself; now by", waits.command)
    if job.state is JobState.QUEUED and not job.awaited:
        if queue_view.is_given_up_first(job):
            advice = "It is given up before it is expected to start; to wait for as long as it takes, submit it by"
            return Summary(condition, health, advice, f"holdfast job rerun {job.id} --max-wait 0")
        return _queued(job, health, condition, queue_view, now)
    return Summary(condition, health, "Nothing: it goes on by itself")


def _queued(job: Job, health: str, condition: Condition, queue_view: QueueView, now: Now) -> Summary:
    """A job that waits in the queue: who holds what it needs, and what its owner can do about it."""
    advice, command = f"Nothing: it starts by itself{_given_up(job, now)}", f"holdfast cancel {job.id}"
    if queue_view.quota_lack(job) or job.id not in queue_view.cluster.queue:
        return Summary(condition, health, f"{advice}; end it now by", command)
    health = f"{health}{held_by(job, queue_view)}"
    if fewer := fewer_gpus(job, queue_view):
        advice = f"{advice}; with --gpus {fewer} it would fit now"
    if own := own_to_end(job, queue_view):
        advice = f"{advice}; make room for it now by ending {own}, which is {job.owner}'s too"
        return Summary(condition, health, advice, f"holdfast cancel {own}")
    return Summary(condition, health, f"{advice}; end it now by", command)


def _capital(text: str) -> str:
    """The text with a capital letter, unless it begins with a name."""
    return text[0].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def _given_up(job: Job, now: Now) -> str:
    return f", or is given up at {moment(job.given_up_at, now)} (--max-wait)" if job.given_up_at is not None else ""


def _running(cluster: Cluster, job: Job, now: Now) -> Summary:
    runtime = cluster.runtime_of(job.id)
    hang = job.hangs[-1] if job.hangs else None
    if hang is not None and hang.open and hang.generation == job.generation:
        return _hanging(job, hang, now)
    if job.launch.world_apart:
        health = "Its workers train apart: one of them starts its processes for its own host alone"
        advice = "Cancel it, and let its launcher span the job (torchrun without --standalone)"
        return Summary(Condition.NEEDS_YOU, health, advice, f"holdfast cancel {job.id}")
    health = _training(training_of(cluster, job), runtime.health, _pace(job, runtime))
    if job.pause_due is not None:
        health = f"{health}; it pauses at {moment(job.pause_due, now)} at the latest"
        return Summary(Condition.WAITS, health, "Nothing: its ranks were warned and have until then to save")
    if job.launch.primary_done_at is not None:
        return Summary(Condition.WORKS, "Its primary worker has completed; the others have their time to finish")
    if job.held_until is not None and job.held_until > now.wall:
        until = moment(job.held_until, now)
        advice = f"Nothing; action on hangs is off until {until}, turn it on by"
        return Summary(Condition.WORKS, health, advice, f"holdfast job hang-action {job.id} on")
    health = f"{health}{_loan(cluster, job)}{_drain(cluster, job, now)}"
    if (rank := _attachable(job, runtime)) is not None:
        waits = "" if "waits for a person" in health else f"; rank {rank} waits for a person"
        advice, command = "Answer it at its terminal, which yours joins by", f"holdfast job attach {job.id}"
        return Summary(Condition.WORKS, f"{health}{waits}", advice, f"{command} --rank {rank}")
    if job.slowdown is not None:
        if stopped := _stopped(runtime):
            return Summary(Condition.WORKS, f"{health}; {stopped}")
        now_ms = recent_ms(runtime.slow, TUNING)
        found = job.slowdown if now_ms is None else replace(job.slowdown, recent_ms=now_ms)
        return _slow(job, found, health, now)
    if job.underuse is not None and job.gang.underuse is not None:
        return _underused(job, job.underuse, job.gang.underuse, health, now)
    return Summary(Condition.WORKS, health)


def _attachable(job: Job, runtime: Runtime) -> int | None:
    """The first rank that waits at its terminal for a person; None where there is none."""
    for index in sorted(runtime.features):
        if index < len(job.gang.members) and job.gang.pool_of(job.gang.members[index]).task.terminal:
            for rank in runtime.features[index].ranks:
                if waits_for_person(rank):
                    return rank.rank
    return None


def _stopped(runtime: Runtime) -> str:
    """Ranks that a signal has stopped, in words: no job is slow that stands still. Empty where there are none."""
    ranks = [
        rank.rank
        for vector in runtime.features.values()
        for rank in vector.ranks
        if rank.motion is Motion.STOPPED and not rank.paused_by_us
    ]
    if not ranks:
        return ""
    more = f" and {len(ranks) - 1} more are" if len(ranks) > 1 else " is"
    return f"rank {min(ranks)}{more} stopped by a signal"


def _pace(job: Job, runtime: Runtime) -> str:
    """The time of a step; by how much it is slower is said once."""
    words = pace_in_words(runtime.progress)
    return words.partition(",")[0] if job.slowdown is not None else words


def _slow(job: Job, found: Slowdown, health: str, now: Now) -> Summary:
    """A job that is slower than it was: it goes on, and who it comes from is said where that is known."""
    health = f"{health}; {found.slower_pct} % slower than at its best since {moment(found.since, now)}: {found.who}"
    if found.named:
        rank = found.named[0].rank
        advice = f"Nothing has to be done; an admin can drain {found.host}; to see what rank {rank} does"
        return Summary(Condition.WORKS, health, advice, f"holdfast job series {job.id} --rank {rank}")
    return Summary(Condition.WORKS, health)


def _underused(job: Job, found: Underuse, policy: UnderusePolicy, health: str, now: Now) -> Summary:
    """A job that doesn't use its GPUs: it goes on, and others could have them."""
    health = f"{health}; it {underuse_in_words(found, policy, now)}"
    follows = what_follows(found, policy)
    advice = f"Use them, or {follows}; to see" if follows else "Nothing has to be done; to see"
    return Summary(
        Condition.WORKS, health, f"{advice} what its GPUs do", f"holdfast job series {job.id} --figure gpu_util"
    )


def underuse_in_words(found: Underuse, policy: UnderusePolicy, now: Now) -> str:
    """Such as "uses 3 of 8 GPUs: 5 below 5 % since 13:05:07 UTC"."""
    return f"{found.in_words}: {found.idle} below {policy.below_pct} % since {moment(found.since, now)}"


def what_follows(found: Underuse, policy: UnderusePolicy) -> str:
    """The policy's next answer to unused GPUs; empty where it has no other."""
    done = {UnderuseAction.PAUSE: "paused", UnderuseAction.STOP: "stopped"}.get(policy.action)
    if done is None or found.acted or policy.of is UnderuseShare.ANY:
        return ""
    return f"it is {done} once none of its GPUs was used for {span(policy.duration_s)}"


def _loan(cluster: Cluster, job: Job) -> str:
    """To whom a job gives way that borrows, or started out of turn and the one that it overtook waits; else empty."""
    if job.loan is None or job.loan.of not in cluster.queue:
        return "; it gives way to jobs within the guarantee of their project" if borrows(cluster, job) else ""
    return f"; its hosts are on loan: it gives way when {job.loan.of}, which waits ahead of it, can start there"


def _drain(cluster: Cluster, job: Job, now: Now) -> str:
    """The host of the job that is being drained, and when the job leaves it; empty where there is none."""
    hosts = (cluster.hosts[name] for name in dict.fromkeys(job.places[index].host for index in job.awaited))
    host = next((host for host in hosts if host.draining), None)
    if host is None:
        return ""
    by = f" by {host.cordoned_by}" if host.cordoned_by else ""
    drained = f"{host.name} is being drained{by}{f' ({host.cordon_reason})' if host.cordon_reason else ''}"
    if host.drain_deadline is None:
        return f"; {drained} and waits for the job to end"
    when = f"at {moment(host.drain_deadline, now)}"
    early = f"at its next checkpoint, {when} at the latest" if host.drain_at_checkpoint else when
    return f"; {drained}, and its workers move to other hosts {early}"


def _training(known: Training, detector: str, pace: str) -> str:
    if known.step is None:
        return f"Runs: {detector}" if detector else "Runs; nothing is known of its progress yet"
    verb = {"evaluate": "Evaluates", "save": "Saves a checkpoint"}.get(known.phase, "Trains")
    total = f" of {known.total:,.0f}" if known.total is not None else ""
    step = "step " if known.is_step else ""
    return ", ".join(filter(None, (f"{verb}: {step}{known.step:,.0f}{total}", pace)))


def _hanging(job: Job, hang: Hang, now: Now) -> Summary:
    since, restart = f"since {moment(hang.since, now)}", f"holdfast job restart {job.id}"
    if hang.outcome is HangOutcome.SUPPRESSED:
        if job.held_until is not None and job.held_until > now.wall:
            health = f"Hangs {since}, and action on hangs is off until {moment(job.held_until, now)}"
            on = f"holdfast job hang-action {job.id} on"
            return Summary(Condition.NEEDS_YOU, health, "Turn it on again by", on)
        note = f": {hang.note}" if hang.note else ""
        return Summary(
            Condition.NEEDS_YOU, f"Hangs {since}, and is not relaunched{note}", "Relaunch it by", restart
        )
    if job.gang.hang.action is not HangAction.RESTART:
        advice = f"See where it stands (holdfast job stacks {job.id}), and relaunch it by"
        left = "and is left so, as this job's hangs are only reported"
        return Summary(Condition.NEEDS_YOU, f"Hangs {since}, {left}", advice, restart)
    advice = "Nothing: it is relaunched by itself unless it moves; now by"
    return Summary(Condition.RECOVERS, f"Probably hangs {since}", advice, restart)


def _repeats(job: Job) -> Summary | None:
    """A job that goes wrong in the same way again and again; its user should look. None where it doesn't."""
    hangs, (_, failures) = job.budgets.hang_restarts, job.budgets.spent.same_failure
    if hangs >= AGAIN:
        health = f"it was relaunched {hangs} times in a row because it hung, {job.gang.max_hang_restarts} at most"
        return Summary(Condition.NEEDS_YOU, health, "See where it hung", f"holdfast job hangs {job.id}")
    if failures >= AGAIN:
        limit = job.gang.retries.no_progress_limit
        final = f"; without progress it fails for good at {limit}" if limit > failures else ""
        health = f"it failed {failures} times in a row in the same way{final}"
        command = f"holdfast logs {job.id} --generation {_failed_generation(job)} --tail 100"
        return Summary(Condition.NEEDS_YOU, health, "See what it wrote last", command)
    return None


def _failed_generation(job: Job) -> int:
    known = (recovery.failed_generation for recovery in reversed(job.recoveries))
    return next((number for number in known if number is not None), max(job.generation - 1, 1))
