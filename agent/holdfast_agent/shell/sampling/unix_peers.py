"""Asks the kernel for the other end of a Unix socket, by its diagnostic netlink family."""

from __future__ import annotations

import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_SHOW_PEER = 4
_ATTRIBUTE_PEER = 2
_ALL = 0xFFFFFFFF
_HEAD = struct.Struct("=IHHII")
_DIAG_BYTES = 16
"""Both the netlink header and ``struct unix_diag_msg`` have that size."""


def peer_of(inode: int) -> int:
    """The inode of the other end of a Unix socket in this network namespace; 0 where the kernel doesn't say."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL, inode, _SHOW_PEER, _ALL, _ALL)
    head = _HEAD.pack(_HEAD.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
            asked.settimeout(0.5)
            asked.send(head + request)
            return _peer_in(asked.recv(4096))
    except (OSError, struct.error):
        return 0


def _peer_in(answer: bytes) -> int:
    length, kind = struct.unpack_from("=IH", answer)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return 0
    at = 2 * _DIAG_BYTES
    while at + 8 <= min(length, len(answer)):
        size, attribute = struct.unpack_from("=HH", answer, at)
        if attribute == _ATTRIBUTE_PEER:
            return int(struct.unpack_from("=I", answer, at + 4)[0])
        at += max(4, (size + 3) & ~3)
    return 0
