"""One frame of the live screen as lines of text: pure, for any size of terminal.

Below ``TALL`` lines there is one list at a time, above it jobs and hosts are shown together. Only rows in view are
drawn, whatever there is. Words are those of ``status``, ``ps``, ``host list`` and ``job show``, from their functions.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line, styled_line
from holdfast.cli.cluster.status_page import NOTHING, head
from holdfast.cli.hosts.host_tables import free_gpus, remark, state_cell
from holdfast.cli.kit import motd
from holdfast.cli.kit.console import styled
from holdfast.cli.kit.durations import age, span
from holdfast.cli.kit.table import Cell, Column, Row, cell_len, cut, render
from holdfast.cli.pages import job_page, job_tables
from holdfast.cli.pages.gang import gpus_of
from holdfast.cli.top.board import HOST_ORDERS, JOB_ORDERS, Board, Group, Pane, load_of
from holdfast.cli.top.keys import HELP
from holdfast.v1 import host_pb2, job_pb2

TALL = 40
MOST_DETAILS = 9
"""Lines about the chosen row where a short list leaves them."""
MOTD_TALL = 4
"""Lines of the message of the day on a tall terminal; one on any other."""
LEAST_ROOM = 5
"""Lines of a list: its title, its columns, and three rows. Details and alerts above it give way to them."""
LEAST = (40, 12)
"""Columns and lines of the smallest terminal that something can be seen in."""
_SGR = re.compile("\x1b\\[[0-9;]*m")
_DIM, _BOLD, _RED, _REVERSED = "2", "1", "31", "7"
_BARS = "▁▂▃▄▅▆▇█"
_ASCII = str.maketrans({"…": "~", "·": ".", "–": "-", "↑": "^", "↓": "v", "─": "-", "—": "-", "×": "x"})


@dataclass(frozen=True)
class Look:
    """The terminal: its size, and whether it takes colours and characters beyond ASCII."""

    width: int
    height: int
    colour: bool
    unicode: bool


def frame(board: Board, now: float, look: Look) -> list[str]:
    """The lines of one frame: at most ``look.height``, none wider than ``look.width``."""
    lines = [*_lines(board, now, look)] if (look.width, look.height) >= LEAST and look.height >= LEAST[1] else []
    if not lines:
        lines = [f"Needs {LEAST[0]}×{LEAST[1]} or more."]
    return [_fitted(line, look) for line in lines[: look.height]]


def _fitted(line: str, look: Look) -> str:
    """The line as the terminal may be sent it; nothing in it drives the terminal but colours of ours."""
    line = styled_line(line, colour=look.colour)
    bare = _SGR.sub("", line)
    line = line if cell_len(bare) <= look.width else cut(bare, look.width)
    if look.unicode:
        return line
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in line.translate(_ASCII))


def _lines(board: Board, now: float, look: Look) -> Iterator[str]:
    top = [*_head(board, now, look)]
    details = 0 if board.helps else 3 if look.height < 30 else 4 if look.height < TALL else 6
    room = look.height - len(top) - details - 2
    given = min(details, max(0, LEAST_ROOM - room))
    details, room = details - given, room + given
    if look.height < TALL and not board.helps:
        # What a short list leaves, by the number of its rows alone: lines stay in place as the chosen row moves.
        spare = room - _alerts_shown(board, now, look) - 2 - max(1, len(board.keys(board.pane, now)))
        more = min(max(spare, 0), MOST_DETAILS - details)
        details, room = details + more, room - more
    if board.helps:
        body = _help(look)
    elif look.height >= TALL:
        body = [*_together(board, now, look, room)]
    else:
        body = [*_alone(board, now, look, room)]
    yield from top
    yield from body[:room]
    yield from [""] * (room - len(body))
    yield from _details(board, now, look, details)  # of the row that was just chosen
    yield _keys(board, look)


def _head(board: Board, now: float, look: Look) -> Iterator[str]:
    if board.status is not None:
        lines = [*head(board.status, now, colour=look.colour)]
        yield from lines if look.height >= TALL else lines[:4]
        if board.status.HasField("motd"):
            said = [*motd.lines(board.status.motd, now)]
            short = f"message of the day: {one_line(board.status.motd.text)}"
            yield from said[:MOTD_TALL] if look.height >= TALL else [cut(short, look.width)]
    if board.away is not None:
        why, since = board.away
        yield styled(f"No answer for {span(now - since)}: {one_line(why)}", _RED, colour=look.colour)
    elif board.problem:
        yield styled(one_line(board.problem), _RED, colour=look.colour)


def _alone(board: Board, now: float, look: Look, room: int) -> Iterator[str]:
    """Yield the most urgent alerts in few lines, and the list that the user has chosen."""
    shown = min(_alerts_shown(board, now, look), max(0, room - LEAST_ROOM))
    if shown:
        yield from _alert_table(board, now, look, board.alert_rows(now)[:shown])[1:]
    for pane in Pane:
        if pane is not board.pane:
            board.heights[pane] = 0
    yield from _list(board, board.pane, now, look, room - shown)


def _alerts_shown(board: Board, now: float, look: Look) -> int:
    """Alerts above another list."""
    return 0 if board.pane is Pane.ALERTS else min(len(board.alert_rows(now)), 2 if look.height < 30 else 4)


def _together(board: Board, now: float, look: Look, room: int) -> Iterator[str]:
    """Yield all three lists, each with the lines that it needs, at most a share of what there is."""
    alerts, hosts = len(board.alert_rows(now)), len(board.host_rows())
    for_alerts = min(alerts, max(3, room // 6)) + 3 if alerts else 3
    for_hosts = min(max(hosts, 1) + 2, (room - for_alerts) * 2 // 5)
    for_jobs = min(max(len(board.jobs), 1) + 3, room - for_alerts - for_hosts)
    yield from _list(board, Pane.ALERTS, now, look, for_alerts)
    yield from _list(board, Pane.JOBS, now, look, for_jobs)
    yield from _list(board, Pane.HOSTS, now, look, room - for_alerts - for_jobs)


def _list(board: Board, pane: Pane, now: float, look: Look, room: int) -> Iterator[str]:
    """Yield a title, the names of columns and the rows in view, in exactly ``room`` lines."""
    keys = board.keys(pane, now)
    height = max(1, room - 2)
    top, chosen = board.settle(pane, keys, height)
    yield _title(board, pane, len(keys), look)
    if not keys:
        yield from [f"  {_nothing(board, pane)}"[: look.width]] * (room > 1)
        yield from [""] * (room - 2)
        return
    match pane:
        case Pane.JOBS:
            lines = _job_table(board, now, look, board.job_rows()[top : top + height])
        case Pane.HOSTS:
            lines = _host_table(board, now, look, board.host_rows()[top : top + height])
        case Pane.ALERTS:
            lines = _alert_table(board, now, look, board.alert_rows(now)[top : top + height])
    if pane is board.pane:
        at = 1 + chosen - top
        bare = ">" + _SGR.sub("", lines[at])[1:]
        lines[at] = styled(bare + " " * (look.width - cell_len(bare)), _REVERSED, colour=look.colour)
    yield from lines
    yield from [""] * (room - 1 - len(lines))


def _title(board: Board, pane: Pane, count: int, look: Look) -> str:
    """Such as ``── Jobs ── 200 of more, by urgency, with 'ann'``; the chosen list is bold."""
    titles = (pane,) if look.height >= TALL else tuple(Pane)
    names = []
    for each in titles:
        number = list(Pane).index(each) + 1
        name = f"{number} {each.value}"
        names.append(f"[{name}]" if each is board.pane else f" {name} ")
    text = "".join(names)
    parts = [f"{count}+" if pane is Pane.JOBS and board.more_jobs else str(count)]
    if pane is Pane.JOBS:
        parts.append(
            {Group.ALL: "all", Group.RUNNING: "running", Group.WAITING: "waiting"}.get(board.group, "ended")
        )
        parts.append(f"by {JOB_ORDERS[board.orders[pane]][0]}")
    elif pane is Pane.HOSTS:
        parts.append(f"by {HOST_ORDERS[board.orders[pane]][0]}")
        parts.append("GPUs: ▁–█ load, ? load unknown, · free, ! faulty" if look.unicode else _LEGEND)
    if board.search[pane]:
        parts.insert(1, f"with {one_line(board.search[pane])!r}")
    text = cut(f"{text}  {', '.join(parts)}", look.width)
    return styled(text, _BOLD if pane is board.pane else _DIM, colour=look.colour)


_LEGEND = "GPUs: 0-9 load in tenths, ? load unknown, . free, ! faulty"


def _nothing(board: Board, pane: Pane) -> str:
    if board.search[pane]:
        return "No row matches; Esc shows all."
    match pane:
        case Pane.ALERTS:
            return NOTHING
        case Pane.HOSTS:
            return "No hosts yet: holdfast host token create"
        case Pane.JOBS if board.group is Group.ALL:
            return "No jobs yet. Start one: holdfast run -- python train.py"
        case Pane.JOBS:
            return "No job matches; f shows others."


def _table(columns: Sequence[Column], rows: Sequence[Row], look: Look) -> list[str]:
    text = render(columns, rows, width=look.width - 2, colour=look.colour)
    return [f"  {line}" for line in text.splitlines()]


def _job_table(board: Board, now: float, look: Look, jobs: Sequence[job_pb2.CustomJob]) -> list[str]:
    wide, wider = look.width >= 120, look.width >= 160
    projects = wide and any(job_tables.project_of(job) != "default" for job in jobs)
    columns = [
        Column("ID", give=True),
        *([Column("NAME", give=True)] if wider else []),
        Column("STATE"),
        Column("GPUS", right=True),
        Column("STEP", right=True),
        Column("GOODPUT", right=True),
        *([Column("AGE", right=True), Column("OWNER", give=True)] if wide else []),
        *([Column("PROJECT", give=True)] if projects else []),
        Column("HEALTH", give=True),
    ]
    rows: list[Row] = [
        [
            Cell(job.id, _BOLD),
            *([job.display_name] if wider else []),
            job_tables.state_cell(job.state),
            str(job.gpu_count or gpus_of(job.job_spec) or "-"),
            job_tables.steps(job) or "-",
            _goodput(board, job),
            *([age(now - job.create_time.seconds), job.owner] if wide else []),
            *([job_tables.project_of(job)] if projects else []),
            job_tables.reason(job),
        ]
        for job in jobs
    ]
    return _table(columns, rows, look)


def _goodput(board: Board, job: job_pb2.CustomJob) -> str:
    known = board.goodput.get(job.id)
    return "-" if known is None or known.share is None else f"{100 * known.share:.1f} %"


def _host_table(board: Board, now: float, look: Look, hosts: Sequence[host_pb2.Host]) -> list[str]:
    wide = look.width >= 120
    columns = [
        Column("HOST", give=True),
        Column("STATE"),
        Column("GPUS"),
        Column("LOAD", right=True),
        Column("FREE", right=True),
        *([Column("WORKERS", right=True), Column("JOBS", give=True)] if wide else []),
        Column("REMARK", give=True),
    ]
    rows: list[Row] = []
    for host in hosts:
        load, gpus = load_of(board, host), host.inventory.gpus
        rows.append(
            [
                Cell(host.name, _BOLD),
                state_cell(host),
                Cell(gpu_cells(board, host, look), _RED if any(gpu.problem for gpu in gpus) else ""),
                "-" if load is None else f"{load:.0f} %",
                free_gpus(host) if gpus else "-",
                *([str(host.workers), ", ".join(host.job_ids) or "-"] if wide else []),
                remark(host, now),
            ]
        )
    return _table(columns, rows, look)


def gpu_cells(board: Board, host: host_pb2.Host, look: Look) -> str:
    """A character for each GPU of a host: its load, or why there is none."""
    return "".join(_gpu(gpu, board.load.get(gpu.uuid), look) for gpu in host.inventory.gpus) or "-"


def _gpu(gpu: host_pb2.Gpu, load: float | None, look: Look) -> str:
    if gpu.problem:
        return "!"
    if not gpu.job_id:
        return "·"
    if load is None:
        return "?"
    share = min(max(load / 100, 0.0), 0.999)
    return _BARS[int(share * len(_BARS))] if look.unicode else str(int(share * 10))


def _alert_table(board: Board, now: float, look: Look, alerts: Sequence[object]) -> list[str]:
    columns = (Column("SUBJECT", give=True), Column("SINCE", right=True), Column("MESSAGE", give=True))
    shown = [alert for alert in board.alert_rows(now) if alert in alerts]
    return _table(columns, [(Cell(a.subject, a.style), a.since, a.message) for a in shown], look)


def _details(board: Board, now: float, look: Look, most: int) -> Iterator[str]:
    """Yield a rule, and in ``most`` lines what is known of the chosen row."""
    kind, name = board.target(now)
    lines: list[str] = []
    if kind == "job" and name in board.jobs:
        job = board.jobs[name]
        facts = [(title, text) for title, text in job_page.sentences(job) if text]
        if job.HasField("expected_end"):
            facts.insert(1, ("ends", job.expected_end.words))
        for least in ("done", "happened"):
            if len(facts) > most:
                facts = [fact for fact in facts if fact[0] != least]
        lines = [*_facts(facts, look, most)]
    elif kind == "host" and name in board.hosts:
        lines = [*_facts(_of_host(board, board.hosts[name], now), look, most)]
    if board.pane is Pane.ALERTS:
        alerts = {alert.key: alert for alert in board.alert_rows(now)}
        if alert := alerts.get(board.chosen.get(Pane.ALERTS, "")):
            lines = [*_facts([(alert.subject, alert.message)], look, most)]
    rule = cut(f"── {one_line(name)} " if name else "──", look.width)
    yield styled(rule + "─" * (look.width - cell_len(rule)), _DIM, colour=look.colour)
    yield from lines[:most]
    yield from [""] * (most - len(lines))


def _of_host(board: Board, host: host_pb2.Host, now: float) -> list[tuple[str, str]]:
    gpus = host.inventory.gpus
    models = ", ".join(dict.fromkeys(gpu.model for gpu in gpus))
    return [
        ("remark", remark(host, now) or "nothing is the matter"),
        ("jobs", ", ".join(host.job_ids) or "none"),
        ("GPUs", f"{len(gpus)} × {models}, {free_gpus(host)} free" if gpus else "none"),
        ("agent", f"{host.agent_version} at {host.address}"),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(host.labels.items()))),
    ]


def _facts(facts: Sequence[tuple[str, str]], look: Look, most: int) -> Iterator[str]:
    """Yield each fact on one line; where lines are left over, those that need more have them."""
    room = max(20, look.width - 14)
    spare = most - len(facts)
    for title, text in facts:
        lines = textwrap.wrap(one_line(text), room, max_lines=1 + max(spare, 0), placeholder=" …") or [""]
        spare -= len(lines) - 1
        yield styled(f"  {cut(one_line(title), 10):<10}", _DIM, colour=look.colour) + f"  {lines[0]}"
        yield from (" " * 14 + line for line in lines[1:])


def _help(look: Look) -> list[str]:
    lines = [styled("Keys", _BOLD, colour=look.colour)]
    for keys, what in HELP:
        wrapped = textwrap.wrap(what, max(20, look.width - 28))
        lines.append(f"  {keys:<23}  {wrapped[0]}")
        lines += [" " * 27 + line for line in wrapped[1:]]
    return lines


def _keys(board: Board, look: Look) -> str:
    if board.typing is not None:
        return cut(f"/{one_line(board.typing)}_", look.width)
    if board.note:
        return cut(one_line(board.note), look.width)
    short = "q leave  Tab list  / text  s sort  f jobs  Enter show  l logs  t stacks  ? keys"
    return styled(cut(short, look.width), _DIM, colour=look.colour)
