"""One task of a guarded command on a host that was logged in to: orders come on stdin, frames leave on stdout.

The guard that logs in sends lines of JSON: first the order, then signals. Its end, or that of the connection, is the
end of stdin, and counts as SIGHUP. Back come frames, which carry the output of the task and at last its exit status, so
that nothing that a rank prints can be taken for the guard's word.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast.errors import HoldfastError
from holdfast.guard.allocation import SEED_VARIABLE, Allocation
from holdfast.guard.run import ALL_SIGNALS, MAY_BE_IGNORED, NotStarted, Request, guarded

HEADER = struct.Struct(">BI")
"""The kind of a frame, and the bytes that follow."""
END, OUT, ERR = 0, 1, 2
CHUNK = 1 << 16
FRAME_BYTES = 1 << 20
OF_A_LOGIN = frozenset(
    {"DISPLAY", "HOME", "HOSTNAME", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM"}
)
OF_A_LOGIN |= {"TMPDIR", "USER", "XAUTHORITY", "_"}
OF_TASKS = ("SSH_", "XDG_", "DBUS_", "HOLDFAST_", "SLURM_", "PMI_", "OMPI_")
"""How variables begin that belong, as those above, to one machine, login or task."""


@dataclass(frozen=True, slots=True)
class Order:
    """The task of one host."""

    place: Allocation
    seed: str
    env: dict[str, str]
    folder: str
    options: dict[str, Any]
    """What the command line has read, for the request that is made of it there."""
    umask: int

    def line(self) -> bytes:
        """The order as one line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Order:
        """The order in a line."""
        said = json.loads(line)
        place = said["place"]
        place = Allocation(**{each.name: _tuple(place[each.name]) for each in fields(Allocation)})
        return cls(place, said["seed"], said["env"], said["folder"], said["options"], said["umask"])


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def shared_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program finds on every host as they are here."""
    return {
        name: value
        for name, value in environ.items()
        if name not in OF_A_LOGIN and not name.startswith(OF_TASKS) and name.isidentifier()
    }


def serve(request: Callable[[dict[str, Any]], Request]) -> None:
    """Do what stdin says, and return once the last frame was sent."""
    stdin = _taken(0)
    line, rest = _first_line(stdin)
    if not line:
        return  # another host can't start, for instance
    # Threads that are made from here on leave signals to this one, also when it blocks them at its end.
    relay = _Relay()
    for number in MAY_BE_IGNORED:  # stdin says when; the server of logins may have had this process ignore them
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_obey, args=(stdin, rest), daemon=True).start()
    relay.end(_guarded(Order.read(line), request))


def _guarded(order: Order, request: Callable[[dict[str, Any]], Request]) -> dict[str, Any]:
    os.environ.update(order.env)
    os.environ[SEED_VARIABLE] = order.seed
    os.umask(order.umask)
    try:
        os.chdir(order.folder)
        return {"status": guarded(request(order.options), order.place)}
    except NotStarted as error:
        problem: HoldfastError = error.problem
    except OSError as error:
        return {"problem": f"{order.folder}: {error.strerror}."}
    return {"problem": problem.message, "fix": problem.fix}


def _taken(descriptor: int) -> int:
    """The open file behind a standard descriptor, which becomes /dev/null."""
    kept = os.dup(descriptor)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, descriptor)
    os.close(null)
    return kept


def _first_line(stdin: int) -> tuple[bytes, bytes]:
    """The first line, and what was read beyond it; nothing where stdin ends before."""
    text = b""
    while b"\n" not in text:
        data = os.read(stdin, CHUNK)
        if not data:
            return b"", b""
        text += data
    line, _, rest = text.partition(b"\n")
    return line, rest


def _obey(stdin: int, text: bytes) -> None:
    """Give this process the signals that are asked for, and SIGHUP at the end of stdin."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
    while True:
        *lines, text = text.split(b"\n")
        for line in lines:
            os.kill(os.getpid(), int(json.loads(line)["signal"]))
        data = os.read(stdin, CHUNK)
        if not data:
            os.kill(os.getpid(), signal.SIGHUP)
            return
        text += data


class _Relay:
    """Takes over stdout and stderr of this process, and sends what is written there as frames."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel = os.dup(1)
        self._threads = []
        for descriptor in (OUT, ERR):
            reading, writing = os.pipe2(os.O_CLOEXEC)
            os.dup2(writing, descriptor)
            os.close(writing)
            self._threads.append(threading.Thread(target=self._pass_on, args=(reading, descriptor), daemon=True))
        for thread in self._threads:
            thread.start()

    def end(self, last: Mapping[str, Any]) -> None:
        """Send the rest of the output, then the last word."""
        for descriptor in (OUT, ERR):
            os.close(_taken(descriptor))
        for thread in self._threads:
            thread.join()
        self._send(END, json.dumps(last).encode())

    def _pass_on(self, reading: int, kind: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        while data := os.read(reading, CHUNK):
            self._send(kind, data)
        os.close(reading)

    def _send(self, kind: int, data: bytes) -> None:
        view = memoryview(HEADER.pack(kind, len(data)) + data)
        with self._lock:
            while view:
                try:
                    view = view[os.write(self._channel, view) :]
                except OSError:
                    return  # no one reads it any more; the end of stdin says so too
