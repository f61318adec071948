"""One job as a page for a person: what it is, where it runs, how its ranks ended, what was done about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized

from holdfast._base.plural import count
from holdfast._base.printable import one_line, spaced_line
from holdfast._base.proto_values import seconds, short_name
from holdfast.cli.hangs.hang_page import newest_hang, outcome_cell
from holdfast.cli.kit.console import OUT, coloured, say, styled
from holdfast.cli.kit.durations import age, clock, local, span
from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.kit.table import Cell, Column, Row, cut, render, terminal_width
from holdfast.cli.pages import exit_table, recovery_table
from holdfast.cli.pages.array_page import counts, extent
from holdfast.cli.pages.event_lines import end_of
from holdfast.cli.pages.gang import gpus_of, machines_of, ranks_of
from holdfast.cli.pages.goodput_page import short
from holdfast.cli.pages.job_tables import failure, project_of, ran, state_cell, steps
from holdfast.v1 import job_pb2, spec_pb2

_MOST_EXITS = 20
_MOST = 10
"""Hangs, recoveries, and ranks with a binding."""
_MOST_NICS = 4
_WRAPPED = frozenset({"now", "happened", "done", "to do", "health", "ends"})


def write_page(
    job: job_pb2.CustomJob, now: float, *, goodput: job_pb2.GetGoodputResponse | None = None, wide: bool
) -> None:
    """The page on stdout. ``wide`` leaves nothing out."""
    say(*page(job, now, goodput=goodput, wide=wide, width=terminal_width(), colour=coloured(OUT)))


def page(
    job: job_pb2.CustomJob,
    now: float,
    *,
    goodput: job_pb2.GetGoodputResponse | None = None,
    wide: bool,
    width: int | None,
    colour: bool,
) -> Iterator[str]:
    """Yield the lines of a job's page."""
    yield from _head(job, now, width=width, colour=colour)
    room = None if width is None else width - 2
    for title, hidden, table in (
        ("Workers", 0, _workers(job, wide=wide, width=room, colour=colour)),
        ("Exits", *_exits(job, now, wide=wide, width=room, colour=colour)),
        ("Hangs", *_hangs(job, now, wide=wide, width=room, colour=colour)),
        ("Recoveries", *_recoveries(job, now, wide=wide, width=room, colour=colour)),
        ("Goodput", 0, short(goodput, width=room, colour=colour) if goodput is not None else ""),
    ):
        if table:
            yield ""
            yield styled(title, "1", colour=colour)
            if hidden:
                yield f"  {hidden} earlier ones are left out; see them with -o wide"
            yield from (f"  {line}" for line in table.splitlines())
            if title == "Hangs":
                yield from newest_hang(job, width)
    yield from _error(job, width=width, colour=colour)


def _head(job: job_pb2.CustomJob, now: float, *, width: int | None, colour: bool) -> Iterator[str]:
    state = state_cell(job.state)
    ran_s = ran(job, now)
    ran_text = f" · ran {span(ran_s)}" if ran_s is not None else ""
    yield (f"{styled(job.id, '1', colour=colour)}  {styled(state.text, state.style, colour=colour)}{ran_text}")
    room = 1_000_000 if width is None else max(20, width - 14)
    for name, text in (*sentences(job), *_facts(job, now)):
        value = one_line(text)
        # Sentences are worth more than one line.
        shown = (textwrap.wrap(value, room) if name in _WRAPPED else [cut(value, room)]) or [""]
        yield styled(f"  {name:<10}", "2", colour=colour) + f"  {shown[0]}"
        yield from (" " * 14 + line for line in shown[1:])


def sentences(job: job_pb2.CustomJob) -> Iterator[tuple[str, str]]:
    """Yield the controller's sentences on the job; one of an older release says only why it waits."""
    if not job.HasField("summary"):
        if job.wait_reason:
            yield "waits", job.wait_reason
        return
    yield "now", job.summary.health
    yield "happened", job.summary.happened
    yield "done", job.summary.done
    yield "to do", job.summary.advice


def _facts(job: job_pb2.CustomJob, now: float) -> Iterator[tuple[str, str]]:
    yield "name", job.display_name
    if job.owner:
        yield "owner", job.owner + (f", runs as {job.account}" if job.account else "")
    if project_of(job) != "default":
        yield "project", job.project
    if job.HasField("array"):
        yield "array", f"{job.array.index} of {job.array.id} ({extent(job.array)}): {counts(job.array)}"
    yield from _scheduling(job.job_spec.scheduling)
    for number, pool in enumerate(job.job_spec.worker_pool_specs):
        if requested := _hosts(pool.host_selector):
            yield "hosts", f"of workerpool{number}: {requested}"
    if wanted := job.job_spec.scheduling.spares:
        yield "spares", _spares(job.spare_hosts, wanted)
    yield "created", f"{local(job.create_time.seconds)} ({age(now - job.create_time.seconds)} ago)"
    if job.HasField("end_time"):
        yield "ended", f"{local(job.end_time.seconds)} ({age(now - job.end_time.seconds)} ago)"
    ranks, gpus = len(ranks_of(job.job_spec)), gpus_of(job.job_spec)
    workers = sum(pool.replica_count for pool in job.job_spec.worker_pool_specs)
    asked = [count(workers, "worker"), count(ranks, "rank"), *([count(gpus, "GPU")] if gpus else [])]
    machines = machines_of(job.job_spec)
    yield "gang", ", ".join(asked) + (f" ({machines})" if machines else "")
    yield "launch", f"attempt {job.attempt}, generation {job.generation}" if job.generation else "not yet"
    if job.HasField("step"):
        yield "step", _steps(job)
    if job.HasField("expected_end"):
        yield "ends", job.expected_end.words
    if job.health:
        yield "health", job.health
    if job.HasField("held_until") and job.held_until.seconds > now:
        left = span(job.held_until.seconds - now)
        yield "held", f"until {local(job.held_until.seconds)} ({left} left): no hang is acted on"
    pools = job.job_spec.worker_pool_specs
    if pools and pools[0].HasField("process_spec"):
        process = pools[0].process_spec
        words = [word.replace("$$", "$") for word in (*process.command, *process.args)]
        yield "command", shell_line(words)
        if process.working_directory:
            yield "directory", process.working_directory
    images = dict.fromkeys(p.container_spec.image_uri for p in pools if p.HasField("container_spec"))
    for worker, problem in sorted(job.archive_problems.items()):
        yield "archive", f"{worker}: {problem}"
    if images:
        yield "image", ", ".join(images)
    if job.labels:
        yield "labels", _pairs(job.labels)
    if job.annotations:
        yield "notes", _pairs(job.annotations)


def _spares(hosts: Sequence[str], wanted: int) -> str:
    held = f"on {', '.join(dict.fromkeys(hosts))}, idle until a worker has to leave its host" if hosts else ""
    return "; ".join(filter(None, (f"{len(hosts)} of {wanted}" if len(hosts) < wanted else str(wanted), held)))


def _steps(job: job_pb2.CustomJob) -> str:
    share = f" ({100 * job.step / job.step_total:.0f} %)" if job.step_total else ""
    doing = {"evaluate": "evaluates", "save": "saves a checkpoint"}.get(job.phase, "")
    saved = f"saved at {job.saved_step:.0f}" if job.HasField("saved_step") else ""
    return ", ".join(filter(None, (f"{steps(job)}{share}", doing, saved)))


def _scheduling(scheduling: spec_pb2.Scheduling) -> Iterator[tuple[str, str]]:
    """Requirements of a job on the queue and its hosts, as far as they are not the defaults."""
    if scheduling.priority > 1:
        yield "priority", str(scheduling.priority)
    strategy = short_name(spec_pb2.SchedulingStrategy, scheduling.strategy)
    if strategy not in ("UNSPECIFIED", "STANDARD", "ON_DEMAND"):
        yield "strategy", strategy
    if requested := _hosts(scheduling.host_selector):
        yield "hosts", requested
    placement = scheduling.placement
    required = placement.mode == spec_pb2.PLACEMENT_MODE_REQUIRED
    near = [
        *([f"within one {placement.within}{'' if required else ' if possible'}"] if placement.within else []),
        *(
            [f"each {placement.segment.size} workers within one {placement.segment.within}"]
            if placement.segment.size
            else []
        ),
    ]
    if near:
        yield "placement", "; ".join(near)


def _hosts(selector: spec_pb2.HostSelector) -> str:
    requested = [
        *(["on " + ", ".join(selector.hosts)] if selector.hosts else []),
        *(["not on " + ", ".join(selector.avoid_hosts)] if selector.avoid_hosts else []),
        *(["with " + _pairs(selector.labels)] if selector.labels else []),
        *(["without " + _pairs(selector.avoid_labels)] if selector.avoid_labels else []),
        *([f"where {selector.match}"] if selector.match else []),
    ]
    return "; ".join(requested)


def _pairs(mapping: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(mapping.items()))


def _workers(job: job_pb2.CustomJob, *, wide: bool, width: int | None, colour: bool) -> str:
    if not job.workers:
        return ""
    columns = [
        Column("NAME"),
        Column("HOST", give=True),
        Column("STATE"),
        Column("GPUS", give=wide, right=not wide),
    ]
    columns += [Column("SHIM", right=True)] if wide else []
    columns += [Column("RANKS", give=True)]
    lines: list[Row] = []
    for worker in job.workers:
        state = short_name(job_pb2.WorkerState, worker.state)
        gpus = ", ".join(worker.gpus) if wide else str(len(worker.gpus) or "-")
        row: list[Cell | str] = [worker.name, worker.host, Cell(state, "36" if state == "RUNNING" else ""), gpus]
        if wide:
            row.append(str(worker.shim_pid or "-"))
        lines.append([*row, _ranks(worker.ranks)])
    return render(columns, lines, width=width, colour=colour) + _warm(job) + _bindings(job, wide=wide)


def _warm(job: job_pb2.CustomJob) -> str:
    """The state of each worker's warm start; nothing where none is asked for."""
    said = [f"{worker.name}: {worker.warm}" for worker in job.workers if worker.warm]
    return "".join(f"Warm start of {line}\n" for line in said)


def _bindings(job: job_pb2.CustomJob, *, wide: bool) -> str:
    """Bindings of the first ranks, or of all; nothing where the job asks for none."""
    bound = [(rank.rank, rank.binding) for each in job.workers for rank in each.ranks if rank.HasField("binding")]
    shown = bound if wide else bound[:_MOST]
    lines = [f"Rank {number}: {_binding(binding)}\n" for number, binding in shown]
    hidden = len(bound) - len(shown)
    return "".join(lines) + (f"{hidden} more ranks are bound; see them with -o wide\n" if hidden else "")


def _binding(binding: job_pb2.RankBinding) -> str:
    own = " of its own" if binding.exclusive else ""
    said = [f"CPUs {binding.cpus}{own}"] if binding.cpus else []
    said += [f"memory of node {binding.memory_nodes}"] if binding.memory_nodes else []
    said += [", ".join(binding.nics[:_MOST_NICS])] if binding.nics and binding.cpus else []
    return ", ".join(said) + (f"{'; ' if said else ''}{binding.note}" if binding.note else "")


def _ranks(ranks: Iterable[job_pb2.Rank]) -> str:
    return ", ".join(f"{r.rank} (pid {r.pid})" if r.pid else str(r.rank) for r in ranks) or "-"


def _exits(job: job_pb2.CustomJob, now: float, *, wide: bool, width: int | None, colour: bool) -> tuple[int, str]:
    lines = exit_table.rows(job.workers, now, wide=wide)
    if not lines:
        return 0, ""
    hidden = _hidden(lines, _MOST_EXITS, wide)
    return hidden, render(exit_table.columns(wide=wide), lines[hidden:], width=width, colour=colour)


def _hangs(job: job_pb2.CustomJob, now: float, *, wide: bool, width: int | None, colour: bool) -> tuple[int, str]:
    if not job.hangs:
        return 0, ""
    hidden = _hidden(job.hangs, _MOST, wide)
    columns = [Column("#", right=True), Column("GEN", right=True), Column("STILL SINCE"), Column("NOTICED")]
    columns += [Column("RULE"), Column("OUTCOME"), Column("SUSPECT", give=True)]
    lines: list[Row] = [
        [
            str(hang.number),
            str(hang.generation),
            clock(hang.since.seconds, now),
            f"after {span(seconds(hang.noticed_at) - seconds(hang.since))}",
            hang.rule,
            outcome_cell(hang),
            ", ".join(hang.suspects) or "-",
        ]
        for hang in job.hangs[hidden:]
    ]
    return hidden, render(columns, lines, width=width, colour=colour)


def _recoveries(
    job: job_pb2.CustomJob, now: float, *, wide: bool, width: int | None, colour: bool
) -> tuple[int, str]:
    if not job.recoveries:
        return 0, ""
    hidden = _hidden(job.recoveries, _MOST, wide)
    return hidden, recovery_table.table(job.recoveries[hidden:], now, width=width, colour=colour)


def _hidden(rows: Sized, most: int, wide: bool) -> int:
    """How many of the older rows are left out."""
    return 0 if wide else max(0, len(rows) - most)


def _error(job: job_pb2.CustomJob, *, width: int | None, colour: bool) -> Iterator[str]:
    if not job.HasField("error"):
        return
    yield ""
    failed = job.state != job_pb2.JOB_STATE_CANCELLED
    yield styled("Error" if failed else "End", "1;31" if failed else "1", colour=colour)
    message = one_line(end_of(job)) or failure(job)
    yield from textwrap.wrap(message, width or 1_000_000, initial_indent="  ", subsequent_indent="  ")
    if job.error.details:
        yield ""
        for line in job.error.details:
            yield styled("  │ ", "2", colour=colour) + spaced_line(line.rstrip("\r\n"))
