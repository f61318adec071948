"""How often hosts fail, and how long they are out then, in words and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast.cli.kit.durations import age, clock
from holdfast.cli.kit.table import Cell, Column, Row

if TYPE_CHECKING:
    from google.protobuf import duration_pb2

    from holdfast.v1 import cluster_pb2, host_pb2

COLUMNS = (
    Column("HOST", give=True),
    Column("FAILURES", right=True),
    Column("MTBF"),
    Column("MTTR"),
    Column("IN SERVICE", right=True),
    Column("REMARK", give=True),
)
_SURELY = 1.05
"""From such a lower bound on the controller prefers a host's equals."""
_WORDS = {
    "lost": "lost",
    "rebooted": "rebooted",
    "gpu": "GPU condemned",
    "ranks": "ranks lost to it",
    "finding": "ill hardware",
}


def rows(hosts: Iterable[cluster_pb2.HostReliability]) -> list[Row]:
    """The lemons first, then those with most failures."""
    ordered = sorted(hosts, key=lambda h: (not h.reliability.lemon, -h.reliability.failures, h.name))
    return [_row(each.name, each.reliability) for each in ordered]


def _row(name: str, found: host_pb2.Reliability) -> Row:
    remark = Cell("lemon", "31") if found.lemon else ""
    shown = age(seconds(found.in_service))
    return [name, str(found.failures), _mtbf(found) or "-", _mttr(found) or "-", shown, remark]


def sentences(name: str, found: host_pb2.Reliability, now: float) -> Iterator[str]:
    """Yield the lines of one host's page; none where nothing is known."""
    if not found.HasField("since"):
        return
    served = f"in {age(seconds(found.in_service))} of service since {clock(found.since.seconds, now)}"
    kinds = ", ".join(f"{count} {one_line(_WORDS.get(kind, kind))}" for kind, count in sorted(found.kinds.items()))
    count = "1 failure" if found.failures == 1 else f"{found.failures or 'no'} failures"
    yield f"{count} {served}" + (f": {kinds}" if kinds else "")
    if mtbf := _mtbf(found):
        yield f"MTBF {mtbf}" + (f", MTTR {_mttr(found)}" if found.repairs else "")
    if found.lemon:
        yield (
            f"a lemon: it fails {found.ratio:.1f} times as often as the others, at least {found.ratio_low:.1f} times"
            f" (surprise {found.surprise:.0f} bits);"
            f" after a repair: holdfast host uncordon {one_line(name)} --repaired"
        )
    elif found.ratio_low >= _SURELY:
        yield (
            f"fails {found.ratio:.1f} times as often as the others, at least {found.ratio_low:.1f} times: of equal"
            " hosts the others get new work first"
        )


def _mtbf(found: host_pb2.Reliability) -> str:
    if not found.HasField("mtbf_low"):
        return ""
    return _interval(found.mtbf, found.mtbf_low, found.mtbf_high) if found.failures else f"> {_age(found.mtbf_low)}"


def _mttr(found: host_pb2.Reliability) -> str:
    return _interval(found.mttr, found.mttr_low, found.mttr_high) if found.repairs else ""


def _interval(mean: duration_pb2.Duration, low: duration_pb2.Duration, high: duration_pb2.Duration) -> str:
    """Such as ``12d (5d-40d)``."""
    return f"{_age(mean)} ({_age(low)}-{_age(high)})"


def _age(given: duration_pb2.Duration) -> str:
    return age(seconds(given))
