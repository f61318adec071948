"""Conditions that a rank's main thread waits for: what could end the wait decides how long it may last.

The agent sees it in the system call, its descriptors and the other end of a socket, and in the Python frames where
those say nothing. None in place of a ``Wait`` means that the rank was not looked at, because it moves.
"""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass


class WaitKind(enum.Enum):
    """Kinds of waits, by what can end them."""

    # It waits for nothing: on the CPU, or between two short waits.
    RUNNING = "running"
    # A process of the same gang: its socket, or a collective, rendezvous or store by the frames.
    PEER = "a peer"
    # A lock, condition, queue or pipe that only the rank's own threads can release.
    LOCK = "a lock of its own"
    # A process below it, or another of its own tree: by waitpid, or a pipe or socket that one holds.
    CHILD = "a child process"
    # A process outside the gang, by a socket: host and port, or the path of a Unix socket.
    OUTSIDE = "a remote service"
    # A file, FIFO, mount, or a file lock that another process holds.
    FILE = "a file"
    # A person: a terminal, a debugger's prompt, ``input()``.
    PERSON = "a person"
    # The clock alone: a sleep, or a loop of sleeps.
    SLEEP = "the clock"
    # A request from anyone: a server whose connections are all idle, or that has none.
    REQUEST = "a request"
    # A peer that has yet to connect, if the job never got further: it listens at the ranks' meeting point.
    MEETING = "a peer at the meeting point"
    # It waits, and nothing that can be read tells for what.
    UNKNOWN = "unknown"


A_THREAD = "a thread"
"""End of ``what`` of a main thread's wait for another thread of its own, or for what that one waits for."""
NAP_S, LONG_SLEEP_S = 30.0, 600.0
"""Of a thread's sleeps a shorter one may be a heartbeat's, and a longer one, a child's as well, has no end in sight:
nothing that trains sleeps for so long, though the main thread of a server does. A shorter time limit is a poll's."""
TIME_LIMIT = ", with a time limit"
A_SIGNAL = "a signal"
"""``what`` of a SLEEP that only a signal ends, which anyone may send, and a timer of its own that nothing shows."""
UNSEEN = "busy with something that can't be seen"
"""End of ``what`` of a wait for a child whose own wait doesn't show; it counts as one for something OUTSIDE."""
FUTEX = "a lock or a thread"
"""``what`` of an UNKNOWN wait in a futex: of a lock, a queue or a thread, which only the frames tell apart."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of a rank's main thread. ``since_s`` is when this same wait was first seen, not when it began."""

    kind: WaitKind
    # The other side in words: "10.0.0.7:443", "/data/lock held by pid 7", "pid 12 `python loader.py`, stopped".
    what: str = ""
    since_s: float | None = None
    # "train.py:123 `step`": the innermost frame of the user's, or the collective; empty before a stack was read.
    place: str = ""
    # SLEEP alone: when the clock ends it, and of a loop of sleeps the first; infinite for a sleep without an end, None
    # where it can't be read.
    until_s: float | None = None
    # It wakes now and then to ask for a lock that another process of the job holds: no wake-up of these is a movement.
    polled: bool = False
    # CHILD alone: its helpers use the CPU, and what they do for it may take its time.
    at_work: bool = False
