"""Targets within this process: readers of what workers, and whatever sits in a shim's place, leave or send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.engine import Target, text

from holdfast.hang.pipeline.step_count import LineCounts
from holdfast.training import progress_calls, progress_file
from holdfast_agent.core.launch import pip_config
from holdfast_agent.core.proc import descriptors, proc_text, stack_dumps
from holdfast_agent.core.proc.output_lines import LineCutter
from holdfast_agent.shell.containers import podman
from holdfast_agent.shell.evidence import flight_dump, processes
from holdfast_agent.shell.output.log_reader import LogFile, Wanted
from holdfast_agent.shell.packages import installer
from holdfast_agent.shell.prepare import hooks
from holdfast_agent.shell.shims import orphans, shim_files
from holdfast_agent.shell.shims.shim_link import READ_BYTES, ShimLink
from holdfast_agent.shim import error_file, shim, worker
from holdfast_agent.shim.link import Link


def of_workers(folder: Path) -> Iterator[Target]:
    """Targets whose inputs workers choose; the files that they need lie in ``folder``."""
    path = folder / "file"

    def from_file(read: Any) -> Any:
        def call(data: bytes) -> None:
            path.write_bytes(data)
            read(path)

        return call

    exception = json.dumps({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "…"}}}).encode()
    yield Target(
        "error files", from_file(lambda path: error_file.raised(os.fsencode(path))), (exception,), 1 << 19, (),
        (b'"message":', b'{"message":', b"[[")
    )  # fmt: skip
    progress = bytearray(progress_calls.SIZE)
    progress[:8] = progress_calls.MAGIC
    marks = bytearray(progress)
    progress_calls.MARKS.pack_into(marks, progress_calls.MARKS_AT, 0, 0, 9, 8, 7, 1, 1, 1)
    yield Target(
        "progress files",
        from_file(lambda path: progress_file.read(str(path), 0)),
        (bytes(progress), bytes(marks)),
        1 << 12,
        (),
        (struct.pack("<d", float("inf")), b"\xff" * 8),
    )
    yield Target("log reads", from_file(_read_log), (b"a line\n" * 20, b"\0" * 9, b"no end"), 1 << 20)
    yield Target("output lines", lambda data: LineCutter().feed(data), (b"step=1\rstep=2\n",), 1 << 18)
    bars = LineCounts()

    def bar(data: bytes) -> None:
        bars.take(0, text(data))
        bars.shown()

    yield Target(
        "progress bars",
        bar,
        (b"  5%|5    | 50/1000 [00:05<01:40,  9.4it/s]", b"Epoch 3: 1/9 [00:01<00:02]"),
        1 << 18,
        (),
        (b" [00:01", b"/", b"1" * 20),
    )
    spied = json.dumps(
        [{"pid": 1, "thread_id": 5, "thread_name": "MainThread", "os_thread_id": 1, "active": True, "owns_gil": True,
          "frames": [{"name": "f", "filename": "/x.py", "module": None, "short_filename": "x.py", "line": 3}]}]
    ).encode()  # fmt: skip
    stack = b"Traceback for thread 7 (python) [Has the GIL] (most recent call last):\n"
    stack += b'    (C) File "a.c", line 3, in f (x.so)\n'
    yield Target(
        "py-spy's stacks", lambda data: stack_dumps.py_spy(text(data), 1), (spied,), 1 << 17, (ValueError,)
    )
    yield Target("pystack's stacks", lambda data: stack_dumps.pystack(text(data), 1), (stack,), 1 << 17, (ValueError,),
                 (b"(Python) File ", b" (inlined)", b" (???)", b"Traceback for thread "))  # fmt: skip
    yield Target("complaints of tools", lambda data: stack_dumps.complaint(text(data)), (b"Error: x",), 1 << 16)
    dump = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 2}},
        "entries": [{"collective_seq_id": 2, "process_group": ("0", "default_pg"), "profiling_name": "nccl:all_reduce",
                     "state": "started", "time_created_ns": 5, "input_sizes": [[2]], "output_sizes": [[2]]}],
    }  # fmt: skip
    yield Target(
        "flight recorders",
        lambda data: flight_dump.summary(flight_dump.decoded(data), 5.0),
        (pickle.dumps(dump, 2), json.dumps(dump).encode()),
        1 << 16,
        flight_dump._PROVOKED,
        (b"cos\nsystem\n", b"\x8c\x01a", b"(", b"l", b"d", b".", b"\x94", b'"entries":[', b'"ranks":"['),
        stall_s=flight_dump.CPU_S,  # a program of its own, which the kernel ends after that
    )

    def said(data: bytes) -> None:
        hooks._last_line(data)
        installer.tail(data)
        podman._reason(text(data), 1)

    yield Target(
        "words of programs", said, (b"Error: no\n", b"  x Failed to build `a`\n"), 1 << 17, (), (b"\x1b[31m",)
    )

    def pip(data: bytes) -> None:
        found = pip_config.options([("/etc/pip.conf", text(data))], {"PIP_INDEX_URL": text(data)[:2000]})
        sources = pip_config.Sources.of(found, {}, "/home/a")
        sources.uv_toml()
        sources.hide(text(data)[:4000])

    settings = b"[global]\nindex-url = https://u:p@x/simple\n[install]\nno-deps = yes\n"
    words = (b"[global]\n", b"https://", b"@", b"%(a)s", b"=", b"\n ")
    yield Target("pip's settings", pip, (settings,), 1 << 14, (pip_config.PipConfigError,), words)
    yield Target("names of processes", _parse_proc, (b"py thon", b") S 1 ("), 1 << 14, (), (b")", b"(", b" "))

    def an_environment(data: bytes) -> None:
        proc_text.world_in(data)
        orphans._generation(data)
        processes.rank_in({"RANK": text(data)})

    own = (b"HOLDFAST_GENERATION=7", b"RANK=0\0WORLD_SIZE=2\0MASTER_PORT=1\0", b"7")
    names = (b"WORLD_SIZE=", b"RANK=", b"\0", b"HOLDFAST_GENERATION=")
    yield Target("environments of processes", an_environment, own, 1 << 17, (), names)
    yield Target(
        "descriptors of processes", lambda data: descriptors.link_of(text(data[:4096])), (b"socket:[7]",), 4096
    )
    yield _shim_orders()
    yield _shim_reports()


def _parse_proc(data: bytes) -> None:
    """A process may choose its name and its arguments, and nothing else of these files."""
    proc_text.parse_command(data)
    name = data[:64].replace(b"\0", b"")
    proc_text.parse_stat(b"7 (%b) S 1 7 7 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 1 0 99 1 2" % name + b" 0" * 30)


def _read_log(path: Path) -> None:
    data = path.read_bytes()
    for wanted in (
        Wanted(),
        Wanted(tail_lines=3),
        Wanted(offset=len(data) + 9),
        Wanted(1, 10_000, 5),
        Wanted(since_ms=1),
    ):
        log = LogFile(str(path), wanted)
        while log.read(1 << 16)[1]:
            pass


def _shim_orders() -> Target:
    """A shim's end of its socket: what an agent may send."""
    made = object.__new__(shim.Shim)
    assigned = object.__new__(worker.Worker)

    def call(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        link = Link(ours.detach())
        theirs.setblocking(False)
        sent = 0
        try:
            while True:
                with _blocked():
                    sent += theirs.send(data[sent : sent + (1 << 16)])
                lines = link.receive() or []
                for line in lines:
                    for made.worker in (None, assigned):
                        made.order(json.loads(line))
                if sent >= len(data) and not lines:
                    return
        finally:
            link.close()
            theirs.close()

    seeds = (
        b'{"op":"assign","dir":"/x"}\n',
        b'{"op":"stop","generation":1,"grace_s":3,"reason":"x"}\n',
        b'{"op":"signal","generation":1,"signal":"SIGTERM"}\n{"op":"renew","generation":1,"deadline":5}\n',
    )
    return Target(
        "shim: orders", call, seeds, 1 << 19, worker.BAD_ORDER, (b'"op":', b"\n", b"[[", b'"generation":')
    )


def _blocked() -> Any:
    return contextlib.suppress(BlockingIOError)


def _shim_reports() -> Target:
    """The agent's end: what a shim, or something in its place, may answer."""
    loop = asyncio.new_event_loop()

    def call(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        heard: list[Any] = []
        ours.setblocking(False)

        def take(message: Any) -> None:
            heard.append(message)
            # As ``Shims`` does.
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                shim_files.record_from(message)

        link = ShimLink(ours, take, lambda: None)
        theirs.setblocking(False)
        sent = 0
        try:
            while sent < len(data) and link._open:
                with _blocked():
                    sent += theirs.send(data[sent : sent + (1 << 16)])
                link._read()
        finally:
            link.close()
            theirs.close()

    async def within(data: bytes) -> None:
        call(data)

    seeds = (
        b'{"ev":"hello","version":1}\n',
        b'{"ev":"exited","generation":1,"rank":0,"status":256,"reason":"NONZERO_EXIT","message":"","end_time":1.5,'
        b'"stderr_tail":["a"]}\n{"ev":"empty"}\n',
        b'{"ev":"started","rank":0,"pid":5,"start_ticks":7}\n',
    )
    return Target(
        "shim: reports",
        lambda data: loop.run_until_complete(within(data)),
        seeds,
        READ_BYTES,  # in one turn of the loop; what follows has its own
        (),
        (b'"ev":', b"\n", b"[[", b'"status":', b"[]\n", b"1\n"),
        close=loop.close,
    )
