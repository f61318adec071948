"""Judges one job: folds its workers' vectors, step by step, into a place on the ladder, orders and words.

Theory of operation. ``begin`` makes the watch of one generation; of the last one it keeps how long its start-up
took, and where it hung. ``step`` is called with every worker's newest vector whenever one arrives, and at least every
heartbeat. It returns the new watch, the verdict in words, and the orders that follow. Unwatched time
(the controller was down, a debugger was attached, the program declared itself idle) is forgiven: it is
neither silence nor survived.

One hang is one suspicion: it ends when one of the ranks that it is about is seen to move for some seconds, or, for
a silence, when the output goes on. That a rule no longer finds it, as while a host is not heard of, ends nothing.

The caller performs orders and brings results back: a ``Diagnose`` is answered by a ``Diagnosis`` in a later
step, an ``Act`` by a new generation, or by ``stuck`` when the place can't be proven empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.choices import HangAction
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.finding import Finding, Grade, Rule
from holdfast.hang.judge.limits import silence_limit_s
from holdfast.hang.judge.rules import judge, vetoed
from holdfast.hang.judge.snapshot import Counts, View
from holdfast.hang.judge.stages import Rung, climb
from holdfast.hang.judge.state import (
    dump_pause_s,
    forgive,
    forgive_unwatched,
    learned,
    look,
    looked_again,
    note_stillness,
    observe,
    pause_reason,
    phases_of,
)
from holdfast.hang.judge.waiting import Gang
from holdfast.hang.judge.watch import JobWatch, Suspicion
from holdfast.hang.pipeline.features import Motion, WorkerFeatures
from holdfast.hang.pipeline.samples import Family
from holdfast.hang.thresholds import HangSettings, Tuning, tuned


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Take two rounds of stack dumps of every rank; native frames and children of the suspects only."""

    suspects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notify:
    """Order to notify the user of the finding."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class Act:
    """Keep the evidence, kill this generation with the hang grace, and start the next one in place."""

    finding: Finding
    diagnosis: Diagnosis | None
    # How many restarts in a row have led back to the same wait at the same step.
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class WouldAct:
    """The ``Act`` that the job's action RESTART would give: recorded, not done."""

    finding: Finding
    diagnosis: Diagnosis | None


Order = Diagnose | Notify | Act | WouldAct


@dataclass(frozen=True, slots=True)
class Verdict:
    """State of a job's hang detection, in words with numbers. ``finding`` is None while nothing was found."""

    rung: Rung
    sentence: str
    finding: Finding | None = None
    blind: bool = False
    # Why a confirmed hang isn't acted on.
    suppressed: str = ""
    # Why the suspicion that there was is over; empty while it lasts, and where there was none.
    over: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of ``step``."""

    watch: JobWatch
    verdict: Verdict
    orders: tuple[Order, ...] = ()


def step(
    watch: JobWatch,
    workers: Sequence[WorkerFeatures],
    settings: HangSettings,
    now_s: float,
    *,
    diagnosis: Diagnosis | None = None,
    counts: Counts | None = None,
    brake: Callable[[], str] = lambda: "",
    tuning: Tuning | None = None,
) -> Step:
    """The job after one more look. ``brake`` gives a common cause's sentence, empty when there is none.

    It is asked only where the job would be acted on.
    """
    limits = tuned(settings, tuning)
    if settings.action is HangAction.OFF:
        return Step(replace(watch, seen_s=now_s), Verdict(watch.rung, "hang detection is off"))
    if watch.rung in (Rung.ACTED, Rung.STUCK) and watch.suspicion is not None:
        acted = watch.suspicion
        verdict = Verdict(watch.rung, _words(acted.finding, acted), acted.finding)
        return Step(replace(watch, seen_s=now_s), verdict)
    watch = forgive_unwatched(watch, now_s, limits)
    fresh = [worker for worker in workers if now_s - worker.at_s <= limits.stale_s]
    unseen = tuple(worker.worker for worker in workers if now_s - worker.at_s > limits.stale_s)
    if why := pause_reason(fresh):
        return _paused(watch, fresh, now_s, why, limits)
    if unseen:
        # What they print meanwhile can't be seen, and is no silence.
        watch = replace(watch, output=watch.output.forgive(now_s - watch.seen_s))
    watch = observe(watch, fresh, diagnosis, now_s, limits)
    view = look(watch, fresh, unseen, counts, now_s, limits)
    gang = Gang(view)
    watch = note_stillness(watch, view, gang)
    view = looked_again(view, watch, fresh)
    watch = replace(watch, phases=view.phases, seen_s=now_s)
    return _climb(watch, view, gang, settings, brake)


# -- The ladder --------------------------------------------------------------------------------------------------


def _paused(watch: JobWatch, workers: Sequence[WorkerFeatures], now_s: float, why: str, tuning: Tuning) -> Step:
    phases = phases_of(watch, workers, now_s, tuning, lone=False)
    watch = replace(forgive(watch, now_s - watch.seen_s, now_s), phases=phases)
    return Step(watch, Verdict(Rung.HEALTHY, why))


def _climb(watch: JobWatch, view: View, gang: Gang, settings: HangSettings, brake: Callable[[], str]) -> Step:
    finding = judge(view, gang)
    watch, over = _note_movement(watch, view, gang, finding)
    if over:
        return Step(watch, replace(_unfound(view), over=over))
    if finding is None and watch.suspicion is not None and watch.suspicion.finding.grade is Grade.NOTICE:
        return Step(watch, _undecided(watch, watch.suspicion, view))
    if finding is None or (finding.grade is Grade.SUSPECT and not _may_suspect(watch, view)):
        watch = replace(watch, rung=climb(watch.rung, Rung.HEALTHY), suspicion=None)
        return Step(watch, _unfound(view))
    watch, orders = _take_up(watch, finding, view)
    if watch.rung is Rung.SUPPRESSED and not _confirmed(watch, finding, view):
        # Another finding took the place of the one that was suppressed: it is acted on in its own time.
        watch = replace(watch, rung=climb(watch.rung, Rung.NOTICED))
    if (
        watch.rung is Rung.NOTICED
        and view.now_s >= finding.act_at_s - view.tuning.diagnose_s
        and _stale(watch, view)
    ):
        # The stacks were taken long ago: what will be killed is looked at once more.
        watch, orders = _ask_again(watch, view), (*orders, Diagnose(finding.suspects))
    if watch.rung is Rung.NOTICED and _confirmed(watch, finding, view):
        watch = replace(watch, rung=climb(watch.rung, Rung.CONFIRMED))
    if watch.rung not in (Rung.CONFIRMED, Rung.SUPPRESSED):
        sentence = finding.sentence
        if watch.rung is Rung.NOTICED and watch.suspicion is not None:
            sentence = _words(finding, watch.suspicion) + _what_follows(finding, view, settings)
        return Step(watch, Verdict(watch.rung, sentence, finding), orders)
    return _act_or_suppress(watch, finding, view, settings, brake, orders)


def _note_movement(watch: JobWatch, view: View, gang: Gang, finding: Finding | None) -> tuple[JobWatch, str]:
    """The watch, and why its suspicion is over; empty where it isn't."""
    suspicion = watch.suspicion
    if suspicion is None or suspicion.finding.grade is Grade.SUSPECT or view.unseen:
        return watch, ""
    moved = _movement(suspicion.finding, view, gang)
    changed = suspicion.finding.subjects & view.by_frames
    if changed:
        return _closed(watch), vetoed(view)
    if not moved:
        return replace(watch, suspicion=replace(suspicion, moves_since_s=None)), ""
    since_s = suspicion.moves_since_s if suspicion.moves_since_s is not None else view.now_s
    if finding is not None and finding.subjects == suspicion.finding.subjects:
        since_s = view.now_s
    if view.now_s - since_s < view.tuning.moves_s:
        return replace(watch, suspicion=replace(suspicion, moves_since_s=since_s)), ""
    return _closed(watch), moved


def _closed(watch: JobWatch) -> JobWatch:
    """The watch once its suspicion is over."""
    return replace(watch, rung=climb(watch.rung, Rung.HEALTHY), suspicion=None, given_up="")


def _movement(finding: Finding, view: View, gang: Gang) -> str:
    """The movement that may end the hang, in words; empty where there is none."""
    if finding.rule is Rule.WORKING_RANK:
        return "its ranks no longer wait for one" if view.watch.lone_since_s is None else ""
    if not finding.subjects:
        if view.watch.output.last_s > finding.since_s:
            return "its output goes on"
        return vetoed(view)
    for seen in view.ranks:
        rank = seen.features
        if seen.key not in finding.subjects or rank.hardware:
            continue
        if rank.motion is Motion.EXITED and rank.exit_code == 0 and rank.still_since_s > finding.since_s:
            return f"{seen.name} has ended with success"
        if rank.motion not in (Motion.UNSEEN, Motion.EXITED) and not gang.stands(seen):
            return f"{seen.name} moves"
    return ""


def _may_suspect(watch: JobWatch, view: View) -> bool:
    """A suspicion that only stack dumps can settle waits for its turn: repeated dumps back off."""
    if watch.rung is not Rung.HEALTHY or watch.dumped_s is None:
        return True
    return view.now_s - watch.dumped_s >= dump_pause_s(watch.dumps, view.tuning)


def _unfound(view: View) -> Verdict:
    if view.unseen:
        return Verdict(Rung.HEALTHY, f"nothing is heard of {', '.join(view.unseen)}: blind, not hung", blind=True)
    blind = {family for seen in view.ranks for family in seen.features.blind}
    if blind:
        whom = " and ".join(
            "its GPUs" if family is Family.GPU else "its processes" for family in sorted(blind, key=str)
        )
        return Verdict(Rung.HEALTHY, f"{whom} can't be read: blind, not hung", blind=True)
    if veto := vetoed(view):
        return Verdict(Rung.HEALTHY, veto)
    quiet_s, limit_s = view.watch.output.silent_s(view.now_s), silence_limit_s(view)
    last = (
        f"last progress {quiet_s:.0f} s ago" if view.watch.output.events else f"no progress yet in {quiet_s:.0f} s"
    )
    start = "" if view.started else "starting up: "
    return Verdict(Rung.HEALTHY, f"{start}{last}; silence is noticed after {limit_s:.0f} s")


def _undecided(watch: JobWatch, suspicion: Suspicion, view: View) -> Verdict:
    """A hang that no rule finds at this look and of which nothing has moved either."""
    finding = suspicion.finding
    why = ""
    if view.unseen:
        why = f"; nothing is heard of {', '.join(view.unseen)}: blind, so nothing is done meanwhile"
    elif veto := vetoed(view):
        why = f"; nothing is done while {veto}"
    return Verdict(watch.rung, _words(finding, suspicion) + why, finding, blind=bool(view.unseen))


def _what_follows(finding: Finding, view: View, settings: HangSettings) -> str:
    """The next action and its time, as the end of a sentence."""
    if finding.act_at_s == math.inf:
        return ""
    left_s = max(0.0, finding.act_at_s - view.now_s)
    when = f"in {left_s:.0f} s" if left_s < 120 else f"in {left_s / 60:.0f} min"
    when = when if left_s >= 1 else "once its stacks are taken"
    if settings.action is HangAction.NOTIFY:
        return f"; if it still hangs {when}, that is recorded and nothing else is done (action NOTIFY)"
    return f"; it is acted on {when} unless it moves"


def _take_up(watch: JobWatch, finding: Finding, view: View) -> tuple[JobWatch, tuple[Order, ...]]:
    """Starts or goes on with a suspicion; the first order is for the dumps, the second tells the user."""
    orders: tuple[Order, ...] = ()
    if watch.suspicion is None:
        suspicion = Suspicion(view.now_s, finding)
        watch = replace(watch, suspicion=suspicion, by_frames=frozenset())
        if _may_suspect(watch, view):
            watch, orders = _ask_again(watch, view), (Diagnose(finding.suspects),)
    else:
        watch = replace(watch, suspicion=replace(watch.suspicion, finding=finding))
    if finding.grade is Grade.SUSPECT:
        below = watch.rung is Rung.HEALTHY
        return (replace(watch, rung=climb(watch.rung, Rung.SUSPECT)) if below else watch), orders
    if watch.rung in (Rung.HEALTHY, Rung.SUSPECT):
        watch = replace(watch, rung=climb(watch.rung, Rung.NOTICED))
        # A job that prints nothing is silent once and may hang twice.
        told_of_s = max(watch.output.last_s, finding.since_s) if finding.subjects else watch.output.last_s
        if watch.told_of_s != told_of_s:
            watch = replace(watch, told_of_s=told_of_s)
            orders = (*orders, Notify(finding))
    return watch, orders


def _ask_again(watch: JobWatch, view: View) -> JobWatch:
    """The watch once stacks of its suspicion are ordered, for the first time or again."""
    if watch.suspicion is None:
        raise ValueError("no stacks are wanted without a suspicion")
    recent = watch.dumped_s is not None and view.now_s - watch.dumped_s < 2 * view.tuning.rediagnose_last_s
    dumps = watch.dumps + 1 if recent else 1
    suspicion = replace(watch.suspicion, asked_s=view.now_s, diagnosis=None)
    return replace(watch, dumps=dumps, suspicion=suspicion)


def _stale(watch: JobWatch, view: View) -> bool:
    """Whether the stacks of the suspicion are too old to act on, or were never asked for."""
    diagnosis = watch.suspicion.diagnosis if watch.suspicion is not None else None
    if watch.suspicion is not None and watch.suspicion.asked_s is None:
        return True
    return diagnosis is not None and view.now_s - diagnosis.at_s >= view.tuning.rediagnose_stale_s


def _confirmed(watch: JobWatch, finding: Finding, view: View) -> bool:
    """Two families agree, or the ceiling is reached; the dumps are in, or their time is over; nothing has moved."""
    suspicion = watch.suspicion
    if suspicion is None or view.now_s < finding.act_at_s or suspicion.moves_since_s is not None:
        return False
    if suspicion.diagnosis is not None:
        return True
    return suspicion.asked_s is not None and view.now_s - suspicion.asked_s >= view.tuning.diagnose_s


def _act_or_suppress(
    watch: JobWatch,
    finding: Finding,
    view: View,
    settings: HangSettings,
    brake: Callable[[], str],
    orders: tuple[Order, ...],
) -> Step:
    suspicion = watch.suspicion
    if suspicion is None:
        raise ValueError("nothing is confirmed without a suspicion")
    why = _why_suppressed(watch, view, settings, "" if finding.internal else brake())
    if not why:
        repeats = view.times_before(finding.signature, finding.since_s)
        watch = learned(replace(watch, rung=climb(watch.rung, Rung.ACTED)), finding, view)
        verdict = Verdict(watch.rung, _words(finding, suspicion), finding)
        return Step(watch, verdict, (*orders, Act(finding, suspicion.diagnosis, repeats)))
    if settings.action is HangAction.NOTIFY and not suspicion.told_would_act:
        orders = (*orders, WouldAct(finding, suspicion.diagnosis))
        watch = replace(watch, suspicion=replace(suspicion, told_would_act=True))
    watch = replace(watch, rung=climb(watch.rung, Rung.SUPPRESSED))
    sentence = f"{_words(finding, suspicion)}; not acted on: {why}"
    return Step(watch, Verdict(watch.rung, sentence, finding, suppressed=why), orders)


def _why_suppressed(watch: JobWatch, view: View, settings: HangSettings, brake: str) -> str:
    if brake or watch.given_up:
        return brake or watch.given_up
    if watch.hold_until_s is not None and view.now_s < watch.hold_until_s:
        return f"the job is held for {watch.hold_until_s - view.now_s:.0f} s more"
    grew_s = view.last_checkpoint_s
    if view.writing and grew_s is not None and view.now_s - grew_s < view.tuning.checkpoint_grace_s:
        return "a checkpoint is being written"
    return "the job asks to be notified only" if settings.action is HangAction.NOTIFY else ""


def _words(finding: Finding, suspicion: Suspicion) -> str:
    stacks = suspicion.diagnosis.words if suspicion.diagnosis else ""
    suspects = f"; suspect: {' and '.join(finding.suspects)}" if finding.suspects else ""
    return f"{finding.sentence}{suspects}" + (f"; {stacks}" if stacks else "")
