"""``holdfast`` in a shell under test, without what most of each start is: its imports (``starts.py``).

The command on the shell's ``PATH`` is a small program that has the test start the real one, with its own arguments,
environment, folder and streams, and ends as that one does.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

LAUNCHER = """#!{python} -IS
import _signal, _socket, os, sys  # small parts of modules that take longer to import than the rest to run
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)
words = [os.getcwdb(), b"%d" % (len(sys.argv) - 1), *map(os.fsencode, sys.argv[1:])]
body = bytes(1).join([*words, *(name + b"=" + value for name, value in os.environb.items())])
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
door = _socket.socket(_socket.AF_UNIX)
door.connect({path!r})
door.sendmsg([len(body).to_bytes(4, sys.byteorder)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while body:
    body = body[door.send(body):]
status = int(door.recv(20) or 1)
if status < 0:
    _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@contextlib.contextmanager
def command(folder: Path) -> Iterator[Path]:
    """Makes ``folder`` with the command ``holdfast`` in it, which works until the test leaves."""
    folder.mkdir()
    path, program = folder / "door", folder / "holdfast"
    with socket.socket(socket.AF_UNIX) as doors:
        doors.bind(str(path))
        doors.listen()
        program.write_text(LAUNCHER.format(python=sys.executable, path=str(path)))
        program.chmod(0o755)
        threading.Thread(target=_serve, args=(doors,), daemon=True).start()
        try:
            yield folder
        finally:
            doors.shutdown(socket.SHUT_RDWR)


def _serve(doors: socket.socket) -> None:
    with contextlib.suppress(OSError):  # once it is shut
        while True:
            door, _ = doors.accept()
            threading.Thread(target=_start, args=(door,), daemon=True).start()


def _start(door: socket.socket) -> None:
    """Run what a launcher asks for and tell it how that ended; a launcher that is gone ends it."""
    with door:
        head, streams, _, _ = socket.recv_fds(door, 4, 3)
        with door.makefile("rb") as sent:
            cwd, count, *words = sent.read(int.from_bytes(head, sys.byteorder)).split(b"\0")
        arguments, variables = words[: int(count)], words[int(count) :]
        try:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("holdfast"), *map(os.fsdecode, arguments)],
                cwd=cwd,
                env=dict(os.fsdecode(variable).split("=", 1) for variable in variables),
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
            )
        finally:
            for stream in streams:
                os.close(stream)
        with process, _ended(process) as ended:
            ready, _, _ = select.select([ended, door.fileno()], [], [])
            if ended in ready:
                door.sendall(str(process.wait()).encode())
            else:
                process.terminate()


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """A descriptor that can be read from once a child has ended."""
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
