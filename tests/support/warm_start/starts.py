"""Starts of our own programs without what most of each start is: their imports.

Where it is on, ``subprocess.Popen`` of ``python -m holdfast...`` and a dev cluster's daemons are forked from a process
that has imported the program (``starter.py``), two for each program: one with the variables that an interpreter reads
when it starts (``STARTING``) as this process has them, and one with none of them. Everybody else sees no difference: it
is a child of this process, with the arguments, environment, folder, descriptors, session and exit status that it would
have.

Whatever else an exec makes different is not imitated but executed: other arguments to Python, a command before it
other than ``nsenter --net=``, a function of the test's between fork and exec, other variables of ``STARTING``, and
limits, identity, namespaces, cgroup or ignored signals that are not those of the starter.
``HOLDFAST_COLD_STARTS=1`` turns it off. ``test_warm_start.py`` holds both kinds of start equal.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.dev import processes

OFF = "HOLDFAST_COLD_STARTS"
PROGRAMS = ("holdfast", "holdfast_agent", "holdfast_controller")
STARTING = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "HOLDFAST_FAILPOINTS")
"""How the names of variables begin that are read before a program's own code runs, or when it is imported."""

STARTER = str(Path(__file__).with_name("starter.py"))

_environ: dict[str, str] = {}
"""A starter's: of no test. What a test has set may name its folder, and the starter would seem to be left behind."""


@dataclasses.dataclass(frozen=True)
class Command:
    """One of our programs as a command line."""

    program: str
    words: list[str]
    script: str = ""
    """Its path where it is not ``python -m``."""
    network: str = ""
    """The file of the network namespace that ``nsenter`` would bring it into."""

    @classmethod
    def read(cls, words: Sequence[str | bytes | os.PathLike[str]]) -> Command | None:
        """The command that ``words`` are, if a starter can run it."""
        first, *rest = (os.fsdecode(word) for word in words)
        if first == "nsenter" and len(rest) > 1 and rest[0].startswith("--net="):
            inside = cls.read(rest[1:])
            return inside and dataclasses.replace(inside, network=rest[0].removeprefix("--net="))
        if first == sys.executable and len(rest) >= 2 and rest[0] == "-m" and rest[1] in PROGRAMS:
            return cls(rest[1], rest[2:])
        script = Path(first)
        program = script.name.replace("-", "_")
        if script.parent == Path(sys.executable).parent and program in PROGRAMS:
            return cls(program, rest, script=first)
        return None

    def request(
        self, *, cwd: str, env: Mapping[str, str], descriptors: Sequence[int], session: bool
    ) -> dict[str, Any]:
        """What the starter is told."""
        how = [self.script] if self.script else ["-m", self.program]
        return {
            "shown": [sys.executable, *how, *self.words],
            "argv": [self.script, *self.words],
            "module": "" if self.script else self.program,
            "path": str(Path(self.script).parent) if self.script else cwd,
            "name": Path(self.script or sys.executable).name,
            "cwd": cwd,
            "env": dict(env),
            "descriptors": list(descriptors),
            "session": session,
            "network": self.network,
        }


class Starter:
    """One program's; it ends when this process does, however that ends."""

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, STARTER, str(theirs.fileno()), program]
            self._process = subprocess.Popen(
                command,
                cwd="/",
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._door, self._lock = ours, threading.Lock()
        atexit.register(self._end, os.getpid())

    def _end(self, owner: int) -> None:
        if os.getpid() == owner:  # and not a fork of it
            self._process.kill()
            self._process.wait()
            self._door.close()

    def start(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """Fork what is asked for, with copies of our ``descriptors``; returns its pid."""
        answer, theirs = os.pipe()
        try:
            body = json.dumps(request).encode()
            with self._lock:
                socket.send_fds(self._door, [struct.pack("I", len(body))], [*descriptors, theirs])
                self._door.sendall(body)
        finally:
            os.close(theirs)
        with open(answer, "rb") as answers:
            said = answers.read()
        if not said:
            raise RuntimeError(f"no {request['shown']} was forked; {OFF}=1 does without")
        return int(said)


@functools.cache
def starter(program: str, circumstances: str, *, bare: bool) -> Starter | None:
    """The starter of a program, ``bare`` of the variables that are read at a start.

    There is one for the first circumstances that ask, and none for others.
    """
    if _first.setdefault(program, circumstances) != circumstances:
        return None
    read = _reads_at_start(_environ) if bare else {}
    return Starter(program, {name: value for name, value in _environ.items() if name not in read})


_first: dict[str, str] = {}


def circumstances() -> str:
    """What a child inherits of this thread beyond what a request says, in the kernel's words."""
    own = Path("/proc/thread-self")
    kept = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp:", "Cpus_allowed:")
    status = [line for line in (own / "status").read_text().splitlines() if line.startswith(kept)]
    texts = [(own / name).read_text() for name in ("limits", "cgroup", "oom_score_adj")]
    links = [
        os.readlink(own / "root"),
        *(os.readlink(own / "ns" / name) for name in sorted(os.listdir(own / "ns"))),
    ]
    return "\n".join([*status, *texts, *links, str(os.getpriority(os.PRIO_PROCESS, 0)), str(os.getpgid(0))])


def _reads_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(STARTING)}


def forked(
    words: Sequence[str | bytes | os.PathLike[str]],
    *,
    cwd: str,
    env: Mapping[str, str],
    descriptors: Mapping[int, int],
    session: bool,
) -> int | None:
    """Start a program by its starter; returns its pid, or None where it has to be executed.

    ``descriptors`` says which of ours it gets under which number of its own.
    """
    if not on or (command := Command.read(words)) is None:
        return None
    read, ours = _reads_at_start(env), _reads_at_start(_environ)
    if read not in ({}, ours) or not os.path.isdir(cwd):
        return None
    if (by := starter(command.program, circumstances(), bare=read != ours)) is None:
        return None
    request = command.request(cwd=cwd, env=env, descriptors=list(descriptors), session=session)
    return by.start(request, list(descriptors.values()))


on = False
"""Whether starts may be warm at present."""


@contextlib.contextmanager
def cold() -> Iterator[None]:
    """Within it each start is executed."""
    global on
    before, on = on, False
    try:
        yield
    finally:
        on = before


_execute, _spawn = subprocess.Popen._execute_child, processes.spawn  # type: ignore[attr-defined]


def _inherited() -> dict[str, str]:
    """The environment that an exec without one leaves to a child: C's, in which libraries set variables, too."""
    entries: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    pairs = (os.fsdecode(entry).partition("=") for entry in itertools.takewhile(bool, entries))
    return {name: value for name, _, value in pairs}


def _execute_child(
    self: subprocess.Popen[Any],
    args: Any,
    executable: Any,
    preexec_fn: Any,
    close_fds: bool,
    pass_fds: Sequence[int],
    cwd: Any,
    env: Any,
    *rest: Any,
) -> None:
    """In the place of ``Popen._execute_child``, which knows a child's pid and has closed its ends of the pipes."""
    *usual, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[:9]
    restore_signals, gid, gids, uid, umask, session, group = rest[9:]
    plain = (executable, preexec_fn, *usual, shell, gid, gids, uid, umask, group)
    pid = None
    if plain == (None, None, None, 0, False, None, None, None, -1, -1) and close_fds and restore_signals:
        streams = {0: p2cread, 1: c2pwrite, 2: errwrite}
        pid = forked(
            args if isinstance(args, Sequence) and not isinstance(args, str | bytes) else [args],
            cwd=os.getcwd() if cwd is None else os.path.abspath(os.fsdecode(cwd)),
            env=_inherited() if env is None else {os.fsdecode(name): os.fsdecode(env[name]) for name in env},
            descriptors={number: number if end == -1 else end for number, end in streams.items()}
            | {number: number for number in pass_fds},
            session=session,
        )
    if pid is None:
        _execute(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
        return
    self.pid = pid
    self._child_created = True  # type: ignore[attr-defined]
    self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def _spawn_daemon(command: Sequence[str], log: Path, env: Mapping[str, str]) -> processes.Process:
    """In the place of ``holdfast.dev.processes.spawn``."""
    with open(os.devnull) as nothing, open(log, "a", opener=functools.partial(os.open, mode=0o600)) as output:
        descriptors = {0: nothing.fileno(), 1: output.fileno(), 2: output.fileno()}
        pid = forked(command, cwd="/", env=env, descriptors=descriptors, session=True)
    started = None if pid is None else processes.stat(pid)
    return started.process if started else _spawn(command, log, env)


def possible(starter: str = STARTER) -> bool:
    """Whether a fork can become another program here: the kernel may be too old, or forbid it."""
    tried = subprocess.run([sys.executable, starter], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return tried.returncode == 0 and os.waitpid(int(tried.stdout), 0)[1] == 0


def install() -> None:
    """Have this process start our programs warm wherever ``on`` says so; a pytest within a test changes nothing."""
    if not os.environ.get(OFF) and not _environ and possible():
        _environ.update(os.environ)
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
        processes.spawn = _spawn_daemon
