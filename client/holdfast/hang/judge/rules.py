"""The rules R0 to R6: each a function of one look that gives a reasoned finding, or None.

Theory of operation. R1 goes first: a rank that can't go on is odd whatever its peers do. Then R0: while any other
rank shows evidence of work its waiting peers are none. R2 (no rank moves, GPUs busy) and R3 (no rank moves, GPUs
idle or absent) ask what the blockers wait for, which decides how long that may last (``judge.waiting``); R6
(collective counts) needs no such answer. R4 is silence without any of these, acted on at the ceiling. R5 names
suspects. A job's own timeout takes the place of each rule's time.
"""

from __future__ import annotations

import math

from holdfast._base.dataclass import replace
from holdfast.hang.judge import limits
from holdfast.hang.judge.finding import Finding, Grade, Rule
from holdfast.hang.judge.snapshot import Seen, View
from holdfast.hang.judge.suspects import find_suspects, oddity
from holdfast.hang.judge.waiting import Gang, Patience, blocker_words, wait_words
from holdfast.hang.pipeline.features import GpuLook, Motion
from holdfast.hang.pipeline.samples import Family
from holdfast.hang.pipeline.waits import WaitKind

# -- R0 ----------------------------------------------------------------------------------------------------------


def vetoed(view: View) -> str:
    """R0: why nothing can be judged now, or empty. One working rank is enough."""
    if not view.working:
        return ""
    first = view.working[0]
    what = "its stack changes" if first.key in view.by_frames else first.features.work or "it works"
    more = f" and {len(view.working) - 1} more" if len(view.working) > 1 else ""
    return f"{first.name}{more} works ({what})"


def lone_work(view: View) -> Finding | None:
    """R0's own limit: some rank works while its peers wait, for longer than this job has shown to be normal."""
    since_s = view.watch.lone_since_s
    if since_s is None or not view.working or not view.started:
        return None
    tuning = view.tuning
    earned_s = tuning.lone_factor * view.watch.lone_longest_s
    alone_s = view.now_s - since_s
    if alone_s < max(tuning.lone_notice_s, earned_s, tuning.checkpoint_pause_s if view.writing else 0.0):
        return None
    waiting = len(view.live) - len(view.working)
    return Finding(
        rule=Rule.WORKING_RANK,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + max(tuning.lone_act_s, earned_s, tuning.timeout_s or 0.0),
        families=frozenset({Family.PROCESS, Family.OUTPUT}),
        sentence=f"{vetoed(view)}, while {_ranks(waiting)} wait, for {_minutes(alone_s)}",
        suspects=tuple(seen.name for seen in view.working),
        evidence=(("lone_work_s", alone_s), ("longest_survived_s", view.watch.lone_longest_s)),
        signature=Rule.WORKING_RANK.value,
    )


# -- R1 ----------------------------------------------------------------------------------------------------------


def odd(view: View, gang: Gang) -> Finding | None:
    """R1: a rank is stopped, dead, gone with success while its peers wait for it, or its GPU failed."""
    found = [(seen, why) for seen in view.ranks if (why := oddity(seen, view, gang))]
    if not found:
        return None
    # Who has ended is missed from when all the others stand still, too.
    stood_s = max(gang.since_s, view.watch.stood_since_s or gang.since_s)
    since_s = min(
        max(seen.features.still_since_s, stood_s)
        if seen.features.motion is Motion.EXITED
        else seen.features.still_since_s
        for seen, _ in found
    )
    odd_s = view.now_s - since_s
    if odd_s < limits.notice_after_s(view, view.tuning.odd_s):
        return None
    hardware = any(seen.features.hardware for seen, _ in found)
    patience_s = view.tuning.still_floor_s + view.tuning.persist_s
    if any(seen.features.motion is Motion.EXITED for seen, _ in found):
        # Its peers may still be on their way to where it was.
        patience_s = limits.short_s(view, view.tuning.still_factor) + view.tuning.persist_s
    signature = gang.signature(found[0][0])
    return Finding(
        rule=Rule.STUCK_RANK,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + limits.act_after_s(view, patience_s, signature, since_s),
        families=frozenset({Family.PROCESS} | ({Family.HARDWARE} if hardware else set())),
        sentence="; ".join(f"{seen.name} {why}" for seen, why in found),
        suspects=tuple(seen.name for seen, _ in found),
        evidence=(("odd_s", odd_s),),
        subjects=frozenset(seen.key for seen, _ in found),
        signature=signature,
        internal=True,
    )


def alone(view: View, gang: Gang) -> Finding | None:
    """R1 for a rank that hangs while its peers go on without it: nothing outside the job can end what it waits for."""
    if gang.still or view.unseen or not view.started:
        return None
    if not any(not seen.features.still for seen in view.live):
        return None
    found = [seen for seen in view.live if _hangs_alone(seen, view, gang)]
    if not found or 2 * len(found) > len(view.live):
        return None
    first = max(found, key=lambda seen: view.now_s - seen.features.still_since_s)
    since_s, wait = first.features.still_since_s, gang.wait(first)
    alone_s = _alone_s(first, view, gang)
    words = [f"{seen.name} {wait_words(gang.wait(seen), view.now_s)}" for seen in found]
    where = f" in {wait.place}" if wait.place else ""
    signature = gang.signature(first)
    return Finding(
        rule=Rule.STUCK_RANK,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + limits.act_after_s(view, alone_s + view.tuning.persist_s, signature, since_s),
        families=frozenset({Family.PROCESS, Family.STACKS}),
        sentence=f"{'; '.join(words)}{where} and has not moved for {view.now_s - since_s:.0f} s, while its peers go on",
        suspects=tuple(seen.name for seen in found),
        evidence=(("still_s", view.now_s - since_s), ("longest_survived_s", first.features.still_longest_s)),
        subjects=frozenset(seen.key for seen in found),
        signature=signature,
        internal=True,
    )


def _hangs_alone(seen: Seen, view: View, gang: Gang) -> bool:
    rank, wait = seen.features, gang.wait(seen)
    if rank.motion is not Motion.BLOCKED or not gang.stands(seen) or rank.switch_share is None:
        return False
    if wait.kind in (WaitKind.PEER, WaitKind.UNKNOWN) or gang.patience(seen) is not Patience.SHORT:
        return False
    return view.now_s - rank.still_since_s >= limits.notice_after_s(view, _alone_s(seen, view, gang))


def _alone_s(seen: Seen, view: View, gang: Gang) -> float:
    """How long a rank may stand still while its peers go on: longer in a lock, in which servers wait for requests."""
    tuning = view.tuning
    floor_s = tuning.still_floor_s if gang.wait(seen).kind is WaitKind.SLEEP else tuning.alone_s
    return max(floor_s, tuning.still_factor * seen.features.still_longest_s)


# -- R2, R3 ------------------------------------------------------------------------------------------------------


def nothing_moves(view: View, gang: Gang) -> Finding | None:
    """R2 and R3: no rank moves, by the GPUs, by what the blockers wait for, or by the output that is silent as well.

    GPUs that are there and can't be read for now may be at work: blind, which is neither healthy nor hung.
    """
    if not gang.still or view.gpus_hidden:
        return None
    spin = [gpu for gpu in view.gpus if gpu.look is GpuLook.SPIN]
    spins = bool(spin) and view.looks(GpuLook.SPIN, GpuLook.IDLE, GpuLook.LOST)
    idle = view.looks(GpuLook.IDLE, GpuLook.LOST)
    rule = Rule.GPUS_SPIN if spins else Rule.GPUS_IDLE
    short_s = limits.short_s(view, view.tuning.spin_factor if spins else view.tuning.still_factor)
    families, evidence = {Family.PROCESS}, []
    words = ""
    if spins:
        power = [gpu.power_share for gpu in spin if gpu.power_share is not None]
        evidence.append(("spinning_gpus", float(len(spin))))
        which = f"{len(spin)} of {len(view.gpus)} GPUs are" if len(view.gpus) > 1 else "its GPU is"
        words = f", and {which} busy without doing anything"
        if power:
            evidence.append(("highest_power_share", max(power)))
            words += f" (power at most {max(power):.0%} of the way from idle to this job's usual)"
    elif idle:
        words = f", and all {len(view.gpus)} GPUs are idle" if len(view.gpus) > 1 else ", and its GPU is idle"
    if spins or idle:
        families.add(Family.GPU)
    if gang.seen_waits:
        families.add(Family.STACKS)
    since_s = max(gang.since_s, view.watch.stood_since_s or gang.since_s)
    certain = gang.allowed is Patience.SHORT and gang.seen_waits and (spins or idle or gang.asleep)
    silent_s = view.watch.output.silent_s(view.now_s)
    if not certain and (gang.first.wait.at_work or not (spins or idle)):
        # Lines that tell of progress are movement, unless a GPU says otherwise or it is clear what all wait for. What
        # works for a rank on the CPU needs no GPU.
        since_s = max(since_s, view.watch.output.last_s)
    # Before start-up is over its limit is the only measure, of output that never came as well.
    quiet_after_s = view.watch.output.agree_after_s(view.tuning) if view.started else limits.startup_s(view)
    if silent_s >= quiet_after_s:
        families.add(Family.OUTPUT)
        words = words or f", and nothing new was printed for {silent_s:.0f} s"
    since_s = max(since_s, view.last_checkpoint_s or since_s)
    if gang.allowed is Patience.SHORT:
        notice_s, act_s = short_s, short_s + view.tuning.persist_s
    else:
        # Waits of that kind that the job has survived recur: an evaluation elsewhere, a store that is slow.
        notice_s = max(short_s, view.tuning.silence_factor * view.watch.external_longest_s)
        act_s = max(limits.long_s(view), notice_s + view.tuning.persist_s)
        if not gang.seen_waits and not spins and not idle:
            notice_s = max(notice_s, quiet_after_s)
            act_s = max(act_s, notice_s + view.tuning.persist_s)
        if gang.allowed is Patience.OPEN:
            notice_s, act_s = max(notice_s, view.tuning.lone_notice_s), max(act_s, view.tuning.ceiling_s)
            if gang.first.wait.at_work and not view.started:
                # Forked processes that prepare a data set take as long as any start.
                notice_s = max(notice_s, limits.startup_s(view))
                act_s = max(act_s, notice_s + view.tuning.persist_s)
        if gang.seen_waits and rule is Rule.GPUS_IDLE and not gang.first.wait.at_work:
            rule = Rule.EXTERNAL_WAIT
    still_s = view.now_s - since_s
    if len(families) < 2 or still_s < limits.notice_after_s(view, notice_s):
        return None
    blockers = gang.blockers
    apart = len(blockers) < len(view.ranks) and gang.seen_waits
    first = gang.first
    waiting = [blocker for blocker in gang.by_patience if blocker.seen.features.motion is not Motion.EXITED]
    says = f"; {blocker_words(waiting, view.now_s)}" if gang.seen_waits and waiting else ""
    survived = _longest(view.watch.still_longest_s)
    still = f"no rank of {len(view.ranks)} has" if len(view.ranks) > 1 else "its only rank has not"
    signature = gang.signature(first.seen)
    return Finding(
        rule=rule,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + limits.act_after_s(view, act_s, signature, since_s),
        families=frozenset(families),
        sentence=f"{still} moved for {still_s:.0f} s{survived}{words}{says}",
        suspects=tuple(b.seen.name for b in blockers) if apart else find_suspects(view, gang),
        evidence=(("still_s", still_s), ("threshold_s", notice_s), *evidence),
        subjects=frozenset(b.seen.key for b in blockers),
        signature=signature,
        internal=apart and gang.allowed is Patience.SHORT,
    )


# -- R4 ----------------------------------------------------------------------------------------------------------


def silent(view: View, gang: Gang) -> Finding | None:
    """R4: silence of the output without a signature of R2 or R3; noticed in time, acted on at the ceiling only.

    While ranks burn CPU or stir, stack dumps are looked at before the user is notified.
    """
    if view.unseen:
        return None
    limit_s = limits.silence_limit_s(view)
    if gang.still and gang.first.wait.at_work:
        # A loader that computes is given the time of lone work, as by R3.
        limit_s = max(limit_s, limits.notice_after_s(view, view.tuning.lone_notice_s))
    if view.now_s - view.quiet_since_s < limit_s:
        return None
    families = {Family.OUTPUT} | ({Family.PROCESS} if gang.still else set())
    grade = Grade.SUSPECT if view.moving and view.dumps_awaited else Grade.NOTICE
    return _silence(view, gang, grade, frozenset(families), "")


def quiet(view: View, gang: Gang) -> Finding | None:
    """R4 early: the output is silent for longer than usual and ranks burn CPU without evidence of work.

    Stack dumps tell a livelock from work: the user is notified only once they show stacks that stand still.
    """
    burning = any(seen.features.motion is Motion.BURNING for seen in view.moving)
    if not view.started or view.unseen or view.writing or not burning or not view.watch.output.events:
        return None
    if view.watch.output.silent_s(view.now_s) < view.watch.output.agree_after_s(view.tuning):
        return None
    if view.diagnosis is None or view.diagnosis.same is not True:
        return _silence(view, gang, Grade.SUSPECT, frozenset({Family.OUTPUT}), "")
    families = frozenset({Family.OUTPUT, Family.STACKS})
    return _silence(view, gang, Grade.NOTICE, families, ", and no stack has changed")


def _silence(view: View, gang: Gang, grade: Grade, families: frozenset[Family], also: str) -> Finding:
    quiet_s = view.watch.output.silent_s(view.now_s)
    longest_s = view.watch.output.longest_s
    burning = sum(seen.features.motion is Motion.BURNING for seen in view.live)
    burn = "burns" if burning == 1 else "burn"
    doing = f"; {_ranks(burning)} {burn} CPU without any other sign of work" if burning else ""
    stirring = any(seen.features.motion is Motion.STIRRING for seen in view.moving)
    act_after_s = view.watch.output.act_after_s(view.tuning)
    if view.reported and view.started:
        # Who reports progress has said what progress is: its end counts as much as a wait that can be seen.
        act_after_s = min(act_after_s, max(limits.long_s(view), view.watch.output.agree_after_s(view.tuning)))
    # Of a gang that stands still it is the same hang, whichever rule finds it first.
    signature = gang.signature(gang.first.seen) if gang.still else Rule.SILENCE.value
    # What a job that prints nothing did before all stood still was no hang.
    missed_s = max(view.quiet_since_s, view.watch.stood_since_s or 0.0) if gang.still else view.quiet_since_s
    act_at_s = missed_s + limits.act_after_s(view, act_after_s, signature, view.watch.output.last_s)
    if view.tuning.timeout_s is None and stirring and view.watch.lone_since_s is not None:
        # A rank that wakes as when it works, while its peers wait, may be downloading: it gets what lone work gets.
        act_at_s = max(act_at_s, view.watch.lone_since_s + view.tuning.lone_act_s)
    words = f"nothing new was printed for {_minutes(quiet_s)}{_longest(longest_s)}"
    return Finding(
        rule=Rule.SILENCE,
        grade=grade,
        since_s=view.watch.output.last_s,
        act_at_s=act_at_s,
        families=families,
        sentence=f"{words}{doing}{also}",
        suspects=find_suspects(view, gang),
        evidence=(("silent_s", quiet_s), ("longest_gap_s", longest_s), ("burning_ranks", float(burning))),
        signature=signature,
    )


# -- R6 ----------------------------------------------------------------------------------------------------------


def counts(view: View, gang: Gang) -> Finding | None:
    """R6: collective counts are frozen and differ between ranks; a family of its own that names the laggard."""
    if view.counts is None or not view.counts.mismatched:
        return None
    frozen_s = view.now_s - view.counts.frozen_since_s
    patience_s = limits.short_s(view, view.tuning.spin_factor)
    if frozen_s < limits.notice_after_s(view, patience_s):
        return None
    still = {Family.PROCESS} if gang.still else set()
    mute = {Family.OUTPUT} if view.watch.output.silent_s(view.now_s) >= patience_s else set()
    act_after_s = limits.act_after_s(
        view, patience_s + view.tuning.persist_s, Rule.COUNTS_DIFFER.value, view.counts.frozen_since_s
    )
    laggards = tuple(seen.name for seen in view.ranks if seen.key in view.counts.laggards)
    behind = f"; {' and '.join(laggards)} lag behind" if laggards else ""
    return Finding(
        rule=Rule.COUNTS_DIFFER,
        grade=Grade.NOTICE,
        since_s=view.counts.frozen_since_s,
        act_at_s=view.counts.frozen_since_s + act_after_s if still or mute else math.inf,
        families=frozenset({Family.COUNTS} | still | mute),
        sentence=f"the counts of collectives have stood still and differ for {frozen_s:.0f} s{behind}",
        suspects=laggards or find_suspects(view, gang),
        evidence=(("frozen_s", frozen_s),),
        subjects=frozenset(seen.key for seen in view.live),
        signature=Rule.COUNTS_DIFFER.value,
    )


# -- All of them -------------------------------------------------------------------------------------------------


def judge(view: View, gang: Gang) -> Finding | None:
    """The finding that counts: the one that may be acted on first; of equals R1's, then that by more families."""
    rules = (odd, alone) if vetoed(view) else (odd, alone, nothing_moves, counts, quiet, silent)
    found = [finding for rule in rules if (finding := rule(view, gang)) is not None]
    if not found:
        return lone_work(view)
    # That a rank can't go on says more than that its peers stand still for as long.
    best = min(
        found,
        key=lambda f: (f.grade is Grade.SUSPECT, f.act_at_s, f.rule is not Rule.STUCK_RANK, -len(f.families)),
    )
    if best.act_at_s == math.inf:
        return best
    named = next((f.suspects for f in found if f.suspects), ())
    return replace(best, suspects=best.suspects or named)


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _longest(before_s: float) -> str:
    """How long it took at most until now, in words; empty where it never took a second."""
    words = f"{before_s:.0f}"
    return f" (longest before: {words} s)" if words != "0" else ""


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
