"""A program on a terminal of its own, typed to as a person would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence


class Typist:
    """Keeps all that the program shows; ``sees`` looks only at what came since it last saw something."""

    def __init__(self, pid: int, terminal: int) -> None:
        self.pid = pid
        self._terminal = terminal
        self._said = b""
        self._seen = 0
        self._status: int | None = None

    @property
    def said(self) -> str:
        """All that was shown so far."""
        return self._said.decode(errors="replace").replace("\r", "")

    def sees(self, text: str, timeout: float = 180) -> None:
        """Wait until ``text`` is shown; fails the test after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (at := self._said.find(text.encode(), self._seen)) < 0:
            assert time.monotonic() < deadline and self._read(), f"waited in vain for {text!r}:\n{self.said}"
        self._seen = at + len(text.encode())

    def types(self, keys: str) -> None:
        """Press keys; Enter is ``\\r``, Ctrl-C ``\\x03``."""
        os.write(self._terminal, keys.encode())

    def resizes(self, rows: int, columns: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hangs_up(self) -> int:
        """Close the window; returns the program's status."""
        os.close(self._terminal)
        self._terminal = -1
        return self._wait()

    def ends(self, timeout: float = 60) -> int:
        """Its exit status, -N for signal N, once it has shown all."""
        deadline = time.monotonic() + timeout
        while self._read():
            assert time.monotonic() < deadline, f"it does not end:\n{self.said}"
        return self._wait()

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait()
        if self._terminal >= 0:
            os.close(self._terminal)

    def _wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def _read(self) -> bool:
        """Take what is shown now; False once nothing more comes."""
        if select.select([self._terminal], [], [], 0.2)[0]:
            try:
                self._said += os.read(self._terminal, 1 << 16)
            except OSError:  # the program has closed it
                return False
        return True


@contextlib.contextmanager
def typing(words: Sequence[str], env: Mapping[str, str], *, rows: int = 24, columns: int = 80) -> Iterator[Typist]:
    """Run a program of Python's, such as ``-m holdfast``, on a terminal; it is ended with the block."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execve(sys.executable, [sys.executable, *words], dict(env))
        finally:
            os._exit(127)
    typist = Typist(pid, terminal)
    typist.resizes(rows, columns)
    try:
        yield typist
    finally:
        typist.stop()
