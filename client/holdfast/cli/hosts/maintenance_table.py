"""Planned maintenance as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli.kit.console import say
from holdfast.cli.kit.durations import clock, span
from holdfast.cli.kit.table import Cell, Column, Row, write
from holdfast.v1 import host_pb2

_COLUMNS = (
    Column("HOST", give=True),
    Column("BEGINS"),
    Column("ENDS"),
    Column("WORK"),
    Column("BY"),
    Column("REASON", give=True),
)


def write_maintenance(hosts: Sequence[host_pb2.Host], now: float) -> None:
    """The table on stdout, or a hint on stderr where nothing is planned."""
    if not hosts:
        say("No maintenance is planned. Plan some: holdfast host drain HOST --at 22:00 --for 2h", err=True)
        return
    lines: list[Row] = []
    for host in hosts:
        plan = host.maintenance
        begins = Cell("under way", "33") if plan.begun else Cell(clock(plan.start.seconds, now))
        ends = clock(plan.end.seconds, now) if plan.HasField("end") else "when uncordoned"
        lines.append([Cell(host.name, "1"), begins, ends, _work(plan), plan.by, plan.reason or "-"])
    write(list(_COLUMNS), lines)


def in_words(host: host_pb2.Host, now: float) -> str:
    """``from 22:00:00 to 23:00:00 by ann: new disk``; empty where none is planned."""
    if not host.HasField("maintenance"):
        return ""
    plan = host.maintenance
    begin = "under way" if plan.begun else f"from {clock(plan.start.seconds, now)}"
    end = f" to {clock(plan.end.seconds, now)}" if plan.HasField("end") else " until it is uncordoned"
    why = f": {plan.reason}" if plan.reason else ""
    return f"{begin}{end}, by {plan.by}{why}"


def _work(plan: host_pb2.Maintenance) -> str:
    if not plan.drain:
        return "runs on"
    if plan.at_checkpoint:
        return "moves at a checkpoint"
    if not plan.HasField("deadline"):
        return "is waited for"
    after = plan.deadline.seconds
    return f"moves after {span(after)}" if after else "moves at once"
