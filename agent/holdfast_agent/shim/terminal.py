"""A rank's terminal. The shim holds its controlling side, copies what the program writes into the rank's output file,
and gives the program what comes by a FIFO in the worker's directory.

So output is a log as any other rank's, with or without a reader, and input waits in the FIFO, 64 KiB at most,
while the program reads nothing. The FIFO takes frames: a byte for the kind, two for the length of the rest, and the
rest; each is written at once and no longer than the kernel keeps whole (PIPE_BUF), so a reader never sees half of one.
Kinds: ``d`` bytes to be read by the program, ``w`` rows and columns, two bytes each.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.launch import Plan

FRAME_MOST = 4096
HEAD = 3
COPIED_AT_ONCE = 64 << 10
DRAINED_MOST = 1 << 20
ROWS, COLUMNS = 24, 80


def fifo(generation: int, rank: int) -> str:
    """The FIFO's name in the worker's directory."""
    return f"g{generation}.r{rank}.in"


def frame(kind: bytes, rest: bytes) -> bytes:
    """One frame. Raises ValueError where it would be torn."""
    if len(rest) > FRAME_MOST - HEAD:
        raise ValueError(f"a frame holds {FRAME_MOST - HEAD} bytes at most")
    return kind + len(rest).to_bytes(2, "big") + rest


def window(rows: int, columns: int) -> bytes:
    """The rest of a frame that says how large the terminal is."""
    return rows.to_bytes(2, "big") + columns.to_bytes(2, "big")


class Terminal:
    """Made before the launch. `slave`, the program's side, stays open here too: were nothing left that has it open, as
    while a program writes to files alone, the kernel would hang up.
    """

    def __init__(self, plan: Plan, number: int, directory: int, uid: int | None, gid: int | None) -> None:
        self.rank = plan.rank
        self.master, self.slave = os.openpty()
        self.out = self.input = -1
        self._pending = b""
        self._fifo, self._directory = fifo(number, plan.rank), directory
        try:
            os.set_blocking(self.master, False)
            resize(self.master, ROWS, COLUMNS)
            if uid is not None and gid is not None:
                os.fchown(self.slave, uid, gid)
            self.out = os.dup(plan.files[0])
            self._remove()  # of an order that was refused
            os.mkfifo(self._fifo, 0o600, dir_fd=directory)
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # a writer of ours, lest it ever end
            self.input = os.open(self._fifo, flags, dir_fd=directory)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of everything; what still runs on the terminal gets SIGHUP."""
        if self.input >= 0:
            self._remove()
        for fd in (self.master, self.slave, self.out, self.input):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = self.out = self.input = -1

    def _remove(self) -> None:
        try:
            os.unlink(self._fifo, dir_fd=self._directory)
        except OSError:
            pass  # there is none, or the worker's files are gone

    def interest(self) -> dict[int, int]:
        """By descriptor what to wait for; no further input while some is pending."""
        if self.master < 0:
            return {}
        if self._pending:
            return {self.master: select.EPOLLIN | select.EPOLLOUT, self.input: 0}
        return {self.master: select.EPOLLIN, self.input: select.EPOLLIN}

    def watch(self, epoll: select.epoll) -> None:
        """Have the loop wait for what it can do something with; for nothing once it is closed."""
        for fd, events in self.interest().items():
            try:
                epoll.modify(fd, events)
            except FileNotFoundError:
                epoll.register(fd, events)

    def serve(self) -> None:
        """Copies what is there, each way, without waiting."""
        if self.copy_out(COPIED_AT_ONCE) is None:
            self.close()
        elif self.master >= 0:
            self.copy_in()

    def drain(self) -> None:
        """Copies what the program has written, as much as a terminal may hold."""
        left = DRAINED_MOST
        while self.master >= 0 and left > 0:
            taken = self.copy_out(COPIED_AT_ONCE)
            if not taken:
                return
            left -= taken

    def copy_out(self, most: int) -> int | None:
        """Bytes that went into the file; None once nothing more can come."""
        try:
            data = os.read(self.master, most)
        except BlockingIOError:
            return 0
        except OSError:  # hung up, as by a process that may
            return None
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self.out, rest) :]
        except OSError:
            pass  # a full disk: the program goes on, as it would if it wrote there itself and didn't look
        return len(data) or None

    def copy_in(self) -> None:
        if not self._pending:
            self._take_frame()
        if self._pending:
            try:
                self._pending = self._pending[os.write(self.master, self._pending) :]
            except BlockingIOError:
                pass
            except OSError:
                self._pending = b""  # EIO: the program has gone

    def _take_frame(self) -> None:
        try:
            head = os.read(self.input, HEAD)
        except BlockingIOError:
            return
        rest = os.read(self.input, int.from_bytes(head[1:], "big")) if head[1:] != b"\0\0" else b""
        if head[:1] == b"d":
            self._pending = rest
        elif head[:1] == b"w" and len(rest) == 4:
            resize(self.master, int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:], "big"))


def resize(master: int, rows: int, columns: int) -> None:
    """Set a terminal's window size, of which the kernel tells the program by SIGWINCH."""
    import fcntl
    import struct
    import termios

    try:
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    except OSError:
        pass


def take(slave: int) -> None:
    """In the child: lead a session whose terminal this is. Raises OSError."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
