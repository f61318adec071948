"""A host's history: a table of its own, and the newest part on the host's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.cli.kit.console import Console, styled
from holdfast.cli.kit.durations import local
from holdfast.cli.kit.table import Column, Row, render, write
from holdfast.v1 import host_pb2

RECENT = 8
"""Events on the host's page."""


def kind_of(entry: host_pb2.ListedHostEvent) -> str:
    """The kind's name in the contract, such as ``gpu_condemned``; empty where this client doesn't know it."""
    return entry.event.WhichOneof("kind") or ""


def _title(entry: host_pb2.ListedHostEvent) -> str:
    return "".join(part.capitalize() for part in kind_of(entry).split("_")) or "-"


def write_events(entries: Sequence[host_pb2.ListedHostEvent], *, wide: bool) -> None:
    """A host's history as a table."""
    if not entries:
        Console().note("no events.")
        return
    columns = [Column("TIME"), Column("EVENT"), Column("MESSAGE", give=True)]
    if wide:
        columns.insert(0, Column("CURSOR", right=True))
    lines: list[Row] = []
    for entry in entries:
        row: Row = [local(entry.time.seconds), _title(entry), entry.message]
        lines.append([str(entry.cursor), *row] if wide else row)
    write(columns, lines)


def recent_events(
    name: str, entries: Sequence[host_pb2.ListedHostEvent], *, width: int | None, colour: bool
) -> Iterator[str]:
    """Yield the lines of the newest part of a history; ``name`` is the host's."""
    yield styled("Recently", "1", colour=colour)
    lines: list[Row] = [[local(entry.time.seconds), entry.message] for entry in entries]
    room = None if width is None else width - 2
    for line in render(
        [Column("TIME"), Column("MESSAGE", give=True)], lines, width=room, colour=colour
    ).splitlines():
        yield "  " + line
    if len(entries) >= RECENT:
        yield f"  more: holdfast host events {name}"
