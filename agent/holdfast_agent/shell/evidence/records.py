"""Reads the frameworks' own records: torch's flight recorder, and NCCL's RAS."""

from __future__ import annotations

import base64
import errno
import ipaddress
import json
import os
import stat
import sys
from collections.abc import Mapping

import anyio

from holdfast._base.codec import from_plain
from holdfast._base.printable import spaced_line
from holdfast.hang.evidence.flight_recorder import FlightRecord
from holdfast_agent.shell.evidence import flight_dump, rank_files
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.tools import Tools
from holdfast_agent.shim.processes import Process

RECORDER_S = 3.0
"""torch looks at its pipe about once a second."""
RECORDER_LOOK_S = 0.1
RECORDER_AGAIN_S = 0.5
RAS_S = 3.0
RAS_MAX_BYTES = 64 << 10
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
# Newest name first; what torch takes where none is set has changed over time and can't be relied on.
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_RAS = "NCCL_RAS_ADDR"


async def recorder(process: Process, environ: Mapping[str, str], blocking: Blocking) -> tuple[str, str]:
    """Have torch write its flight recorder. Returns (path of the dump, note); both empty where there is none."""
    stem, rank = environ.get(_PIPE, ""), environ.get("RANK", "")
    if not stem or not (rank.isascii() and rank.isdigit()):
        return "", ""
    target = next((environ[name] for name in _FILES if environ.get(name)), "")
    path = f"{target}{rank}"
    before = await blocking.read(_written, process.pid, path) or 0
    problem = await blocking.read(_ask, process.pid, f"{stem}{rank}.pipe")
    if problem is None:
        return "", ""
    if problem:
        return "", f"flight recorder: {problem}"
    if not target:
        return "", "flight recorder: asked for, written to where torch puts it"
    with anyio.move_on_after(RECORDER_S):
        while True:
            await anyio.sleep(RECORDER_LOOK_S)
            if (await blocking.read(_written, process.pid, path) or 0) > before:
                return path, ""
    return "", f"flight recorder: nothing was written within {RECORDER_S:g} s"


async def flight_record(
    process: Process, path: str, tools: Tools, blocking: Blocking
) -> tuple[FlightRecord, bytes]:
    """Read a dump, by a program that trusts nothing in it; never raises.

    Returns it twice: what is understood of it, and compressed by zlib as it is, empty where it is too large. A dump
    that can't be read may not be whole yet, so it is read once more.
    """
    found, whole = await _read_dump(process, path, tools, blocking)
    if found.problem:
        await anyio.sleep(RECORDER_AGAIN_S)
        found, whole = await _read_dump(process, path, tools, blocking)
    return found, whole


async def _read_dump(process: Process, path: str, tools: Tools, blocking: Blocking) -> tuple[FlightRecord, bytes]:
    try:
        uid = os.stat(f"/proc/{process.pid}").st_uid
    except OSError:
        return FlightRecord(problem="the rank has ended"), b""
    dump = await blocking.read(_open, process.pid, path)
    if not isinstance(dump, int):
        return FlightRecord(problem=dump or "its dump could not be opened in time"), b""
    try:
        command = [sys.executable, "-I", "-S", flight_dump.__file__, str(uid)]
        ran = await tools.run(command, name="the reader of its dump", given=dump)
    finally:
        os.close(dump)
    if ran.problem or ran.code != 0:
        return FlightRecord(problem=ran.problem or f"the reader of its dump ended with {ran.code}"), b""
    try:
        answer = json.loads(ran.output)
        whole = base64.b64decode(answer.pop("content", ""), validate=True)
        return from_plain(FlightRecord, answer), whole
    except (ValueError, RecursionError) as error:
        return FlightRecord(problem=f"its dump can't be read: {error}"), b""


def _open(pid: int, path: str) -> int | str:
    """A descriptor of a dump, or why there is none."""
    try:
        return rank_files.opened(pid, path, os.O_RDONLY)
    except OSError as error:
        return error.strerror or str(error)


def _ask(pid: int, pipe: str) -> str | None:
    """Write to the pipe. Returns what is wrong, empty where nothing is, None where there is no such pipe.

    Only a FIFO that belongs to the program's own user is written to.
    """
    try:
        handle = rank_files.opened(pid, pipe, os.O_WRONLY)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        return "no process reads its pipe" if error.errno == errno.ENXIO else f"its pipe: {error.strerror}"
    try:
        status = os.fstat(handle)
        if not stat.S_ISFIFO(status.st_mode) or status.st_uid != os.stat(f"/proc/{pid}").st_uid:
            return "its pipe is no FIFO of the rank's own"
        os.write(handle, b"1\n")
    except OSError as error:
        return f"its pipe: {error.strerror}"
    finally:
        os.close(handle)
    return ""


def _written(pid: int, path: str) -> int:
    """When a file was last written, in nanoseconds; 0 where there is none, or nothing in it."""
    try:
        status = rank_files.status(pid, path)
    except OSError:
        return 0
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) and status.st_size else 0


async def ras(environ: Mapping[str, str]) -> tuple[str, str]:
    """NCCL's status of the job, as text. Returns (text, note); both empty where no NCCL listens."""
    host, _, port = environ.get(_RAS, "").rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536) or not _is_loopback(host):
        return "", ""
    received = b""
    try:
        with anyio.move_on_after(RAS_S) as scope:
            async with await anyio.connect_tcp(host, int(port)) as stream:
                await stream.send(b"verbose status\n")
                while len(received) < RAS_MAX_BYTES:
                    try:
                        received += await stream.receive(RAS_MAX_BYTES - len(received))
                    except anyio.EndOfStream:
                        break
    except (OSError, anyio.BrokenResourceError) as error:
        refused = isinstance(error, ConnectionRefusedError) or isinstance(error.__cause__, ConnectionRefusedError)
        return _text(received), "" if refused or received else f"NCCL RAS: {error}"
    late = scope.cancelled_caught and not received
    return _text(received), f"NCCL RAS did not answer within {RAS_S:g} s" if late else ""


def _is_loopback(host: str) -> bool:
    # The variable may be the user's, and the agent connects to nothing else on anybody's word.
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return "\n".join(map(spaced_line, text.split("\n")))
