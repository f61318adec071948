"""The status page: a head, a few lines of counts, and what needs attention."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from holdfast._base.printable import one_line
from holdfast._base.proto_values import short_name
from holdfast.cli.kit import motd
from holdfast.cli.kit.console import OUT, coloured, say, styled
from holdfast.cli.kit.durations import age, span
from holdfast.cli.kit.table import cut, terminal_width
from holdfast.v1 import cluster_pb2

HOST_STATES = ("ready", "reserved", "cordoned", "draining", "drained", "going_down", "silent", "lost", "refused")
GPU_STATES = ("used", "free", "reserved", "unavailable", "unhealthy", "withheld")
JOB_STATES = ("RUNNING", "PENDING", "QUEUED", "PAUSED", "CANCELLING")
ENDED_STATES = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
NOTHING = "Nothing needs attention."
MUCH_BEHIND = 1_000
"""Events of the log; one that follows it is some behind whenever it is looked at."""
MOST_LINES = 3
"""Of one thing, on a terminal."""
_GREEN, _YELLOW, _RED = "32", "33", "31"
_STYLES = {
    "ready": _GREEN, "cordoned": _YELLOW, "draining": _YELLOW, "drained": _YELLOW, "going_down": _YELLOW,
    "silent": _RED, "lost": _RED, "refused": _RED,
    "free": _GREEN, "unavailable": _YELLOW, "unhealthy": _RED, "withheld": _RED,
    "RUNNING": _GREEN, "FAILED": _RED,
}  # fmt: skip
_URGENT = frozenset(
    {"HOST_LOST", "HOST_SILENT", "HOST_REFUSED", "HOST_THROTTLED", "WITHHELD", "GPU_FAULT", "HANG", "CERTIFICATE"}
)
_OWN_CERTIFICATE_S = 3 * 86_400.0


def write_status(
    found: cluster_pb2.GetStatusResponse, now: float, *, certificate_ends: float | None = None
) -> None:
    """The page on stdout. ``certificate_ends``: the caller's own, epoch seconds."""
    lines = page(found, now, certificate_ends=certificate_ends, width=terminal_width(), colour=coloured(OUT))
    say(*lines)


def page(
    found: cluster_pb2.GetStatusResponse,
    now: float,
    *,
    certificate_ends: float | None,
    width: int | None,
    colour: bool,
) -> Iterator[str]:
    """The page's lines, none longer than ``width`` unless that is ``None``."""
    yield from head(found, now, colour=colour)
    rows = [*rows_of(found, now), *_own_certificate(certificate_ends, now)]
    yield ""
    if found.HasField("motd"):
        for line in motd.lines(found.motd, now):
            yield from [line] if width is None else textwrap.wrap(line, width, subsequent_indent="  ")
        yield ""
    if not rows:
        nothing = "No hosts yet: holdfast host token create" if not sum(found.hosts.values()) else NOTHING
        yield styled(nothing, _GREEN if nothing == NOTHING else "", colour=colour)
        return
    yield styled("Needs attention", "1", colour=colour)
    yield from _table(rows, width, colour=colour)
    if found.attention_more:
        yield f"  … and {found.attention_more} more"


def head(found: cluster_pb2.GetStatusResponse, now: float, *, colour: bool) -> Iterator[str]:
    """Yield the cluster's name, and a line of counts each for hosts, GPUs, jobs and jobs that have ended."""
    up = span(now - found.started.seconds)
    head = f"  controller {found.version}, up {up}, term {found.epoch}"
    yield styled(found.cluster, "1", colour=colour) + head
    if found.HasField("leadership"):
        yield _leadership(found.leadership, colour=colour)
        for warning in _of_controllers(found.leadership):
            yield f"           {styled(warning, _YELLOW, colour=colour)}"
    yield _counts("hosts", sum(found.hosts.values()), found.hosts, HOST_STATES, colour=colour)
    yield _counts("GPUs", sum(found.gpus.values()), found.gpus, GPU_STATES, colour=colour)
    ended = {state: count for state, count in found.jobs.items() if state in ENDED_STATES}
    live = {state: count for state, count in found.jobs.items() if state not in ENDED_STATES}
    yield _counts("jobs", sum(live.values()), live, JOB_STATES, colour=colour)
    if any(ended.values()):
        yield _counts("ended", sum(ended.values()), ended, ENDED_STATES, colour=colour)


def _leadership(found: cluster_pb2.Leadership, *, colour: bool) -> str:
    """Such as ``  leads    ctl1; ctl2 stands by; PostgreSQL database holdfast at db1``."""
    others = ", ".join(one_line(each) for each in found.standbys)
    waits = f"{others} stand{'' if len(found.standbys) > 1 else 's'} by" if others else ""
    none = styled("none stands by", _YELLOW, colour=colour)
    head = styled("leads", "2", colour=colour)
    return f"  {head}    {one_line(found.leader)}; {waits or none}; {one_line(found.database)}"


def _of_controllers(found: cluster_pb2.Leadership) -> Iterator[str]:
    """Sentences about what would hurt at the next failover."""
    for each in found.standby_details:
        if each.behind_events > MUCH_BEHIND:
            yield f"{one_line(each.machine)} is {each.behind_events:,} events behind: its takeover reads them first"
        if each.differing_settings:
            keys = one_line(each.differing_settings)
            yield f"{one_line(each.machine)} has another controller.toml: {keys} (its log names all keys)"
    if found.risk:
        yield one_line(found.risk)


def _counts(title: str, total: int, counts: Mapping[str, int], order: Sequence[str], *, colour: bool) -> str:
    """Such as ``  hosts   12   10 ready, 2 lost``; what there is none of is left out."""
    states = [*order, *sorted(set(counts) - set(order))]
    parts = [
        styled(f"{counts[state]} {state.lower().replace('_', ' ')}", _STYLES.get(state, ""), colour=colour)
        for state in states
        if counts.get(state)
    ]
    return f"  {styled(f'{title:<6}', '2', colour=colour)}{total:>6}   {', '.join(parts)}".rstrip()


StatusRow = tuple[str, str, str, str]
"""Subject, since when, what, and the style of the subject."""


def rows_of(found: cluster_pb2.GetStatusResponse, now: float) -> Iterator[StatusRow]:
    """Yield a row for each thing that needs attention, the most urgent first."""
    for each in found.attention:
        kind = short_name(cluster_pb2.AttentionKind, each.kind)
        kind_of, _, name = each.subject.rpartition("/")
        since = age(now - each.since.seconds) if each.HasField("since") else ""
        subject = f"{kind_of} {name}".strip()
        yield one_line(subject), since, one_line(each.message), _RED if kind in _URGENT else _YELLOW


def _own_certificate(ends_at: float | None, now: float) -> Iterator[StatusRow]:
    if ends_at is not None and ends_at - now < _OWN_CERTIFICATE_S:
        left = "has ended" if ends_at <= now else f"ends in {span(ends_at - now)}"
        yield "you", "", f"your certificate {left}", _YELLOW


def _table(rows: Sequence[StatusRow], width: int | None, *, colour: bool) -> Iterator[str]:
    """Long names give way first, so that there is room for what is the matter."""
    most = 40 if width is None else max(16, width // 3)
    subjects = [cut(row[0], most) if width is not None else row[0] for row in rows]
    first, second = max(map(len, subjects)), max(len(row[1]) for row in rows)
    for subject, (_, since, message, style) in zip(subjects, rows, strict=True):
        left = f"{subject:<{first}}  {since:>{second}}  " if second else f"{subject:<{first}}  "
        texts = [message] if width is None else _wrapped(message, max(width - 2 - len(left), 20))
        yield "  " + styled(left[: len(subject)], style, colour=colour) + left[len(subject) :] + texts[0]
        yield from (" " * (2 + len(left)) + text for text in texts[1:])


def _wrapped(message: str, width: int) -> list[str]:
    return textwrap.wrap(message, width, max_lines=MOST_LINES, placeholder=" …") or [""]
