"""System calls that programs wait in: their names, and what their arguments say they wait for.

x86-64 and arm64 number them differently. ``blocked`` reads the arguments in /proc/PID/syscall; what lies behind a
pointer (an array of descriptors, a deadline, a path) is named there and read by the caller from the process's memory.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast_agent.core.proc.proc_text import Call

NAMES = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv",
        20: "writev", 23: "select", 24: "sched_yield", 34: "pause", 35: "nanosleep", 40: "sendfile",
        42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
        62: "kill", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait",
        130: "rt_sigsuspend", 202: "futex", 219: "restart_syscall", 230: "clock_nanosleep", 232: "epoll_wait",
        247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll", 275: "splice", 277: "sync_file_range",
        281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg",
        326: "copy_file_range", 437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 47: "fallocate", 56: "openat", 63: "read",
        64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev",
        71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 82: "fsync", 83: "fdatasync",
        84: "sync_file_range", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
        124: "sched_yield", 128: "restart_syscall", 129: "kill", 133: "rt_sigsuspend", 137: "rt_sigtimedwait",
        202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
        242: "accept4", 243: "recvmmsg", 260: "wait4", 285: "copy_file_range", 437: "openat2",
        441: "epoll_pwait2", 449: "futex_waitv",
    },
}  # fmt: skip
"""Calls that hung programs are found in."""
_ON_DESCRIPTOR = frozenset(
    {
        "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "ioctl", "sendfile",
        "splice", "copy_file_range", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg",
        "recvmmsg", "fsync", "fdatasync", "sync_file_range", "fallocate", "flock", "fcntl",
    }
)  # fmt: skip
_EPOLL = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})
_FUTEX = frozenset({"futex", "futex_waitv"})
_FUTEX_PRIVATE, _FUTEX_REALTIME = 128, 256
_FUTEX_WAIT, _FUTEX_WAIT_BITSET = 0, 9
_SIGNALS = frozenset({"pause", "rt_sigsuspend", "rt_sigtimedwait"})
_P_PID = 1
_TIMER_ABSTIME = 1
_CLOCK_MONOTONIC = 1
POLL_MOST = 64
"""Descriptors of one poll or select that are looked at."""
_SELECT_BYTES = 128
PATH_BYTES = 512


class For(enum.Enum):
    """Kinds of things that a call waits for."""

    # One descriptor or several.
    DESCRIPTORS = "descriptors"
    FUTEX = "futex"
    CHILD = "child"
    CLOCK = "clock"
    SIGNAL = "signal"
    # A path that is being opened.
    PATH = "path"
    # It goes on with the call that a signal interrupted; which one that was isn't said.
    RESUMED = "resumed"
    OTHER = "other"


class TimeForm(enum.Enum):
    """Forms in which a call takes its time limit."""

    MILLISECONDS = "ms"
    # Pointers to a struct of seconds and nano- or microseconds; a null pointer is no limit.
    TIMESPEC = "timespec"
    TIMEVAL = "timeval"
    # A time of the monotonic clock, instead of a duration.
    MONOTONIC = "monotonic"
    OTHER_CLOCK = "other clock"


@dataclass(frozen=True, slots=True)
class Limit:
    """A call's time limit: ``value`` is a number of milliseconds, or an address."""

    form: TimeForm
    value: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """One system call that has not come back."""

    name: str
    waits_for: For
    # A descriptor, an epoll descriptor, or the child's pid (0 for any).
    number: int = -1
    # Address and length of an array of ``struct pollfd``, or of up to three sets of bits.
    polled: tuple[int, int] | None = None
    selected: tuple[tuple[int, ...], int] | None = None
    epoll: bool = False
    path: int = 0
    limit: Limit | None = None
    # A futex that another process may wake, such as a semaphore of multiprocessing's.
    shared: bool = False


def name(number: int, machine: str) -> str:
    """The name of a call; "syscall 999" for one that isn't listed."""
    return NAMES.get(machine, {}).get(number, f"syscall {number}")


def blocked(call: Call, machine: str) -> Blocked:
    """The condition that a system call waits for, by its arguments."""
    called, a = name(call.number, machine), (*call.arguments, 0, 0, 0, 0, 0, 0)
    if called in _ON_DESCRIPTOR:
        return Blocked(called, For.DESCRIPTORS, _signed(a[0]))
    if called in _EPOLL:
        limit = Limit(TimeForm.MILLISECONDS, _signed(a[3]))
        if called == "epoll_pwait2":
            limit = Limit(TimeForm.TIMESPEC, a[3])
        return Blocked(called, For.DESCRIPTORS, _signed(a[0]), epoll=True, limit=limit)
    if called in ("poll", "ppoll"):
        limit = Limit(TimeForm.MILLISECONDS, _signed(a[2])) if called == "poll" else Limit(TimeForm.TIMESPEC, a[2])
        count = min(a[1], POLL_MOST)
        return Blocked(called, For.DESCRIPTORS if count else For.CLOCK, polled=(a[0], count), limit=limit)
    if called in ("select", "pselect6"):
        sets = tuple(address for address in a[1:4] if address)
        limit = Limit(TimeForm.TIMEVAL if called == "select" else TimeForm.TIMESPEC, a[4])
        size = min((_signed(a[0]) + 7) // 8, _SELECT_BYTES)
        waits_for = For.DESCRIPTORS if sets and size > 0 else For.CLOCK
        return Blocked(called, waits_for, selected=(sets, size), limit=limit)
    if called == "nanosleep":
        return Blocked(called, For.CLOCK, limit=Limit(TimeForm.TIMESPEC, a[0]))
    if called == "clock_nanosleep":
        return Blocked(called, For.CLOCK, limit=_clock_limit(a))
    return _other(called, a)


def _other(called: str, a: tuple[int, ...]) -> Blocked:
    if called in _FUTEX:
        if called != "futex":
            return Blocked(called, For.FUTEX)
        return Blocked(called, For.FUTEX, limit=_futex_limit(a), shared=not a[1] & _FUTEX_PRIVATE)
    if called == "wait4":
        return Blocked(called, For.CHILD, max(0, _signed(a[0])))
    if called == "waitid":
        return Blocked(called, For.CHILD, a[1] if a[0] == _P_PID else 0)
    if called in _SIGNALS:
        return Blocked(called, For.SIGNAL)
    if called in ("open", "openat", "openat2"):
        return Blocked(called, For.PATH, path=a[0] if called == "open" else a[1])
    return Blocked(called, For.RESUMED if called == "restart_syscall" else For.OTHER)


def _clock_limit(a: tuple[int, ...]) -> Limit:
    if not a[1] & _TIMER_ABSTIME:
        return Limit(TimeForm.TIMESPEC, a[2])
    return Limit(TimeForm.MONOTONIC if a[0] == _CLOCK_MONOTONIC else TimeForm.OTHER_CLOCK, a[2])


def _futex_limit(a: tuple[int, ...]) -> Limit | None:
    operation = a[1] & (_FUTEX_PRIVATE - 1)
    if operation == _FUTEX_WAIT:
        return Limit(TimeForm.TIMESPEC, a[3])
    monotonic = operation == _FUTEX_WAIT_BITSET and not a[1] & _FUTEX_REALTIME
    return Limit(TimeForm.MONOTONIC, a[3]) if monotonic else None


def _signed(value: int) -> int:
    """A 32-bit argument as C sees it."""
    return int(struct.unpack("=i", struct.pack("=I", value & 0xFFFFFFFF))[0])


def polled(data: bytes) -> Iterator[int]:
    """The descriptors of an array of ``struct pollfd``; negative ones are left out."""
    for descriptor, _, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8]):
        if descriptor >= 0:
            yield descriptor


def selected(data: bytes) -> Iterator[int]:
    """The descriptors in a set of bits."""
    bits = int.from_bytes(data, "little")
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1


def seconds(data: bytes, form: TimeForm) -> float:
    """The seconds in a struct of two 64-bit numbers. Raises ``ValueError`` for less."""
    if len(data) < 16:
        raise ValueError("no time")
    whole, part = struct.unpack_from("=qq", data)
    return float(whole + part / (1e6 if form is TimeForm.TIMEVAL else 1e9))
