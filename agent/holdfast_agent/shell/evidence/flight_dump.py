"""Reads a dump of torch's flight recorder on stdin: ``python -I -S flight_dump.py UID``, a program of its own.

A dump is a pickle (JSON in some releases) that the rank's own user has written, so nothing in it is trusted: no name
is ever looked up, and memory, time and size are bounded. As root it gives its rights up before it decodes a byte.
Prints one JSON object, the fields of ``holdfast.hang.evidence.flight_recorder.FlightRecord``. Standard library only.

Formats 1.x to 2.10 are known (torch 2.3 to 2.13): ``entries`` of collectives with their process group, number and
state; ``pg_config`` with the ranks of each group; ``pg_status`` with the last number that was completed.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import re
import resource
import stat
import sys
import time
import zlib
from typing import Any

MOST_BYTES = 32 << 20
KEPT_BYTES = 256 << 10
"""Compressed; a larger dump is read and not kept."""
MEMORY_BYTES = 1 << 30
CPU_S = 4
NOBODY = 65534
MOST_GROUPS = 16
MOST_TEXT = 200
MOST_SPANS = 2048
BEFORE, AFTER = 3, 4
"""Collectives that are kept before and after the oldest unfinished one, beside the newest."""
MOST_SENDS = 8
_PROVOKED = (
    *(pickle.UnpicklingError, ValueError, EOFError, LookupError, AttributeError, TypeError),
    *(ArithmeticError, MemoryError, RecursionError, ImportError),
)
"""Raised for a dump that is cut off, damaged or made to do harm."""


class _Plain(pickle.Unpickler):
    """Makes containers, text and numbers, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:MOST_TEXT])

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside")


def read(handle: int, uid: int) -> bytes:
    """The file's content. Raises ``OSError`` unless it is a regular file of that user's, and not too big."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
        raise OSError("its dump is no file of the rank's own")
    if status.st_size > MOST_BYTES:
        raise OSError(f"its dump is larger than {MOST_BYTES >> 20} MiB")
    with open(handle, "rb", closefd=False) as file:
        return file.read(MOST_BYTES)


def decoded(data: bytes) -> Any:
    """The dump as plain values. Raises whatever the content provokes."""
    if data.lstrip()[:1] == b"{":
        return json.loads(data)
    return _Plain(io.BytesIO(data)).load()


# --- What is kept of it -------------------------------------------------------------------------------------------


def summary(dump: Any, now_s: float) -> dict[str, Any]:
    """The fields of a ``FlightRecord``. Raises ``ValueError`` for what is no dump."""
    if not isinstance(dump, dict) or not isinstance(dump.get("entries", []), list | tuple):
        raise ValueError("it holds no entries")
    members, completed = _members(dump.get("pg_config")), _completed(dump.get("pg_status"))
    every = [entry for entry in dump.get("entries", []) if isinstance(entry, dict)]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in every:
        groups.setdefault(_group(entry), []).append(entry)
    found = [_of_group(key, entries, members.get(key[0], []), completed, now_s) for key, entries in groups.items()]
    found.sort(key=lambda group: (group["open"] is None and not group["sends"], -group["last"]))
    return {
        "version": _text(dump.get("version", "")),
        "groups": found[:MOST_GROUPS],
        "groups_cut": max(0, len(found) - MOST_GROUPS),
        "quiet_s": min((_age_s(entry, now_s) for entry in every), default=0.0),
    }


def _group(entry: dict[str, Any]) -> tuple[str, str]:
    """Name and description."""
    named = entry.get("process_group")
    if isinstance(named, list | tuple) and len(named) == 2:
        return _text(named[0]), _text(named[1])
    return _text(entry.get("pg_id", "") if named is None else named), ""


def _of_group(
    key: tuple[str, str],
    entries: list[dict[str, Any]],
    members: list[tuple[int, int]],
    completed: dict[str, int],
    now_s: float,
) -> dict[str, Any]:
    by_number: dict[int, list[dict[str, Any]]] = {}
    sends = []
    for entry in entries:
        if _is_send(entry):
            if not (_finished(entry) or entry.get("retired")):
                sends.append(entry)
        else:
            by_number.setdefault(_number(entry), []).append(entry)
    done = max((completed.get(_text(entry.get("pg_id", ""))) or 0 for entry in entries[-1:]), default=0)
    numbers = sorted(by_number)
    unfinished = [n for n in numbers if n > done and not all(map(_finished, by_number[n]))]
    oldest = unfinished[0] if unfinished else None
    last = numbers[-1] if numbers else 0
    at = last if oldest is None else oldest
    kept = [n for n in numbers if at - BEFORE <= n <= at + AFTER or n == last]
    return {
        "name": key[0],
        "description": key[1],
        "ranks": members,
        "last": last,
        "open": oldest,
        "operations": [_operation(n, by_number[n], now_s, done=n <= done) for n in kept],
        "sends": [_operation(_whole(e.get("p2p_seq_id")), [e], now_s) for e in sends[:MOST_SENDS]],
    }


def _operation(number: int, entries: list[dict[str, Any]], now_s: float, *, done: bool = False) -> dict[str, Any]:
    """One collective; several entries of one number are a coalesced one."""
    entry = entries[-1]
    alone = len(entries) == 1
    name = _name(entry) if alone else "coalesced"
    states = set() if done else {str(each.get("state")) for each in entries if not _finished(each)}
    state = next((state for state in ("scheduled", "started") if state in states), "completed")
    return {
        "number": number,
        "name": name,
        "state": state,
        "age_s": _age_s(entry, now_s),
        "inputs": _shapes(entry, "input") if alone else "",
        "outputs": _shapes(entry, "output") if alone else "",
        "place": _place(entry.get("frames")),
    }


def _finished(entry: dict[str, Any]) -> bool:
    """Whether it is over. One of gloo's is called scheduled for good, and where two end at once the older one may stay
    the last that was completed; but each is retired.
    """
    gloo = _text(entry.get("profiling_name", "")).startswith("gloo:")
    return entry.get("state") == "completed" or (gloo and bool(entry.get("retired")))


def _age_s(entry: dict[str, Any], now_s: float) -> float:
    return round(max(0.0, now_s - _whole(entry.get("time_created_ns")) / 1e9), 3)


def _number(entry: dict[str, Any]) -> int:
    return _whole(entry.get("collective_seq_id", entry.get("seq_id")))


def _is_send(entry: dict[str, Any]) -> bool:
    return bool(entry.get("is_p2p")) or _name(entry).startswith(("send", "recv"))


def _name(entry: dict[str, Any]) -> str:
    """``all_reduce`` of ``nccl:all_reduce``."""
    return _text(entry.get("profiling_name", "")).partition(":")[2] or _text(entry.get("profiling_name", ""))


def _shapes(entry: dict[str, Any], side: str) -> str:
    """Such as ``Float[3, 4]``."""
    sizes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    sizes = sizes if isinstance(sizes, list | tuple) else ()
    types = types if isinstance(types, list | tuple) else ()
    parts = []
    for index, size in enumerate(sizes[:16]):
        kind = _text(types[index]) if index < len(types) else ""
        shape = [_whole(n) for n in size[:8]] if isinstance(size, list | tuple) else []
        parts.append(f"{kind}{shape}")
    more = [f"and {len(sizes) - 16} more"] if len(sizes) > 16 else []
    return _text(", ".join([*parts, *more]))


def _place(frames: Any) -> str:
    """The innermost frame outside libraries, such as ``train.py:80 `step```."""
    for frame in frames if isinstance(frames, list | tuple) else ():
        file = str(frame.get("filename", "")) if isinstance(frame, dict) else ""
        if file and "site-packages" not in file and "/lib/python" not in file and not file.startswith("<"):
            return _text(f"{os.path.basename(file)}:{_whole(frame.get('line'))} `{frame.get('name', '')}`")
    return ""


def _members(config: Any) -> dict[str, list[tuple[int, int]]]:
    """Ranks of each group as spans, first and last; none of a group with too many."""
    found = {}
    for name, group in config.items() if isinstance(config, dict) else ():
        told = group.get("ranks") if isinstance(group, dict) else group
        if isinstance(told, str):
            told = re.findall(r"\d{1,9}", told)
        ranks = sorted({_whole(rank) for rank in told}) if isinstance(told, list | tuple) else []
        spans: list[tuple[int, int]] = []
        for rank in ranks:
            if spans and rank == spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], rank)
            else:
                spans.append((rank, rank))
        if spans and len(spans) <= MOST_SPANS:
            found[_text(name)] = spans
    return found


def _completed(status: Any) -> dict[str, int]:
    """The last completed collective by the id of its group, where it is recorded."""
    told = status.items() if isinstance(status, dict) else ()
    return {
        _text(key): _whole(each.get("last_completed_collective")) for key, each in told if isinstance(each, dict)
    }


def _text(value: object) -> str:
    line = "".join(c if c.isprintable() else " " for c in str(value)[:MOST_TEXT])
    return line.encode("utf-8", "replace").decode()


def _whole(value: object) -> int:
    """The number that a value is, or says; 0 for anything else."""
    try:
        return int(value) if isinstance(value, int | float | str) else 0
    except (ValueError, OverflowError):
        return 0


def main(uid: int) -> dict[str, Any]:
    try:
        data = read(sys.stdin.fileno(), uid)
    except OSError as error:
        return {"problem": error.strerror or str(error)}
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    kept = zlib.compress(data)
    whole = {"content": base64.b64encode(kept).decode()} if len(kept) <= KEPT_BYTES else {}
    try:
        return {**summary(decoded(data), time.time()), **whole}
    except _PROVOKED as error:
        return {"problem": _text(f"its dump can't be read: {type(error).__name__}: {error}"), **whole}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]))))
