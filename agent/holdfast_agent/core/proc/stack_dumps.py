"""Reads what the stack dump tools print: py-spy's JSON and pystack's text.

py-spy qualifies functions by their class ("Queue.get") where the interpreter tells it (3.11 on), pystack never
does; here a function is its last name always, so that dumps of different tools and interpreters compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from holdfast.hang.evidence.evidence import Dump, ThreadStack, clipped, dump
from holdfast.hang.evidence.frames import Frame

MAX_LINE = 1024
"""Characters of a line of pystack's, whose names are the program's."""
_THREAD = re.compile(r"Traceback for thread (\d{1,9}) \((.*)\)(?: \[([^]]*)\])? \(most recent")
_FRAME = re.compile(r'\s+\((Python|C)\) File "(.*)", line (\d{1,9}), in (.*)')
_LIBRARY = re.compile(r"(.*?)(?: \(inlined\))?(?: \((/[^)]*|\?\?\?)\))?")
_TEMPLATE = re.compile(r"<(?!module|listcomp|genexpr|lambda|dictcomp|setcomp|locals).*")


def py_spy(text: str, pid: int) -> Dump:
    """Parse ``py-spy dump --json``. Raises ``ValueError`` for anything else."""
    try:
        threads = [_thread(item, pid) for item in json.loads(text)]
    except (AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"py-spy printed something unknown: {error!r}") from error
    return dump("py-spy", threads)


def _thread(item: dict[str, Any], pid: int) -> ThreadStack:
    # Without a native id of its thread the interpreter's name must do.
    tid = int(item.get("os_thread_id") or 0)
    name = str(item.get("thread_name") or "")
    frames = tuple(
        Frame(_last(str(frame["name"])), clipped(str(frame["filename"])), int(frame.get("line") or 0))
        for frame in item["frames"]
    )
    return ThreadStack(
        tid=tid,
        name=clipped(name, 80),
        frames=frames,
        main=tid == pid if tid else name == "MainThread",
        holds_gil=bool(item.get("owns_gil")),
        active=bool(item.get("active")),
    )


def _last(name: str) -> str:
    return clipped(name.rpartition(".")[2] or name, 120)


def pystack(text: str, pid: int) -> Dump:
    """Parse ``pystack remote``, with or without ``--native``. Raises ``ValueError`` if it lists no thread."""
    threads = [_pystack_thread(block, pid) for block in _blocks(text)]
    if not threads:
        raise ValueError("pystack printed no thread")
    return dump("pystack", threads)


def _blocks(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in (each[:MAX_LINE] for each in text.splitlines()):
        if line.startswith("Traceback for thread "):
            if block:
                yield block
            block = [line]
        elif block:
            block.append(line)
    if block:
        yield block


def _pystack_thread(block: list[str], pid: int) -> ThreadStack:
    head = _THREAD.match(block[0])
    tid, name, flags = (int(head[1]), head[2], head[3] or "") if head else (0, "", "")
    found = (_FRAME.fullmatch(line) for line in block[1:])
    frames = [_pystack_frame(match) for match in found if match]
    main = tid == pid
    return ThreadStack(tid, clipped(name, 80), tuple(reversed(frames)), main, "Has the GIL" in flags)


def _pystack_frame(match: re.Match[str]) -> Frame:
    kind, file, line, function = match.groups()
    if kind == "Python":
        return Frame(_last(function), clipped(file), int(line))
    # The library is of more use than "???", which stands where there is no debug information.
    named = _LIBRARY.fullmatch(function)
    symbol, library = (named[1], named[2] or file) if named else (function, file)
    worker = library if file == "???" else file
    return Frame(clipped(_TEMPLATE.sub("", symbol) or symbol, 120), clipped(worker), int(line))


def complaint(errors: str) -> str:
    """The one line of a tool's error output that says what is wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip(" \t💀")]
    for line in lines:
        if line.startswith(("Error:", "Engine error:")) or "rror:" in line:
            return clipped(line.strip("💀 ").removeprefix("Error:").strip())
    return clipped(lines[0].strip("💀 ")) if lines else ""
