"""Judges one job: folds its workers' vectors, step by step, into a place on the ladder, orders and words.

Theory of operation. ``begin`` makes the watch of one generation; nothing of the last one is kept but how long
its start-up took. ``step`` is called with every worker's newest vector whenever one arrives, and at least every
heartbeat. It returns the new watch, the verdict in words, and the orders that follow. Unwatched time
(the controller was down, a debugger was attached, the program declared itself idle) is forgiven: it is
neither silence nor survived.

The caller performs orders and brings results back: a ``Diagnose`` is answered by a ``Diagnosis`` in a later
step, an ``Act`` by a new generation, or by ``stuck`` when the place can't be proven empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.rules import Finding, Grade, judge, vetoed
from holdfast.hang.judge.snapshot import Counts, View
from holdfast.hang.judge.stages import Rung, climb
from holdfast.hang.judge.state import (
    JobWatch,
    Suspicion,
    dump_pause_s,
    forgive,
    forgive_unwatched,
    look,
    note_stillness,
    observe,
    pause_reason,
    phases_of,
)
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.tuning import Action, HangSettings, Tuning, tuned


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
    brake: str = "",
    tuning: Tuning | None = None,
) -> Step:
    """The job after one more look. ``brake`` is a common cause's sentence, empty when there is none."""
    limits = tuned(settings, tuning)
    if settings.action is Action.OFF:
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
    watch = note_stillness(watch, view)
    view = look(watch, fresh, unseen, counts, now_s, limits)
    watch = replace(watch, phases=view.phases, seen_s=now_s)
    return _climb(watch, view, settings, brake)


# -- The ladder --------------------------------------------------------------------------------------------------


def _paused(watch: JobWatch, workers: Sequence[WorkerFeatures], now_s: float, why: str, tuning: Tuning) -> Step:
    phases = phases_of(watch, workers, now_s, tuning, lone=False)
    watch = replace(forgive(watch, now_s - watch.seen_s, now_s), phases=phases)
    return Step(watch, Verdict(Rung.HEALTHY, why))


def _climb(watch: JobWatch, view: View, settings: HangSettings, brake: str) -> Step:
    finding = judge(view)
    if finding is None or (finding.grade is Grade.SUSPECT and not _may_suspect(watch, view)):
        watch = replace(watch, rung=climb(watch.rung, Rung.HEALTHY), suspicion=None)
        return Step(watch, _unfound(view))
    watch, orders = _take_up(watch, finding, view)
    if watch.rung is Rung.SUPPRESSED and not _confirmed(watch, finding, view):
        # Another finding took the place of the one that was suppressed: it is acted on in its own time.
        watch = replace(watch, rung=climb(watch.rung, Rung.NOTICED))
    if watch.rung is Rung.NOTICED and _confirmed(watch, finding, view):
        watch = replace(watch, rung=climb(watch.rung, Rung.CONFIRMED))
    if watch.rung not in (Rung.CONFIRMED, Rung.SUPPRESSED):
        return Step(watch, Verdict(watch.rung, finding.sentence, finding), orders)
    return _act_or_suppress(watch, finding, view, settings, brake, orders)


def _may_suspect(watch: JobWatch, view: View) -> bool:
    """A suspicion that only stack dumps can settle waits for its turn: repeated dumps back off."""
    if watch.rung is not Rung.HEALTHY or watch.dumped_s is None:
        return True
    return view.now_s - watch.dumped_s >= dump_pause_s(watch.dumps, view.tuning)


def _unfound(view: View) -> Verdict:
    if view.unseen:
        return Verdict(Rung.HEALTHY, f"nothing is heard of {', '.join(view.unseen)}: blind, not hung", blind=True)
    blind = sorted({family.value for seen in view.ranks for family in seen.features.blind})
    if blind:
        return Verdict(
            Rung.HEALTHY, f"the signals of {' and '.join(blind)} can't be read: blind, not hung", blind=True
        )
    if veto := vetoed(view):
        return Verdict(Rung.HEALTHY, veto)
    quiet_s, limit_s = view.output.silent_s(view.now_s), view.output.notice_after_s(view.tuning)
    return Verdict(Rung.HEALTHY, f"last progress {quiet_s:.0f} s ago; silence is noticed after {limit_s:.0f} s")


def _take_up(watch: JobWatch, finding: Finding, view: View) -> tuple[JobWatch, tuple[Order, ...]]:
    """Starts or goes on with a suspicion; the first order is for the dumps, the second tells the user."""
    orders: tuple[Order, ...] = ()
    if watch.suspicion is None:
        recent = watch.dumped_s is not None and view.now_s - watch.dumped_s < 2 * view.tuning.rediagnose_last_s
        dumps = watch.dumps + 1 if recent else 1
        watch = replace(watch, suspicion=Suspicion(view.now_s, finding), dumps=dumps, by_frames=frozenset())
        orders = (Diagnose(finding.suspects),)
    else:
        watch = replace(watch, suspicion=replace(watch.suspicion, finding=finding))
    if finding.grade is Grade.SUSPECT:
        below = watch.rung is Rung.HEALTHY
        return (replace(watch, rung=climb(watch.rung, Rung.SUSPECT)) if below else watch), orders
    if watch.rung in (Rung.HEALTHY, Rung.SUSPECT):
        watch = replace(watch, rung=climb(watch.rung, Rung.NOTICED))
        if watch.told_of_s != watch.output.last_s:
            watch = replace(watch, told_of_s=watch.output.last_s)
            orders = (*orders, Notify(finding))
    return watch, orders


def _confirmed(watch: JobWatch, finding: Finding, view: View) -> bool:
    """Two families agree, or the ceiling is reached; the dumps are in, or their time is over; nothing has moved."""
    suspicion = watch.suspicion
    if suspicion is None or view.now_s < finding.act_at_s:
        return False
    return suspicion.diagnosis is not None or view.now_s - suspicion.since_s >= view.tuning.diagnose_s


def _act_or_suppress(
    watch: JobWatch,
    finding: Finding,
    view: View,
    settings: HangSettings,
    brake: str,
    orders: tuple[Order, ...],
) -> Step:
    suspicion = watch.suspicion
    if suspicion is None:
        raise ValueError("nothing is confirmed without a suspicion")
    why = _why_suppressed(watch, view, settings, brake)
    if not why:
        watch = replace(watch, rung=climb(watch.rung, Rung.ACTED))
        verdict = Verdict(watch.rung, _words(finding, suspicion), finding)
        return Step(watch, verdict, (*orders, Act(finding, suspicion.diagnosis)))
    if settings.action is Action.NOTIFY and not suspicion.told_would_act:
        orders = (*orders, WouldAct(finding, suspicion.diagnosis))
        watch = replace(watch, suspicion=replace(suspicion, told_would_act=True))
    watch = replace(watch, rung=climb(watch.rung, Rung.SUPPRESSED))
    return Step(watch, Verdict(watch.rung, _words(finding, suspicion), finding, suppressed=why), orders)


def _why_suppressed(watch: JobWatch, view: View, settings: HangSettings, brake: str) -> str:
    if brake:
        return brake
    if watch.hold_until_s is not None and view.now_s < watch.hold_until_s:
        return f"the job is held for {watch.hold_until_s - view.now_s:.0f} s more"
    grew_s = view.last_checkpoint_s
    if view.writing and grew_s is not None and view.now_s - grew_s < view.tuning.checkpoint_grace_s:
        return "a checkpoint is being written"
    return "the job asks to be notified only" if settings.action is Action.NOTIFY else ""


def _words(finding: Finding, suspicion: Suspicion) -> str:
    stacks = suspicion.diagnosis.words if suspicion.diagnosis else ""
    suspects = f"; suspect: {' and '.join(finding.suspects)}" if finding.suspects else ""
    return f"{finding.sentence}{suspects}" + (f"; {stacks}" if stacks else "")
