"""Turns the current process into a shim: session, subreaper, signals, limits."""

from __future__ import annotations

# ``signal`` makes an enum's member of each number, which took each shim half a millisecond.
import _signal  # type: ignore[import-not-found]
import ctypes
import os
import signal

PR_SET_NAME, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 15, 36, 38
LIBC = ctypes.CDLL(None)  # loaded by the template
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
    for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_NO_NEW_PRIVS, 1)):
        if LIBC.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3):
            raise OSError(f"prctl {option} failed")
    LIBC.prctl(PR_SET_NAME, b"holdfast-shim")
    if os.getsid(0) != os.getpid() and os.getpgrp() != os.getpid():
        os.setsid()
    os.umask(0o027)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != fd:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own
    while (low := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # 0, 1 and 2 are taken from now on, so that no file of ours gets there
    os.close(low)
    take_signals()


def take_signals() -> None:
    """Survives what can be survived. By handlers: exec undoes these, while it would hand on what is ignored."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in ALL_SIGNALS:
        if number in UNWELCOME or _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _survive)


def _survive(*_: object) -> None:
    pass
