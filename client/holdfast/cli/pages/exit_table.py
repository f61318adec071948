"""How ranks ended, with those that ended alike on one line: a gang that was stopped is one fact, not a thousand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast._base.proto_values import short_name
from holdfast._base.spans import spans_of
from holdfast.cli.kit.durations import clock
from holdfast.cli.kit.table import Cell, Column, Row
from holdfast.cli.pages.event_lines import exit_in_words
from holdfast.v1 import job_pb2

_STYLES = {"COMPLETED": "32", "STOPPED": ""}
_BAD = "31"


@dataclass(slots=True)
class _Alike:
    """Ranks of one generation that ended for the same reason and in the same way, in order of their ends."""

    generation: int
    reason: str
    text: str
    late: str
    ranks: list[int]
    worker: str
    ended: float | None


def columns(*, wide: bool) -> list[Column]:
    """Columns of the table; ranks are in the table of workers, so only ``wide`` repeats theirs."""
    worker = [Column("WORKER")] if wide else []
    return [
        Column("GEN", right=True),
        Column("RANK"),
        *worker,
        Column("ENDED"),
        Column("REASON"),
        Column("MESSAGE", give=True),
    ]


def rows(workers: Iterable[job_pb2.Worker], now: float, *, wide: bool) -> list[Row]:
    """A row for those that ended alike, or with ``wide`` for each rank; by generation, the first end first."""
    found = [(worker.name, exit_) for worker in workers for exit_ in worker.exits]
    found.sort(key=lambda pair: _when(pair[1]))
    groups: dict[object, _Alike] = {}
    for worker, exit_ in found:
        reason, text = _reason(exit_), _text(exit_)
        late = f"{_reason(exit_.late_exit)}: {_text(exit_.late_exit)}" if exit_.HasField("late_exit") else ""
        key = (exit_.generation, reason, text, late, exit_.rank if wide else None)
        ended = exit_.end_time.seconds if exit_.HasField("end_time") else None
        group = groups.setdefault(key, _Alike(exit_.generation, reason, text, late, [], worker, ended))
        group.ranks.append(exit_.rank)
    return [row for group in groups.values() for row in _rows(group, now, wide=wide)]


def _rows(group: _Alike, now: float, *, wide: bool) -> Iterable[Row]:
    worker = [group.worker] if wide else []
    ended = clock(group.ended, now) if group.ended is not None else "-"
    reason = Cell(group.reason, _STYLES.get(group.reason, _BAD))
    yield [str(group.generation), spans_of(group.ranks), *worker, ended, reason, group.text]
    if group.late:
        yield ["", "", *([""] if wide else []), "", "known later", group.late]


def _when(exit_: job_pb2.Exit) -> tuple[int, int, int, int]:
    return exit_.generation, exit_.end_time.seconds, exit_.end_time.nanos, exit_.rank


def _reason(exit_: job_pb2.Exit) -> str:
    return short_name(job_pb2.ExitReason, exit_.reason)


def _text(exit_: job_pb2.Exit) -> str:
    """The message, with the bare fact in front of it and the exception behind it where it does not tell them."""
    fact, number = exit_in_words(exit_), exit_.signal or exit_.exit_code
    told = not (exit_.HasField("signal") or exit_.HasField("exit_code")) or str(number) in exit_.message
    text = exit_.message if exit_.message and told else ": ".join(filter(None, (fact, exit_.message)))
    return text if not exit_.raised or exit_.raised in text else f"{text}; it raised {exit_.raised}"
