"""Channels of clients, which no forked process can have: gRPC does not outlive a fork, and ends it by SIGSEGV."""

from __future__ import annotations

import os
import weakref

import grpc

from holdfast._sdk.transport import options
from holdfast.errors import WrongState

_open: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()
"""As long as one of them is referred to, even if it is closed, gRPC has threads in this process."""
_lost = False


def open_channel(controller: str, target: str, credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
    """A channel to ``target``, one of the addresses in ``controller``. Raises ``WrongState`` in a forked process."""
    if _lost:
        raise WrongState(
            "This process was forked from one with an open client, and can't have a connection of its own.",
            fix="Close the client before, or start processes afresh: multiprocessing.get_context('spawn')",
        )
    channel = grpc.aio.secure_channel(target, credentials, options=options(controller))
    _open.add(channel)
    return channel


def _forked() -> None:
    global _lost
    _lost = _lost or bool(_open)


if hasattr(os, "register_at_fork"):  # not so on Windows
    os.register_at_fork(after_in_child=_forked)
