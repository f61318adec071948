"""A job's hangs as a page for a person: each verdict with its times and numbers, and the evidence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast.cli.kit.console import styled
from holdfast.cli.kit.durations import local, span
from holdfast.cli.kit.table import Cell
from holdfast.v1 import job_pb2, spec_pb2

if TYPE_CHECKING:
    from holdfast._session.hang_wire import WorkerEvidence

_ENDLESS = 1_000_000
"""Where nothing is to be cut."""
_INDENT = " " * 14

_OUTCOMES = {
    "": ("open", "33", "open: watched on"),
    "RESTARTED": ("relaunched", "36", "killed and relaunched in place"),
    "WOULD_RESTART": (
        "notified only",
        "33",
        "notified only; with --restart-on-hang it would have been relaunched in place",
    ),
    "WITHHELD": ("not acted on", "33", "confirmed, but not acted on"),
    "BUDGET_SPENT": ("job failed", "31", "no hang restart was left, so the job failed"),
    "OVER": ("over", "32", "moved again by itself"),
    "ENDED": ("ended", "", "over before anything was decided"),
}
"""A hang's outcome: in a word or two for tables, their colour, and in a sentence."""
_JUDGED = {"RESTARTED": "acted", "BUDGET_SPENT": "given up", "OVER": "over", "ENDED": "ended"}


def outcome_cell(hang: job_pb2.Hang) -> Cell:
    """Cell with a hang's outcome in a word or two; an outcome unknown here is shown as it was sent."""
    word, style, _ = _outcome(hang)
    return Cell(word, style)


def _outcome(hang: job_pb2.Hang) -> tuple[str, str, str]:
    word, style, sentence = _OUTCOMES.get(hang.outcome, (hang.outcome, "", hang.outcome))
    # The note may say that it went to other hosts.
    return word, style, "killed and relaunched" if hang.outcome == "RESTARTED" and hang.note else sentence


def _rule(hang: job_pb2.Hang) -> str:
    """The rule's name and what it means; as it was sent where it is new."""
    from holdfast.hang.judge.finding import MEANINGS, Rule

    try:
        rule = Rule(hang.rule)
    except ValueError:
        return hang.rule
    return f"{rule.value}: {MEANINGS[rule]}"


def newest_hang(job: job_pb2.CustomJob, width: int | None) -> Iterator[str]:
    """The job's newest hang in some sentences, for its page, and where to read more."""
    hang = job.hangs[-1]
    for text in (hang.sentence, hang.stacks and f"Its stacks: {hang.stacks}", hang.note):
        if text:
            yield from textwrap.wrap(
                one_line(text), width or _ENDLESS, initial_indent="  ", subsequent_indent="    "
            )
    yield f"  more:  holdfast job hangs {job.id}"


def hang_lines(hang: job_pb2.Hang, *, width: int | None, colour: bool) -> Iterator[str]:
    """One hang: when what happened, what was seen, who is suspected, what became of it."""
    cell = outcome_cell(hang)
    title = styled(f"Hang {hang.number}", "1", colour=colour)
    yield f"{title}  {styled(cell.text, cell.style, colour=colour)} · generation {hang.generation}"
    yield from _timeline(hang, colour)
    _, _, outcome = _outcome(hang)
    for name, text in (
        ("rule", _rule(hang)),
        ("seen", hang.sentence),
        ("suspects", ", ".join(hang.suspects) or "none in particular"),
        ("stacks", hang.stacks or ("none could be taken" if hang.HasField("diagnosed_at") else "none yet")),
        ("step", f"{hang.step:.12g}" if hang.HasField("step") else ""),
        ("outcome", f"{outcome}: {hang.note}" if hang.note else outcome),
    ):
        if text:
            yield from _fact(name, text, width, colour)


def _timeline(hang: job_pb2.Hang, colour: bool) -> Iterator[str]:
    """Its moments in the order in which they came, each with the time since the one before."""
    moments = []
    if hang.HasField("diagnosed_at"):
        moments.append(("diagnosed", seconds(hang.diagnosed_at)))
    if hang.HasField("noticed_at"):
        moments.append(("noticed", seconds(hang.noticed_at)))
    if hang.HasField("judged_at"):
        moments.append((_JUDGED.get(hang.outcome, "judged"), seconds(hang.judged_at)))
    moments.sort(key=lambda moment: moment[1])
    since = before = seconds(hang.since)
    yield _labelled("still since", local(since), colour)
    for name, at in moments:
        whole = f", {span(at - since)} in all" if before != since else ""
        yield _labelled(name, f"{local(at)}  {span(at - before)} later{whole}", colour)
        before = at


def _fact(name: str, text: str, width: int | None, colour: bool) -> Iterator[str]:
    room = max(20, width - len(_INDENT)) if width else _ENDLESS
    first, *rest = textwrap.wrap(one_line(text), room, break_on_hyphens=False) or [""]
    yield _labelled(name, first, colour)
    yield from (_INDENT + line for line in rest)


def _labelled(name: str, text: str, colour: bool) -> str:
    return styled(f"  {name:<11}", "2", colour=colour) + f" {text}"


def detector_sentence(job: job_pb2.CustomJob, now: float) -> str:
    """Return what hang detection does now for the job, in a sentence; empty once the job has ended."""
    from holdfast.client import TERMINAL

    if job.state in TERMINAL:
        return ""
    if job.job_spec.fault_tolerance.hang_detection.action == spec_pb2.HANG_ACTION_OFF:
        return "Hang detection is off for this job."
    if job.state != job_pb2.JOB_STATE_RUNNING:
        return "Hangs are looked for while the job runs; it does not run now."
    held = ""
    if job.HasField("held_until") and seconds(job.held_until) > now:
        held = f" Until {local(seconds(job.held_until))} no hang is acted on."
    if not job.health:
        return f"The detector has said nothing yet: it waits to hear of every worker.{held}"
    return f"The detector says: {one_line(job.health)}.{held}"


def verdict_lines(
    job: job_pb2.CustomJob, hangs: Sequence[job_pb2.Hang], now: float, *, width: int | None, colour: bool
) -> Iterator[str]:
    """All the verdicts, or that there are none, then what the detection does now."""
    for hang in hangs:
        yield from hang_lines(hang, width=width, colour=colour)
        yield ""
    now_says = detector_sentence(job, now)
    if not hangs:
        now_says = f"No hang was noticed{' so far' if now_says else ''}. {now_says}".rstrip()
    yield from textwrap.wrap(now_says, width or _ENDLESS, subsequent_indent="  ", break_on_hyphens=False)
    if hangs and now_says:
        yield ""


def evidence_text(found: Sequence[WorkerEvidence], *, width: int | None, full: bool) -> str:
    """Text of the workers' evidence, the odd ones first, and why the others sent none."""
    from holdfast.hang.evidence.render_evidence import render

    parts = [each.evidence for each in found if each.evidence is not None]
    text = render(parts, width or _ENDLESS, full=full) if parts else ""
    for each in found:
        if each.problem:
            host = f" on {each.host}" if each.host else ""
            text += one_line(f"{each.worker}{host}: {each.problem}") + "\n"
    return text
