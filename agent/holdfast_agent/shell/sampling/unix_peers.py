"""Asks the kernel for the other end of a Unix socket, by its diagnostic netlink family."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLM_F_DUMP = 0x300
_SHOW_PEER = 4
_SHOW_PENDING = 8
_ATTRIBUTE_PEER = 2
_ATTRIBUTE_PENDING = 3
_LISTENS = 1 << 10
_ANSWERS_MOST = 64
_ALL = 0xFFFFFFFF
_HEAD = struct.Struct("=IHHII")
_DIAG_BYTES = 16
"""Both the netlink header and ``struct unix_diag_msg`` have that size."""


def peer_of(inode: int) -> int:
    """The inode of the other end of a Unix socket in this network namespace; 0 where the kernel doesn't say.

    Of a connection that is not accepted yet, as by a program that is stopped, it is the socket that listens.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
            asked.settimeout(0.5)
            asked.send(_request(inode, _ALL, _SHOW_PEER, 0))
            peer = next((values[0] for _, values in _told(asked.recv(4096), _ATTRIBUTE_PEER) if values), 0)
            return peer or _listener_of(asked, inode)
    except (OSError, struct.error):
        return 0


def _listener_of(asked: socket.socket, inode: int) -> int:
    asked.send(_request(0, _LISTENS, _SHOW_PENDING, _NLM_F_DUMP))
    for _ in range(_ANSWERS_MOST):
        answer = asked.recv(1 << 16)
        for listener, pending in _told(answer, _ATTRIBUTE_PENDING):
            if inode in pending:
                return listener
        if struct.unpack_from("=IH", answer)[1] != _SOCK_DIAG_BY_FAMILY:
            break
    return 0


def _request(inode: int, states: int, show: int, flags: int) -> bytes:
    body = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, states, inode, show, _ALL, _ALL)
    return _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST | flags, 1, 0) + body


def _told(answer: bytes, wanted: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The inode of each socket in the answer that has the attribute, and the inodes that this one lists."""
    begins = 0
    while begins + 2 * _DIAG_BYTES <= len(answer):
        length, kind = struct.unpack_from("=IH", answer, begins)
        if kind != _SOCK_DIAG_BY_FAMILY:
            return
        (inode,) = struct.unpack_from("=I", answer, begins + _DIAG_BYTES + 4)
        at, end = begins + 2 * _DIAG_BYTES, min(begins + length, len(answer))
        while at + 4 <= end:
            size, attribute = struct.unpack_from("=HH", answer, at)
            if attribute == wanted:
                yield inode, struct.unpack_from(f"={max(0, size - 4) // 4}I", answer, at + 4)
            at += max(4, (size + 3) & ~3)
        begins += max(_DIAG_BYTES, (length + 3) & ~3)
