"""A process that has imported a program and forks it on request. ``starts.py`` runs it: ``starter.py SOCKET PROGRAM``.

A fork is the child of the process that asked, as one that was executed would be (``CLONE_PARENT``), and before the
program's first line everything else is what an exec and a new interpreter would have made of it: descriptors, session,
folder, arguments and environment (those in ``/proc`` too), streams and ``sys``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import struct
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

FIRST = {
    "holdfast": (
        *("holdfast.cli.app", "holdfast.client", "holdfast.spec.parse.text", "holdfast._sdk.json_view"),
        *("holdfast._sdk.bundle_calls", "anyio._backends._asyncio", "yaml"),
    ),
    "holdfast_agent": (
        *("holdfast_agent.shell.config", "holdfast_agent.shell.main.daemon"),
        *("holdfast._daemon.metrics.exposition", "holdfast._daemon.metrics.connection"),
        *("holdfast._daemon.limits", "holdfast._security.dns", "holdfast._base.extras", "argparse"),
        *("anyio._backends._asyncio", "uvloop", "encodings.idna"),
    ),
    "holdfast_controller": (
        *("holdfast_controller.shell.base.config", "holdfast_controller.shell.main.server"),
        *("holdfast._daemon.metrics.exposition", "holdfast._daemon.metrics.connection"),
        *("holdfast_controller.shell.web.page_listener", "holdfast_controller.shell.rest.listener"),
        *("holdfast_controller.shell.enrolment.authority", "holdfast_controller.shell.enrolment.service"),
        *("holdfast_controller.shell.enrolment.rotation", "holdfast_controller.shell.rest.health"),
        *("holdfast._daemon.limits", "holdfast._daemon.instance_lock", "holdfast.spec.parse.proto"),
        *("cryptography.hazmat.backends.openssl.backend", "uvicorn.lifespan.off"),
        *("sqlalchemy.dialects.sqlite", "anyio._backends._asyncio", "uvloop", "encodings.idna"),
    ),
}
"""What is imported ahead, by program: what each start of it, or most of them, would import."""

FOLDERS = {"holdfast": ("holdfast.cli",)}
"""Packages whose modules are all imported ahead."""

NOT = ("holdfast.cli.top",)
"""Their modules that aren't, with those below them: few commands need them, and they are slow."""

CLONE_PARENT = 0x8000
CLONE3 = 435
CLONE_NEWNET = 0x40000000
PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 15, 35, 14

libc = ctypes.PyDLL(None, use_errno=True)  # one that keeps the interpreter's lock, as os.fork does


def main() -> None:
    door, program = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    # As the daemons set it: gRPC reads it when it is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    import_ahead(program)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit(f"to import {program} has started threads: it can't be forked")
    gc.collect()
    gc.freeze()
    request = None
    with contextlib.suppress(KeyboardInterrupt):
        request = serve(door)
    if request is not None:
        run(request)  # in a fork


def trial() -> None:
    """Fork once, and say the child's pid; its exit status is 0 where this kernel lets it become another program."""
    pid = fork()
    if pid == 0:
        possible = False
        with contextlib.suppress(OSError):
            _show(["trial"], {})
            possible = True
        os._exit(not possible)
    print(pid)


def import_ahead(program: str) -> None:
    for name in FIRST.get(program, ()):
        importlib.import_module(name)
    for folder in FOLDERS.get(program, ()):
        package = importlib.import_module(folder)
        for module in pkgutil.walk_packages(package.__path__, f"{folder}."):
            if not module.name.startswith(NOT):
                importlib.import_module(module.name)


def serve(door: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until nobody can ask any more. Returns the request in a fork, and None in this process."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(door, 4, 250)
        if not head:
            return None
        (size,) = struct.unpack("I", head)
        request: dict[str, Any] = json.loads(_exactly(door, size))
        if fork() == 0:
            door.detach()  # its number may soon be something else's
            become(request, descriptors)
            return request
        for descriptor in descriptors:
            os.close(descriptor)


def _exactly(door: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if not (part := door.recv(size - len(parts))):
            sys.exit("a request ended in the middle")
        parts += part
    return bytes(parts)


def fork() -> int:
    """As ``os.fork``, but the child is one of this process's parent."""
    arguments = struct.pack("11Q", CLONE_PARENT, *[0] * 10)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(libc.syscall(ctypes.c_long(CLONE3), arguments, ctypes.c_size_t(len(arguments))))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")
    return pid


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Make of this fork what an exec makes of a child, and tell its pid to who waits for it."""
    if request["session"]:
        os.setsid()
    if request["network"]:
        _enter(request["network"])
    answer = _take(descriptors, request["descriptors"])
    os.chdir(request["cwd"])
    coerced = {
        name: value for name, value in os.environ.items() if name == "LC_CTYPE"
    }  # by the interpreter: PEP 538
    os.environ.clear()
    os.environ.update(request["env"] | coerced)
    _show(request["shown"], request["env"])
    libc.prctl(PR_SET_NAME, os.fsencode(request["name"])[:15])
    sys.orig_argv = request["shown"]
    sys.argv = request["argv"]
    sys.path[0] = request["path"]
    _open_streams()
    os.write(answer, str(os.getpid()).encode())
    os.close(answer)


def _enter(network: str) -> None:
    """Go over to a network namespace, as ``nsenter`` does."""
    descriptor = os.open(network, os.O_RDONLY)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns", network)
    os.close(descriptor)


def _take(received: list[int], wanted: list[int]) -> int:
    """Put what was received at the numbers ``wanted`` and close all else; returns where one more was put, the last."""
    first = max([*received, *wanted]) + 1
    aside = []
    for number, descriptor in enumerate(received):
        os.dup2(descriptor, first + number)
        aside.append(first + number)
    os.closerange(0, first)
    for descriptor, number in zip(aside, wanted, strict=False):
        os.dup2(descriptor, number, inheritable=True)
    answer = aside[-1]
    os.closerange(first, answer)
    os.closerange(answer + 1, os.sysconf("SC_OPEN_MAX"))
    return answer


_ADDRESSES = (
    *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"),
    *("arg_start", "arg_end", "env_start", "env_end", "auxv"),
)


class _Map(ctypes.Structure):
    """``struct prctl_mm_map``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _ADDRESSES),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


_shown: list[object] = []


def _show(arguments: list[str], environment: dict[str, str]) -> None:
    """Have ``/proc`` show these arguments and this environment, as of a program that was executed with them."""
    words = b"".join(os.fsencode(word) + b"\0" for word in arguments)
    pairs = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    held = ctypes.create_string_buffer(words + pairs)
    _shown.append(held)
    start = ctypes.addressof(held)
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    libc.sbrk.restype = ctypes.c_void_p
    code, data = (int(stat[23]), int(stat[24])), (int(stat[42]), int(stat[43]))
    new = _Map(
        *(*code, *data, int(stat[44]), libc.sbrk(0), int(stat[25])),
        *(start, start + len(words), start + len(words), start + len(words + pairs), 0, 0, 0xFFFFFFFF),
    )
    if libc.prctl(
        PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(new), ctypes.c_ulong(ctypes.sizeof(new)), ctypes.c_ulong(0)
    ):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP)")


def _open_streams() -> None:
    """New ones on what are now the descriptors 0, 1 and 2, as the interpreter opens them."""
    at_once = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.write_through  # PYTHONUNBUFFERED
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, bare = getattr(sys, name), at_once and number > 0
        buffer: Any = open(number, "wb" if number else "rb", buffering=0 if bare else -1, closefd=False)  # noqa: SIM115
        (buffer if bare else buffer.raw).name = f"<{name}>"
        lines = not at_once and (number == 2 or os.isatty(number))
        new = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", line_buffering=lines, write_through=at_once)
        new.mode = "w" if number else "r"  # type: ignore[misc]
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def run(request: dict[str, Any]) -> None:
    """The program, from its first line; the interpreter ends with it."""
    sys.modules["__main__"] = ModuleType("__main__")
    sys.modules["__main__"].__annotations__ = {}
    status: int | None = None
    try:
        if request["module"]:
            runpy._run_module_as_main(request["module"])  # type: ignore[attr-defined]
        else:
            runpy.run_path(request["argv"][0], run_name="__main__")
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code
    leave(status or 0)


def leave(status: int) -> None:
    """End as the interpreter does, but for taking every module apart, for which a fork copies all that it shares.

    Returns where a stream can't be written to any more, and the interpreter has to say so.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status & 0xFF)


if __name__ == "__main__":
    trial() if len(sys.argv) == 1 else main()
