"""Reads the files that a shim leaves on disk: the shim's identity, and the records of a generation's journal.

Nothing here trusts a pid by itself: a shim is named by pid, start time and boot.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import Exit, ExitReason, RankBinding, decode_status, raised_in
from holdfast_agent.shell.base import host_errors
from holdfast_agent.shim import processes


@dataclass(frozen=True, slots=True)
class Intent:
    """The generation was to be launched; without one it provably never was."""

    generation: int
    ranks: tuple[int, ...]
    boot_id: str
    gpus: tuple[str, ...] = ()
    """UUIDs; those of a shim of before this was written are not known."""
    bindings: tuple[tuple[int, RankBinding], ...] = ()
    """Rank and what it was to be bound to."""


@dataclass(frozen=True, slots=True)
class Forking:
    """Ranks are forked from here on, so some may have run."""


@dataclass(frozen=True, slots=True)
class Started:
    """A rank was forked. `start_ticks` 0: could not be read."""

    rank: int
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """A stop was ordered; the first one's reason is the one that exits carry."""

    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Empty:
    """No process of the generation is left."""


Record = Intent | Forking | Started | Stopping | Exit | Empty


def record_from(fields: Mapping[str, Any]) -> Record | None:
    """A record from a journal's line or from the message of the same kind; None for kinds unknown here.

    Raises KeyError, TypeError or ValueError where a known kind lacks what it must have.
    """
    match fields["ev"]:
        case "intent":
            return Intent(
                int(fields["generation"]),
                tuple(map(int, fields["ranks"])),
                str(fields["boot_id"]),
                tuple(map(str, fields.get("gpus", ()))),
                tuple((int(rank), _binding(each)) for rank, each in fields.get("bindings", {}).items()),
            )
        case "forking":
            return Forking()
        case "started":
            return Started(int(fields["rank"]), int(fields["pid"]), int(fields["start_ticks"]))
        case "stopping":
            return Stopping(str(fields["reason"]), float(fields["grace_s"]))
        case "exited":
            return _exit(fields)
        case "empty":
            return Empty()
    return None


def _binding(fields: Mapping[str, Any]) -> RankBinding:
    return RankBinding(
        str(fields["cpus"]),
        bool(fields["exclusive"]),
        str(fields["memory_nodes"]),
        tuple(map(str, fields["nics"])),
        str(fields["note"]),
    )


def _exit(fields: Mapping[str, Any]) -> Exit:
    status = None if fields["status"] is None else int(fields["status"])
    exit_code, signal, core_dumped = decode_status(status)
    message = str(fields["message"])
    return Exit(
        attempt=0,
        generation=int(fields["generation"]),
        rank=int(fields["rank"]),
        reason=_reason(str(fields["reason"]), status),
        exit_code=exit_code,
        signal=signal,
        core_dumped=core_dumped,
        message=message,
        end_time=float(fields["end_time"]),
        stderr_tail=tuple(map(str, fields["stderr_tail"])),
        raised=str(fields["raised"]) if "raised" in fields else raised_in(message),
        host_fault=fields.get("errno", 0) in host_errors.ERRNOS,  # a shim of an earlier release says none
    )


def _reason(name: str, status: int | None) -> ExitReason:
    """The reason of that name; for one that only a newer shim knows, what the status says."""
    if name in ExitReason.__members__:
        return ExitReason[name]
    if status is None:
        return ExitReason.LOST_SHIM_DIED
    if status & 0x7F:
        return ExitReason.SIGNALED
    return ExitReason.NONZERO_EXIT if status else ExitReason.COMPLETED


def read_journal(path: Path) -> list[Record]:
    """The records of one generation, in order, without a torn tail; [] when there is no such file.

    A line whose checksum fails ends the journal: it and whatever follows never happened. Kinds written by a newer
    shim are passed over. Raises OSError, and ValueError for a sound line that is no record.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    *lines, _torn = data.split(b"\n")
    records: list[Record] = []
    generation = 0
    for number, line in enumerate(lines, 1):
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % binascii.crc32(text):
            break
        try:
            record = record_from({"generation": generation, **json.loads(text)})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error!r}") from error
        if isinstance(record, Intent):
            generation = record.generation
        if record is not None:
            records.append(record)
    return records


@dataclass(frozen=True, slots=True)
class ShimId:
    """A shim, for all time: its pid, and the boot and start time (clock ticks) that make it unique."""

    pid: int
    start_ticks: int
    boot_id: str


def read_shim_id(path: Path) -> ShimId | None:
    """The shim that wrote a `shim.json`; None when there is none, or a power cut has left nothing in it.

    Raises OSError, and ValueError for other content.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    if not text.strip("\0"):
        return None
    try:
        fields = json.loads(text)
        return ShimId(int(fields["pid"]), int(fields["start_ticks"]), str(fields["boot_id"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error!r}") from error


def boot_id() -> str:
    """The boot id of the running kernel."""
    return processes.boot_id()


def start_ticks(pid: int) -> int | None:
    """When the process was started; None when there is none of that pid, or only its zombie."""
    try:
        process = processes.Process(pid)
    except OSError:
        return None
    return None if process.dead else process.start_ticks


def is_alive(shim_id: ShimId) -> bool:
    """Whether this very process still runs."""
    return shim_id.boot_id == boot_id() and start_ticks(shim_id.pid) == shim_id.start_ticks
