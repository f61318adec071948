"""Judges what a blocked main thread waits for, from the other ends of its descriptors.

Theory of operation. Every descriptor of the call is an ``End``: the kind of wait that it alone would be. Of several
the one that may last longest by right decides (a person before a service outside, that before a file, a child, a
peer, a lock of its own), so that nothing is called hung that something outside may still end. A listening socket
makes the call a server's, as long as all other ends are connections that it has accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.waits import FUTEX, Wait, WaitKind

_GENTLEST_FIRST = (
    WaitKind.PERSON,
    WaitKind.OUTSIDE,
    WaitKind.FILE,
    WaitKind.CHILD,
    WaitKind.UNKNOWN,
    WaitKind.PEER,
    WaitKind.REQUEST,
    WaitKind.MEETING,
    WaitKind.SLEEP,
    WaitKind.LOCK,
)
_EPHEMERAL = 32768
"""The lowest port that Linux gives to a program that asks for none."""
_SHOWN = 3
"""Other ends that are named; more are counted."""
# Kernel functions, where the call itself may not be read.
_BY_WCHAN = (
    ("nanosleep", WaitKind.SLEEP),
    ("n_tty_read", WaitKind.PERSON),
    ("do_wait", WaitKind.CHILD),
    ("lock_inode", WaitKind.FILE),
    ("fifo", WaitKind.FILE),
    ("wait_for_partner", WaitKind.FILE),
)


@dataclass(frozen=True, slots=True)
class End:
    """The other end of one descriptor. ``accepted``: a connection that came in at a socket listened to here.

    ``until_s``: when the process at that end wakes, where it sleeps.
    """

    kind: WaitKind
    what: str = ""
    accepted: bool = False
    until_s: float | None = None


def of_ends(ends: Sequence[End], until_s: float | None = None) -> Wait:
    """The wait for any of several ends; for none of them it is a sleep until ``until_s``."""
    if not ends:
        return Wait(WaitKind.SLEEP, until_s=until_s)
    serves = any(end.kind in (WaitKind.REQUEST, WaitKind.MEETING) for end in ends)
    counted = [end for end in ends if not (serves and end.accepted)]
    kind = min((end.kind for end in counted), key=_GENTLEST_FIRST.index)
    if kind is WaitKind.MEETING and any(end.accepted and end.kind is WaitKind.OUTSIDE for end in ends):
        # Others than peers have come to it.
        return Wait(WaitKind.REQUEST, _words([end.what for end in counted]))
    if kind in (WaitKind.LOCK, WaitKind.SLEEP) and until_s is not None and until_s < float("inf"):
        # An event loop whose only work is a timer: nothing but its own threads could wake it earlier.
        return Wait(WaitKind.SLEEP, until_s=until_s)
    found = [end for end in counted if end.kind is kind]
    until_s = min((end.until_s for end in found if end.until_s is not None), default=None)
    return Wait(kind, _words([end.what for end in found]), until_s=until_s)


def _words(names: Sequence[str]) -> str:
    found = sorted({one for one in names if one})
    if len(found) <= _SHOWN:
        return ", ".join(found)
    return f"{', '.join(found[:_SHOWN])} and {len(found) - _SHOWN} more"


def by_wchan(wchan: str) -> Wait:
    """The wait as far as the kernel function tells, where the system call may not be read."""
    kind = next((kind for part, kind in _BY_WCHAN if part in wchan), WaitKind.UNKNOWN)
    return Wait(kind, FUTEX if "futex" in wchan else "")


@dataclass(frozen=True, slots=True)
class Gang:
    """Addresses at which the workers of a job find each other, as IP addresses, and the ports that they were given."""

    hosts: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    # It has workers in other trees, too.
    several: bool = True
    # Where the ranks find each other; 0 where there is none.
    meeting_port: int = 0

    def has(self, address: tuple[str, int]) -> bool:
        """Whether a peer is at that address: on a host of the gang, at a port of its workers or an ephemeral one.

        Services of the user's, on a host that works for the gang as well, listen below those. All ranks of a
        gang of one worker are in its own tree, so an ephemeral port of another process is none of theirs.
        """
        host, port = address
        return host in self.hosts and (port in self.ports or (self.several and port >= _EPHEMERAL))
