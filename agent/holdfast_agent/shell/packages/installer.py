"""Runs ``uv`` with an environment of ours, for so long and not longer.

What is installed may run code of its own (a source distribution does), so it runs as ranks do: as the account of the
job (``Installer.user``), within bounds, without privileges to gain, and with all that it has started ended with it.
"""

from __future__ import annotations

import functools
import os
import re
import signal
from pathlib import Path
from typing import assert_never

from holdfast._base.printable import one_line
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.launch.pip_config import Sources
from holdfast_agent.shell.base.programs import ENVIRON_MOST_BYTES, NO_LIMITS, How, Limits, Program, run
from holdfast_agent.shell.packages.settings import CodeProblem

TAIL_CHARACTERS = 700
FILE_BYTES = 64 << 30
"""Largest file that an installation may write."""
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
        deadline_s: float,
        stop: int,
        sources: Sources = NO_SOURCES,
        limits: Limits = NO_LIMITS,
    ) -> bytes:
        """Run to the end, in ``work``; returns the last MiB of what it said, as it is.

        ``stop`` is a descriptor that becomes readable when it is called off. Nothing that it has started is left when
        this returns, or raises ``CodeProblem``, which carries what it said, without the secrets of ``sources``.
        """
        ran = run(
            Program(
                command,
                deadline_s,
                self._environment(work, cache, sources),
                str(work),
                self.user,
                limits=limits,
                file_bytes=FILE_BYTES,
            ),
            stop,
            merged=True,
        )
        if ran.how is How.LOST:
            end_left_over(cache)
        text = sources.hide(ran.output.decode("utf-8", "replace"))
        said = text.encode()
        match ran.how:
            case How.ENDED if ran.left:
                problem = f"what the installation has started outlives KILL: {ran.left}"
                raise CodeProblem(problem, host_fault=True, log=said)
            case How.ENDED if ran.code == 0:
                return ran.output
            case How.ENDED:
                raise CodeProblem(f"the installation failed: {tail(said)}", host_fault=_FULL in text, log=said)
            case How.CALLED_OFF:
                raise CodeProblem("the installation was called off")
            case How.NOT_STARTED:
                raise CodeProblem(f"{command[0]} can't be started: {ran.problem}", host_fault=True)
            case How.LATE:
                raise CodeProblem(f"the installation {ran.problem}: {tail(said)}", log=said)
            case How.FLOOD | How.LOST:
                raise CodeProblem(f"the installation {ran.problem}", log=said)
            case _:
                assert_never(ran.how)

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
            "UV_LINK_MODE": "copy",  # a link would leave its file open to all that can write to the cache
            "UV_PYTHON_DOWNLOADS": "never",
            **sources.environment,
            **trusted,
        }


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
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read(ENVIRON_MOST_BYTES)
            if needle in b"\0" + environ:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                found += 1
        except OSError:
            continue
        finally:
            os.close(pidfd)
    return found


def tail(log: bytes) -> str:
    """The end of an installer's log as one line, without what is only drawn."""
    lines = log[-8 * TAIL_CHARACTERS :].decode("utf-8", "replace").splitlines()
    words = " ".join(_DRAWN.sub(" ", line) for line in lines if not line.startswith(_CHATTER)).split()
    text = one_line(" ".join(words)).rstrip(".")
    return text if len(text) <= TAIL_CHARACTERS else "…" + text[-TAIL_CHARACTERS:]


@functools.cache
def uv() -> str:
    """The program. Raises ``CodeProblem`` where it was not installed with the agent."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise CodeProblem("uv is not installed beside the agent", host_fault=True) from error
