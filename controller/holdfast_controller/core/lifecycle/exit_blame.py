"""Exit blame: whether an exit is a cause, a mere consequence of another rank's exit, or neither.

A Python that raises closes its sockets before it is gone. Peers that wait for it see that, raise too, and may be
gone first. So the order of ends alone would often name a victim. What a rank printed last tells more: a victim
speaks of its lost connection, the guilty one of something else. Where neither says anything the earlier end counts.
"""

from __future__ import annotations

import enum
import re

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.model.exits import OURS, raised_by


class Blame(enum.Enum):
    """The role of an exit in a failure."""

    CAUSE = "CAUSE"
    """For all that is known."""
    CONSEQUENCE = "CONSEQUENCE"
    """Its message names a peer that was gone before."""
    NONE = "NONE"
    """Finished, or stopped by us."""


_LOST_PEER = re.compile(
    r"connection (was |has been )?(closed|reset|refused|aborted|lost)\b"
    r"|broken pipe"
    r"|remote process exit"  # NCCL: "... or a remote process exiting prematurely"
    r"|ncclremoteerror|ncclsystemerror"
    r"|(store|socket|peer|rank)\b[^:]{0,60}\b(closed|disconnected|no longer alive)"
    r"|(recvvalue|sendbytes|recv|wait)\b[^:]{0,40} failed"
    r"|timed out waiting for clients|connect\(\) timed out|no route to host"
    r"|end of file|unexpected eof",
    re.IGNORECASE,
)
"""Words of torch.distributed, gloo, NCCL, MPI and plain sockets for "the other side is gone"."""

_TRACEBACK = "Traceback (most recent call last)"
_TOLD_TO_END = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "SignalException"})


def blame(exit_: Exit) -> Blame:
    """The role of an exit, by its reason and the rank's last output."""
    if exit_.ok:
        return Blame.NONE
    if exit_.reason in OURS:
        return _of_stopped(exit_)
    if exit_.reason is not ExitReason.NONZERO_EXIT:
        return _of_signalled(exit_)
    raised = raised_by(exit_)
    if raised:
        return Blame.CONSEQUENCE if _is_consequence(raised, exit_.stderr_tail) else Blame.CAUSE
    return Blame.CONSEQUENCE if any(map(_LOST_PEER.search, exit_.stderr_tail[-3:])) else Blame.CAUSE


def _of_signalled(exit_: Exit) -> Blame:
    """A peer's end can make a C++ runtime abort, and says so; no other signal is anybody's consequence."""
    if exit_.signal == _SIGABRT and any(map(_LOST_PEER.search, exit_.stderr_tail)):
        return Blame.CONSEQUENCE
    return Blame.CAUSE


_SIGABRT = 6


def _of_stopped(exit_: Exit) -> Blame:
    """A rank that was on its way out when our order came: it exited by itself, and says what for."""
    raised = raised_by(exit_)
    if exit_.reason is not ExitReason.STOPPED or not exit_.exit_code or not raised:
        return Blame.NONE
    if raised.partition(":")[0].rpartition(".")[2] in _TOLD_TO_END or not _is_told(exit_):
        return Blame.NONE
    return Blame.NONE if _is_consequence(raised, exit_.stderr_tail) else Blame.CAUSE


def _is_told(exit_: Exit) -> bool:
    """Whether the exception is certain: recorded, or printed with its traceback."""
    tail = exit_.stderr_tail
    return bool(exit_.raised) or any(
        _TRACEBACK in line or re.match(r"\s+File \"", line.partition("]: ")[2] or line) for line in tail
    )


_OF_CONNECTIONS = frozenset(
    {"ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "ConnectionError"}
)


def _is_consequence(raised: str, tail: tuple[str, ...]) -> bool:
    """Whether an exception speaks of a lost peer, in its own line or in those that its message goes on with."""
    if raised.partition(":")[0].rpartition(".")[2] in _OF_CONNECTIONS:
        return True
    printed = [index for index, line in enumerate(tail) if line.rstrip().endswith(raised)]
    return any(map(_LOST_PEER.search, (raised, *tail[max(printed, default=len(tail)) :])))
