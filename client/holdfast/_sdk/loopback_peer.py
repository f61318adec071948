"""The account at the other end of a connection that comes from this machine, by the kernel's word."""

from __future__ import annotations

import contextlib
import socket
import sys

_UID = 7
"""Of the fields in a line of the kernel's table, after its own and the other end's address."""


def account_of(peer: tuple[str, int], own: tuple[str, int], table: str = "/proc/net/tcp") -> int | None:
    """The uid of who has connected from ``peer`` to ``own``, both IPv4; None where the kernel doesn't say. Blocks."""
    wanted = [_address(peer), _address(own)]
    with contextlib.suppress(OSError), open(table) as lines:
        for line in lines:
            fields = line.split(maxsplit=_UID + 1)
            if fields[1:3] == wanted:
                return int(fields[_UID])
    return None


def _address(end: tuple[str, int]) -> str:
    number = int.from_bytes(socket.inet_aton(end[0]), sys.byteorder)
    return f"{number:08X}:{end[1]:04X}"
