"""The rules R0 to R6: each a function of one view that gives a reasoned finding, or None.

Theory of operation. R0 goes first: while any rank shows evidence of work its waiting peers are none. Then R1
reports what is odd at once; R2 (no rank moves, GPUs busy), R3 (no rank moves, GPUs idle or absent) and R6
(collective counts) need two families of signals that agree; R4 is silence without either. R5 names suspects.
A finding says when it may be acted on; for a finding of one family that is the ceiling.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from holdfast.hang.judge.snapshot import View
from holdfast.hang.judge.suspects import find_suspects, oddity
from holdfast.hang.pipeline.features import GpuLook, Motion
from holdfast.hang.pipeline.samples import Family


class Rule(enum.Enum):
    """The rules by name, as they are stored, sent and printed. Their numbers are the documents' only."""

    WORKING_RANK = "WORKING_RANK"
    STUCK_RANK = "STUCK_RANK"
    GPUS_SPIN = "GPUS_SPIN"
    GPUS_IDLE = "GPUS_IDLE"
    SILENCE = "SILENCE"
    COUNTS_DIFFER = "COUNTS_DIFFER"

    @classmethod
    def _missing_(cls, value: object) -> Rule | None:
        """The rule of a number such as ``R3``, which release 0.1 stored."""
        return next((rule for rule, number in NUMBERS.items() if number == value), None)


NUMBERS = {
    Rule.WORKING_RANK: "R0",
    Rule.STUCK_RANK: "R1",
    Rule.GPUS_SPIN: "R2",
    Rule.GPUS_IDLE: "R3",
    Rule.SILENCE: "R4",
    Rule.COUNTS_DIFFER: "R6",
}
"""The numbers that documents use, and that release 0.1 stored and sent."""
MEANINGS = {
    Rule.WORKING_RANK: "one rank works while the others wait for it",
    Rule.STUCK_RANK: "a rank that cannot go on",
    Rule.GPUS_SPIN: "no rank moves, GPUs busy without doing anything",
    Rule.GPUS_IDLE: "no rank moves, GPUs idle or absent",
    Rule.SILENCE: "no output for longer than usual",
    Rule.COUNTS_DIFFER: "counts of collectives that stand still and differ",
}
"""Each rule in a few words, for people."""


class Grade(enum.Enum):
    """How far a finding is reported."""

    # Worth stack dumps, and no notice.
    SUSPECT = "suspect"
    # Worth notifying the user.
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a rule: since when, by which families, when it may be acted on, its suspects, in words and numbers."""

    rule: Rule
    grade: Grade
    since_s: float
    act_at_s: float
    families: frozenset[Family]
    sentence: str
    suspects: tuple[str, ...] = ()
    evidence: tuple[tuple[str, float], ...] = ()


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
    since_s = view.lone_since_s
    if since_s is None or not view.working or not view.started:
        return None
    tuning = view.tuning
    earned_s = tuning.lone_factor * view.lone_longest_s
    alone_s = view.now_s - since_s
    if alone_s < max(tuning.lone_notice_s, earned_s, tuning.checkpoint_pause_s if view.writing else 0.0):
        return None
    waiting = len(view.live) - len(view.working)
    return Finding(
        rule=Rule.WORKING_RANK,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + max(tuning.lone_act_s, earned_s),
        families=frozenset({Family.PROCESS, Family.OUTPUT}),
        sentence=f"{vetoed(view)}, while {_ranks(waiting)} wait, for {_minutes(alone_s)}",
        suspects=tuple(seen.name for seen in view.working),
        evidence=(("lone_work_s", alone_s), ("longest_survived_s", view.lone_longest_s)),
    )


# -- R1 ----------------------------------------------------------------------------------------------------------


def odd(view: View) -> Finding | None:
    """R1: a rank is stopped, dead, gone with success while its peers wait, or its GPU failed. Suspected, not
    killed.
    """
    found = [(seen, why) for seen in view.ranks if (why := oddity(seen, view))]
    if not found:
        return None
    since_s = min(seen.features.still_since_s for seen, _ in found)
    if view.now_s - since_s < view.tuning.odd_s:
        return None
    hardware = any(seen.features.hardware for seen, _ in found)
    return Finding(
        rule=Rule.STUCK_RANK,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + _patience_s(view, view.tuning.still_factor) if hardware and view.all_still else math.inf,
        families=frozenset({Family.PROCESS} | ({Family.HARDWARE} if hardware else set())),
        sentence="; ".join(f"{seen.name} {why}" for seen, why in found),
        suspects=tuple(seen.name for seen, _ in found),
        evidence=(("odd_s", view.now_s - since_s),),
    )


# -- R2, R3 ------------------------------------------------------------------------------------------------------


def spinning(view: View) -> Finding | None:
    """R2: no one moves while GPUs run kernels that do nothing; ranks may be blocked or spin, in any mixture."""
    looks = {gpu.look for gpu in view.gpus}
    if not view.all_still or GpuLook.SPIN not in looks:
        return None
    if not view.looks(GpuLook.SPIN, GpuLook.IDLE, GpuLook.LOST):
        return None
    spin = [gpu for gpu in view.gpus if gpu.look is GpuLook.SPIN]
    power = [gpu.power_share for gpu in spin if gpu.power_share is not None]
    evidence = [("spinning_gpus", float(len(spin)))]
    words = f"{len(spin)} of {len(view.gpus)} GPUs are busy without doing anything"
    if power:
        evidence.append(("highest_power_share", max(power)))
        words += f" (power at most {max(power):.0%} of the way from idle to this job's usual)"
    return _no_rank_moves(view, Rule.GPUS_SPIN, view.tuning.spin_factor, words, evidence)


def idle(view: View) -> Finding | None:
    """R3: no one moves, and the GPUs are idle; without any figure of a GPU, the output must be silent instead.

    GPUs that are there and can't be read for now may be at work: blind, which is neither healthy nor hung.
    """
    if not view.all_still or view.gpus_hidden:
        return None
    factor = view.tuning.still_factor
    if view.looks(GpuLook.IDLE, GpuLook.LOST):
        return _no_rank_moves(view, Rule.GPUS_IDLE, factor, f"all {len(view.gpus)} GPUs are idle", [])
    silent_s = view.output.silent_s(view.now_s)
    # Before start-up is over its limit is the only measure, of output that never came as well.
    limit_s = view.output.agree_after_s(view.tuning) if view.started else view.startup_limit_s
    if silent_s < limit_s or (view.started and not view.output.events):
        return None
    evidence = [("silent_s", silent_s), ("longest_gap_s", view.output.longest_s)]
    words = f"nothing new was printed for {silent_s:.0f} s (longest before: {view.output.longest_s:.0f} s)"
    found = _no_rank_moves(view, Rule.GPUS_IDLE, factor, words, evidence)
    return None if found is None else replace(found, families=frozenset({Family.PROCESS, Family.OUTPUT}))


def _no_rank_moves(
    view: View, rule: Rule, factor: float, words: str, evidence: list[tuple[str, float]]
) -> Finding | None:
    since_s = view.still_since_s
    still_s = view.now_s - since_s
    patience_s = _patience_s(view, factor)
    if still_s < patience_s:
        return None
    survived = f"longest before: {view.still_longest_s:.0f} s"
    return Finding(
        rule=rule,
        grade=Grade.NOTICE,
        since_s=since_s,
        act_at_s=since_s + patience_s + view.tuning.persist_s,
        families=frozenset({Family.PROCESS, Family.GPU}),
        sentence=f"no rank of {len(view.ranks)} has moved for {still_s:.0f} s ({survived}), and {words}",
        suspects=find_suspects(view),
        evidence=(("still_s", still_s), ("threshold_s", patience_s), *evidence),
    )


def _patience_s(view: View, factor: float) -> float:
    """How long everything may stand still: the floor, or what the job has survived, or what its phase allows."""
    tuning = view.tuning
    patience_s = max(tuning.still_floor_s, factor * view.still_longest_s)
    if not view.started:
        patience_s = max(patience_s, view.startup_limit_s)
    if view.helped:
        # At the start as well: forked children that tokenise look like helpers.
        patience_s *= 2
    return max(patience_s, tuning.checkpoint_pause_s) if view.writing else patience_s


# -- R4 ----------------------------------------------------------------------------------------------------------


def silent(view: View) -> Finding | None:
    """R4: silence of the output without a signature of R2 or R3; noticed in time, acted on at the ceiling only.

    While ranks burn CPU or stir, stack dumps are looked at before the user is notified.
    """
    if view.unseen:
        return None
    quiet_s = view.output.silent_s(view.now_s)
    limit_s = view.output.notice_after_s(view.tuning)
    if not view.started:
        limit_s = max(limit_s, view.startup_limit_s)
    if view.writing:
        limit_s = max(limit_s, view.tuning.checkpoint_pause_s)
    if quiet_s < limit_s:
        return None
    families = {Family.OUTPUT} | ({Family.PROCESS} if view.all_still else set())
    grade = Grade.SUSPECT if view.moving and view.dumps_awaited else Grade.NOTICE
    return _silence(view, grade, frozenset(families), "")


def quiet(view: View) -> Finding | None:
    """R4 early: the output is silent for longer than usual and ranks burn CPU without evidence of work.

    Stack dumps tell a livelock from work: the user is notified only once they show stacks that stand still.
    """
    burning = any(seen.features.motion is Motion.BURNING for seen in view.moving)
    if not view.started or view.unseen or view.writing or not burning or not view.output.events:
        return None
    if view.output.silent_s(view.now_s) < view.output.agree_after_s(view.tuning):
        return None
    if view.diagnosis is None or view.diagnosis.same is not True:
        return _silence(view, Grade.SUSPECT, frozenset({Family.OUTPUT}), "")
    families = frozenset({Family.OUTPUT, Family.STACKS})
    return _silence(view, Grade.NOTICE, families, ", and no stack has changed")


def _silence(view: View, grade: Grade, families: frozenset[Family], also: str) -> Finding:
    quiet_s = view.output.silent_s(view.now_s)
    longest_s = view.output.longest_s
    burning = sum(seen.features.motion is Motion.BURNING for seen in view.live)
    doing = f"; {_ranks(burning)} burn CPU without any other sign of work" if burning else ""
    stirring = any(seen.features.motion is Motion.STIRRING for seen in view.moving)
    act_at_s = view.output.last_s + view.output.act_after_s(view.tuning)
    if stirring and view.lone_since_s is not None:
        # A rank that wakes as when it works, while its peers wait, may be downloading: it gets what lone work gets.
        act_at_s = max(act_at_s, view.lone_since_s + view.tuning.lone_act_s)
    words = f"nothing new was printed for {_minutes(quiet_s)} (longest before: {longest_s:.0f} s)"
    return Finding(
        rule=Rule.SILENCE,
        grade=grade,
        since_s=view.output.last_s,
        act_at_s=act_at_s,
        families=families,
        sentence=f"{words}{doing}{also}",
        suspects=find_suspects(view),
        evidence=(("silent_s", quiet_s), ("longest_gap_s", longest_s), ("burning_ranks", float(burning))),
    )


# -- R6 ----------------------------------------------------------------------------------------------------------


def counts(view: View) -> Finding | None:
    """R6: collective counts are frozen and differ between ranks; a family of its own that names the laggard."""
    if view.counts is None or not view.counts.mismatched:
        return None
    frozen_s = view.now_s - view.counts.frozen_since_s
    patience_s = _patience_s(view, view.tuning.spin_factor)
    if frozen_s < patience_s:
        return None
    still = {Family.PROCESS} if view.all_still else set()
    mute = {Family.OUTPUT} if view.output.silent_s(view.now_s) >= patience_s else set()
    laggards = tuple(seen.name for seen in view.ranks if seen.key in view.counts.laggards)
    behind = f"; {' and '.join(laggards)} lag behind" if laggards else ""
    return Finding(
        rule=Rule.COUNTS_DIFFER,
        grade=Grade.NOTICE,
        since_s=view.counts.frozen_since_s,
        act_at_s=view.counts.frozen_since_s + patience_s + view.tuning.persist_s if still or mute else math.inf,
        families=frozenset({Family.COUNTS} | still | mute),
        sentence=f"the counts of collectives have stood still and differ for {frozen_s:.0f} s{behind}",
        suspects=laggards or find_suspects(view),
        evidence=(("frozen_s", frozen_s),),
    )


# -- All of them -------------------------------------------------------------------------------------------------


def judge(view: View) -> Finding | None:
    """The finding that counts: the one that may be acted on first; of equals, the one by more families."""
    if vetoed(view):
        return lone_work(view)
    found = [
        finding for rule in (odd, spinning, idle, counts, quiet, silent) if (finding := rule(view)) is not None
    ]
    if not found:
        return None
    best = min(found, key=lambda f: (f.grade is Grade.SUSPECT, f.act_at_s, -len(f.families)))
    if best.act_at_s == math.inf:
        return best
    named = next((f.suspects for f in found if f.suspects), ())
    return replace(best, suspects=best.suspects or named)


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
