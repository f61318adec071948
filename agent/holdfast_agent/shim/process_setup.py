"""Turns the current process into a shim: session, subreaper, signals, limits."""

from __future__ import annotations

# ``signal`` makes an enum's member of each number and handler, which took each shim half a millisecond.
import _signal  # type: ignore[import-not-found]
import ctypes
import os
import signal

PR_SET_NAME, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 15, 36, 38
PRCTL = ctypes.CDLL(None).prctl  # looked up by the template, as a look-up in each shim writes to dozens of pages
PRCTL.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
NAME = ctypes.create_string_buffer(b"holdfast-shim")
ALL_SIGNALS = tuple(map(int, signal.valid_signals()))
UNWELCOME = (
    signal.SIGCHLD,  # wakes the loop
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def settle(fd: int) -> None:
    """Turn this process into a shim, however it was started. Raises OSError."""
    for option in (PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS):
        if PRCTL(option, 1, 0, 0, 0):
            raise OSError(f"prctl {option} failed")
    PRCTL(PR_SET_NAME, ctypes.addressof(NAME), 0, 0, 0)
    if os.getsid(0) != os.getpid() and os.getpgrp() != os.getpid():
        os.setsid()
    os.umask(0o027)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != fd:
            os.closerange(int(name), int(name) + 1)  # the listing's own is closed already
    while (low := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # 0, 1 and 2 are taken from now on, so that no file of ours gets there
    os.close(low)
    take_signals()


def take_signals() -> None:
    """Survives what can be survived. By handlers: exec undoes these, while it would hand on what is ignored."""
    hold()
    for number in ALL_SIGNALS:
        if number in UNWELCOME or _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _survive)


def hold(*numbers: int) -> None:
    """Have these signals wait, if they come, and no others."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, numbers)


def die_of(number: int) -> None:
    """Have a signal do what it does in a program that says nothing of it."""
    _signal.signal(number, _signal.SIG_DFL)


def _survive(*_: object) -> None:
    pass
