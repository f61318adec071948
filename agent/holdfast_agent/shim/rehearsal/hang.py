"""The fault ``hang``: main threads of a rank wait in a system call that never returns, all other threads go on.

Each is stopped by ptrace, its registers and its signal mask are kept, and it is let go with others: to call ``pause``
with all signals blocked, by the instruction for a system call that the kernel's own page in it has. Nothing of the
program is written to, and no tracer stays, so the thread looks like any that waits. To undo it the registers are put
back; a call that was interrupted is made again by the kernel, as after a stop.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import time

from holdfast_agent.shim.processes import now_s, read_small

STOPS_S = 2.0
WAITS_S, WAITS_MOST_S = 1.0, 5.0
FEWEST_LOOKS = 100
"""So long, and so often, a call that waits is looked for: where the thread computes, it may hold what all others need,
as Python's lock. On a busy machine the first takes no more than ``WAITS_MOST_S``."""
_CONT, _GETREGS, _SETREGS, _DETACH = 7, 12, 13, 17
_SEIZE, _INTERRUPT, _GETSIGMASK, _SETSIGMASK = 0x4206, 0x4207, 0x420A, 0x420B
_EVENT_STOP, _WALL = 128, 0x40000000
_REGISTERS = struct.Struct("27Q")
_R10, _RAX, _RSI, _ORIG_RAX, _RIP = 7, 10, 13, 15, 16
_PAUSE, _NO_CALL = 34, (1 << 64) - 1
_AT_SYSINFO_EHDR = 33
_PAGE_BYTES = 4096
_SYSCALL = b"\x0f\x05"
_FUTEX, _FUTEX_OP, _FUTEX_WAIT = 202, 0x7F, 0
_RESTARTED = 219
_TIME = struct.Struct("qq")
SOON_S = 0.1
"""A wait that ends by itself sooner than that may be one for Python's lock."""
_INTERRUPTED = frozenset((1 << 64) - number for number in (512, 513, 514, 516))
"""What a call in which a thread waited is about to return, for the kernel to make it again."""
_ALL = (1 << 64) - 1
_ALL_BUT_KILL_AND_STOP = _ALL & ~(1 << signal.SIGKILL - 1) & ~(1 << signal.SIGSTOP - 1)


class Held:
    """A main thread that waits. Raises OSError, with the thread as it was, where that can't be."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        at = _system_call(pid)
        self._registers = _stopped_where_it_waits(pid)
        try:
            self._mask = _ask(_GETSIGMASK, pid, 8, 8)
            changed = list(self._registers)
            changed[_RAX], changed[_ORIG_RAX], changed[_RIP] = _PAUSE, _NO_CALL, at
            _tell(_SETSIGMASK, pid, 8, struct.pack("Q", _ALL))
            _tell(_SETREGS, pid, 0, _REGISTERS.pack(*changed))
        finally:
            _call(_DETACH, pid)

    def let_go(self) -> None:
        """Go on where it was; a thread that has ended stays so."""
        try:
            _stop(self.pid)
            try:
                _tell(_SETREGS, self.pid, 0, _REGISTERS.pack(*self._registers))
                _tell(_SETSIGMASK, self.pid, 8, self._mask)
            finally:
                _call(_DETACH, self.pid)
        except OSError:
            pass


def is_held(pid: int) -> bool:
    """Whether a main thread waits since it was made to: no program blocks all signals and pauses."""
    try:
        call = read_small(f"/proc/{pid}/syscall").split()
        lines = read_small(f"/proc/{pid}/status").splitlines()
        blocked = next(line for line in lines if line.startswith(b"SigBlk:")).split()[1]
    except (OSError, StopIteration):
        return False
    return call[:1] == [b"%d" % _PAUSE] and int(blocked, 16) == _ALL_BUT_KILL_AND_STOP


def _system_call(pid: int) -> int:
    """The address of an instruction that makes a system call, in the page of the kernel that every process has."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, f"a rank can't be made to hang on {os.uname().machine}")
    try:
        pairs = dict(struct.iter_unpack("QQ", read_small(f"/proc/{pid}/auxv")))
        start: int = pairs[_AT_SYSINFO_EHDR]
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(memory, _PAGE_BYTES, start).find(_SYSCALL)
        finally:
            os.close(memory)
    except (OSError, KeyError, struct.error) as error:
        raise OSError(errno.EPERM, f"its memory can't be read ({error})") from None
    if found < 0:
        raise OSError(errno.ENOSYS, "the kernel's page in it makes no system call")
    return start + found


def _stopped_where_it_waits(pid: int) -> tuple[int, ...]:
    """Stop its main thread in a call that waits, if it makes one, else wherever it is; returns its registers."""
    began, looks, lock = now_s(), 0, -1
    while True:
        _stop(pid)
        try:
            registers = _REGISTERS.unpack(_ask(_GETREGS, pid, 0, _REGISTERS.size))
            at = registers[_RIP]
            # A call that was interrupted by a look before is made again, and doesn't show any more which one it is.
            wants_lock = _wants_lock(pid, registers) or (registers[_ORIG_RAX] == _RESTARTED and at == lock)
        except OSError:
            _call(_DETACH, pid)
            raise
        lock = at if wants_lock else -1
        looks, took_s = looks + 1, now_s() - began
        enough = took_s >= WAITS_S and looks >= FEWEST_LOOKS
        waits = registers[_RAX] in _INTERRUPTED and not wants_lock
        if waits or enough or took_s >= WAITS_MOST_S:
            return registers
        _call(_DETACH, pid)
        time.sleep(0.003)


def _wants_lock(pid: int, registers: tuple[int, ...]) -> bool:
    """Whether it is about to take a lock that others may wait to see it take, as Python's: they would wait with it.

    A mutex is waited for without a bit set; Python's lock for some milliseconds at a time.
    """
    if registers[_ORIG_RAX] != _FUTEX:
        return False
    if registers[_RSI] & _FUTEX_OP == _FUTEX_WAIT:
        return True
    if not registers[_R10]:
        return False
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        until: tuple[int, int] = _TIME.unpack(os.pread(memory, _TIME.size, registers[_R10]))
    except (OSError, struct.error):
        return False
    finally:
        os.close(memory)
    return abs(until[0] + until[1] / 1e9 - time.monotonic()) < SOON_S


def _stop(pid: int) -> None:
    """Stop its main thread, wherever it is."""
    _call(_SEIZE, pid)
    try:
        _call(_INTERRUPT, pid)
        until = now_s() + STOPS_S
        while now_s() < until:
            found, status = os.waitpid(pid, os.WNOHANG | _WALL)
            if not found:
                time.sleep(0.001)
            elif not os.WIFSTOPPED(status):
                raise OSError(errno.ESRCH, "it has ended")
            elif status >> 16 == _EVENT_STOP:
                return
            else:
                _call(_CONT, pid, 0, os.WSTOPSIG(status))  # a signal that came to it just now
        raise OSError(errno.EBUSY, "its main thread can't be stopped: the kernel is at work for it")
    except OSError:
        try:
            _call(_DETACH, pid)
        except OSError:
            pass  # a tracer's end detaches, too
        raise


def _call(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    ptrace.restype = ctypes.c_long
    if ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"its threads can't be held: {os.strerror(number)}")


def _ask(request: int, pid: int, address: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    _call(request, pid, address, ctypes.addressof(buffer))
    return buffer.raw


def _tell(request: int, pid: int, address: int, data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data))
    _call(request, pid, address, ctypes.addressof(buffer))
