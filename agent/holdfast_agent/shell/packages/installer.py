"""Runs ``uv``: in a session of its own, with an environment of ours, for so long and not longer.

What is installed may run code of its own (a source distribution does), so it runs as the user that workers run as
on this host, never as a mightier one: see ``Installer.user``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.launch.pip_config import Sources
from holdfast_agent.shell.packages.settings import CodeProblem

TAIL_CHARACTERS, LOG_MAX_BYTES = 700, 1 << 20
_DRAWN = re.compile(r"[×╰─▶│├→]|\x1b\[[0-9;]*m")
_CHATTER = ("Installing from", "Using Python", "Using CPython", "Creating virtual environment", "Activate with")
MARK = "HOLDFAST_INSTALLATION"
NO_SOURCES = Sources()
CERTIFICATES = "certificates.pem"
"""File in the working directory with the authorities to trust, if there are any beside the system's."""
_FULL = "os error 28"
"""ENOSPC, as uv tells it."""


class Installer:
    """Starts programs as ``user``, who owns what they make."""

    def __init__(self, user: WorkerUser) -> None:
        self.user = user

    def run(
        self,
        command: list[str],
        work: Path,
        cache: Path,
        log: IO[bytes],
        deadline_s: float,
        stop: int,
        sources: Sources = NO_SOURCES,
    ) -> None:
        """Run to the end, in ``work``. ``stop`` is a descriptor that becomes readable when it is called off.

        ``log`` gets what it says; a file without a name, since what runs here could plant a link under any name.
        Raises ``CodeProblem``, which carries the log, without the secrets of ``sources``.
        """
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=work,
                env=self._environment(work, cache, sources),
                start_new_session=True,
                umask=0o022,
                **self._as_user(),
            )
        except OSError as error:
            raise CodeProblem(f"{command[0]} can't be started: {error.strerror}", host_fault=True) from error
        try:
            ended = _wait(process.pid, deadline_s, stop)
        finally:
            # Nothing of it stays, whatever it has started.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        text = sources.hide(said_in(log).decode("utf-8", "replace"))
        said = text.encode()
        if ended is None:
            raise CodeProblem("the installation was called off")
        if not ended:
            problem = f"the installation did not end within {deadline_s:g} s: {tail(said)}"
            raise CodeProblem(problem, log=said)
        if code != 0:
            raise CodeProblem(f"the installation failed: {tail(said)}", host_fault=_FULL in text, log=said)

    def _environment(self, work: Path, cache: Path, sources: Sources) -> dict[str, str]:
        trusted = {"SSL_CERT_FILE": str(work / CERTIFICATES)} if sources.certificates else {}
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(work),
            "TMPDIR": str(work),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            MARK: str(cache),
            "UV_CACHE_DIR": str(cache),
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            **sources.environment,
            **trusted,
        }

    def _as_user(self) -> dict[str, Any]:
        if self.user.uid is None:
            return {}
        return {"user": self.user.uid, "group": self.user.gid, "extra_groups": self.user.groups or ()}


def end_left_over(cache: Path) -> int:
    """End what an agent that has died has left of its installations with that cache. Returns how many."""
    needle = b"\0" + os.fsencode(f"{MARK}={cache}") + b"\0"
    found = 0
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if needle in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                found += 1
        except OSError:
            continue
        finally:
            os.close(pidfd)
    return found


def said_in(log: IO[bytes]) -> bytes:
    """Text of a log, at most its last MiB."""
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), LOG_MAX_BYTES, max(0, size - LOG_MAX_BYTES))


def tail(log: bytes) -> str:
    """The end of an installer's log as one line, without what is only drawn."""
    lines = log[-8 * TAIL_CHARACTERS :].decode("utf-8", "replace").splitlines()
    words = " ".join(_DRAWN.sub(" ", line) for line in lines if not line.startswith(_CHATTER)).split()
    text = "".join(c for c in " ".join(words) if c.isprintable()).rstrip(".")
    return text if len(text) <= TAIL_CHARACTERS else "…" + text[-TAIL_CHARACTERS:]


@functools.cache
def uv() -> str:
    """The program. Raises ``CodeProblem`` where it was not installed with the agent."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise CodeProblem("uv is not installed beside the agent", host_fault=True) from error


def _wait(pid: int, deadline_s: float, stop: int) -> bool | None:
    """Wait for a child, without reaping it: whether it has ended in time, or None when it was called off."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(stop, select.POLLIN)
        ready = {handle for handle, _ in poll.poll(deadline_s * 1000)}
        return True if pidfd in ready else None if ready else False
    finally:
        os.close(pidfd)
