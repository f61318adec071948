"""A stand-in for the agent: starts real shims, speaks their protocol, ends whatever a test has left."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.warm.warm_jobs import HASTY

from holdfast_agent.shell.shims.shim_files import Record, read_journal
from holdfast_agent.shim import shim as shim_program

PATIENCE_S = 180.0
FAILPOINTS = "from holdfast_agent.shim import failpoints\nfailpoints._DIRECTORY = {folder!r}"  # for `hasty`
Message = dict[str, Any]


class Shim:
    """One shim and at most one connection to it."""

    def __init__(self, directory: Path, program: str = shim_program.__file__) -> None:
        self.directory = directory
        self.out = directory.parent
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", program, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        self._take(ours)

    def _take(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = b""
        self._lines: list[Message] = []

    def send(self, **message: object) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def assign(self) -> Message:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.send(op="assign", dir=str(self.directory))
        return self.expect("hello")

    def connect(self) -> Message:
        """A new connection, over a path that may be longer than a socket's address."""
        directory = os.open(self.directory, os.O_RDONLY)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{directory}/sock")
        os.close(directory)
        self.connection.close()
        self._take(connection)
        return self.expect("hello")

    def hang_up(self) -> None:
        self.connection.close()

    def receive(self, timeout_s: float = PATIENCE_S) -> Message | None:
        """The next message; None at the end of the connection; TimeoutError when nothing comes."""
        deadline = time.monotonic() + timeout_s
        while not self._lines:
            if not select.select([self.connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the shim says nothing")
            try:
                data = self.connection.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            self._lines = [json.loads(line) for line in lines]
        return self._lines.pop(0)

    def expect(self, kind: str, timeout_s: float = PATIENCE_S) -> Message:
        """The next message, which has to be of this kind."""
        message = self.receive(timeout_s)
        assert message is not None and message["ev"] == kind, message
        return message

    def until(self, kind: str, timeout_s: float = PATIENCE_S) -> list[Message]:
        """All messages up to the first of this kind, that one included."""
        messages: list[Message] = []
        while not messages or messages[-1]["ev"] != kind:
            message = self.receive(timeout_s)
            assert message is not None, f"the connection ended after {messages}"
            messages.append(message)
        return messages

    def rank(self, *argv: str, rank: int = 0, generation: int = 1, env: dict[str, str] | None = None) -> Message:
        stem = f"{self.out}/g{generation}.r{rank}"
        return {
            "rank": rank,
            "argv": list(argv),
            "env": {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} if env is None else env,
            "cwd": str(self.out),
            "stdout": stem + ".out",
            "stderr": stem + ".err",
        }

    def order(self, generation: int, *ranks: Message, **fields: object) -> Message:
        order = {"generation": generation, "ranks": list(ranks), "uid": None, "gid": None, "groups": None}
        return {"op": "launch", **order, "umask": 0o22, "core_bytes": 0, **fields}

    def launch(self, generation: int, *ranks: Message, **fields: object) -> None:
        self.send(**self.order(generation, *ranks, **fields))

    def run(self, *argv: str, **fields: object) -> Message:
        """Launches one rank as generation 1 and returns its exit."""
        self.launch(1, self.rank(*argv), **fields)
        return self.until("exited")[-1]

    def sh(self, script: str, rank: int = 0, generation: int = 1) -> Message:
        return self.rank("/bin/sh", "-c", script, rank=rank, generation=generation)

    def python(self, script: str, rank: int = 0, generation: int = 1) -> Message:
        return self.rank(sys.executable, "-I", "-S", "-c", script, rank=rank, generation=generation)

    def output(self, rank: int = 0, generation: int = 1) -> str:
        return Path(f"{self.out}/g{generation}.r{rank}.out").read_text()

    def await_output(self, rank: int = 0, generation: int = 1) -> str:
        """What a rank has written, once it ends a line."""
        file = Path(f"{self.out}/g{generation}.r{rank}.out")
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
        return self.output(rank, generation)

    def stop(self, generation: int = 1, grace_s: float = 10.0, reason: str = "STOPPED") -> None:
        self.send(op="stop", generation=generation, grace_s=grace_s, reason=reason)

    def journal(self, generation: int = 1) -> list[Record]:
        return read_journal(self.directory / f"g{generation}.journal")

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def clean_up(self) -> None:
        """Everything below the shim is killed by the shim itself, then the shim."""
        try:
            if self.process.poll() is None and (self.directory / "shim.json").exists():
                self.connect()
                self.stop(generation=1 << 30, grace_s=0.0)
                self.until("empty")
        finally:
            self.connection.close()
            self.process.kill()
            self.process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.01)


def process_exists(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[0] not in "ZX" or int(fields[17]) > 1  # its main thread may have ended before others


@pytest.fixture
def start_shim(tmp_path: Path) -> Iterator[Callable[..., Shim]]:
    """Starts shims; each is one of its own directory unless told otherwise."""
    shims: list[Shim] = []

    def start(directory: Path | None = None, **options: str) -> Shim:
        shim = Shim(directory or tmp_path / "worker", **options)
        shims.append(shim)
        return shim

    yield start
    for shim in shims:
        shim.clean_up()


@pytest.fixture
def hasty(start_shim: Callable[..., Shim], tmp_path: Path) -> Callable[..., Shim]:
    """Starts a shim whose waits are short."""

    def start(more: str = "", directory: Path | None = None) -> Shim:
        folder = str(Path(shim_program.__file__).parents[2])
        program = tmp_path / "hasty_shim.py"
        program.write_text(HASTY.format(folder=folder, more=more))
        shim = start_shim(directory, program=str(program))
        shim.assign()
        return shim

    return start


@pytest.fixture
def altered(tmp_path: Path) -> Callable[[str, str, str], str]:
    """Makes a shim program with a fault in one of its files: one piece of its text put in place of another."""

    def alter(file: str, text: str, replacement: str) -> str:
        program = Path(shim_program.__file__)
        source = (program.parent / file).read_text()
        assert source.count(text) == 1
        package = tmp_path / "holdfast_agent" / "shim"
        package.mkdir(parents=True)
        for part in program.parent.iterdir():
            (package / part.name).symlink_to(part)
        (package / file).unlink()
        (package / file).write_text(source.replace(text, replacement))
        if file != program.name:
            (package / program.name).unlink()  # through a link it would find the others where it lies
            (package / program.name).write_text(program.read_text())
        return str(package / program.name)

    return alter


@pytest.fixture
def shim(start_shim: Callable[..., Shim]) -> Shim:
    """One shim, assigned."""
    shim = start_shim()
    shim.assign()
    return shim


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """Pids that a test knows to outlive their shim, killed at its end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if process_exists(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    return wait_until


@pytest.fixture
def running() -> Callable[[int], bool]:
    return process_exists
