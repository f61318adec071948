"""Has the kernel refuse a share of an address's new connections, before they cost anything, by a filter on a socket.

The filter is classic BPF (Linux, ``filter.txt``), which needs no privilege. It looks at requests for a connection
alone, and drops those of the given networks at random. Who is dropped tries again a second later, by itself.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Mapping

NETWORKS_MOST = 32
"""In one filter: the kernel gives each socket a few kilobytes for it."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_INSTRUCTION = struct.Struct("@HBBI")
_BYTE, _WORD, _AND, _RIGHT, _EQUAL, _AT_LEAST, _ON, _RETURN = 0x30, 0x20, 0x54, 0x74, 0x15, 0x35, 0x05, 0x06
"""Load a byte, load a word, and, shift right, jump if equal, jump if at least, jump, return."""
_NETWORK_HEADER, _RANDOM = 0xFFF00000, 0xFFFFF000 + 56
"""Where the packet's network header lies, and a random word. By themselves offsets count from the TCP header."""
_FLAGS, _SYN, _ACK = 13, 0x02, 0x10
_CHANCES = 1 << 16
_ACCEPT, _DROP = (_RETURN, 0, 0, 0xFFFFFFFF), (_RETURN, 0, 0, 0)

Instruction = tuple[int, int, int, int]
"""What to do, how many to skip if so, how many if not, and with which number."""


def refuse(listening: socket.socket, admitted: Mapping[str, float]) -> None:
    """Have the kernel admit the share of requests that ``admitted`` has for their network; all of the others.

    A network is an IPv4 address or an IPv6 /64. Raises ``OSError`` where the kernel can't.
    """
    if not admitted:
        listening.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        return
    worst = sorted(admitted, key=lambda network: admitted[network])[:NETWORKS_MOST]
    program = b"".join(_INSTRUCTION.pack(*each) for each in instructions({name: admitted[name] for name in worst}))
    held = ctypes.create_string_buffer(program)
    described = struct.pack("@HP", len(program) // _INSTRUCTION.size, ctypes.addressof(held))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)


def instructions(admitted: Mapping[str, float]) -> list[Instruction]:
    """The filter's program."""
    of_4: list[Instruction] = [(_WORD, 0, 0, _NETWORK_HEADER + 12)]
    of_6: list[Instruction] = []
    for name, share in admitted.items():
        network = ipaddress.ip_network(name)
        chance: list[Instruction] = [
            (_WORD, 0, 0, _RANDOM),
            (_AND, 0, 0, _CHANCES - 1),
            (_AT_LEAST, 0, 1, max(round(share * _CHANCES), 1)),
            _DROP,
            _ACCEPT,
        ]
        address = int(network.network_address)
        if network.version == 4:
            of_4 += [(_EQUAL, 0, len(chance), address), *chance]
        else:
            low: list[Instruction] = [
                (_WORD, 0, 0, _NETWORK_HEADER + 12),
                (_EQUAL, 0, len(chance), address >> 64 & 0xFFFFFFFF),
                *chance,
            ]
            of_6 += [(_WORD, 0, 0, _NETWORK_HEADER + 8), (_EQUAL, 0, len(low), address >> 96), *low]
    return [
        (_BYTE, 0, 0, _FLAGS),
        (_AND, 0, 0, _SYN | _ACK),
        (_EQUAL, 1, 0, _SYN),
        _ACCEPT,
        (_BYTE, 0, 0, _NETWORK_HEADER),
        (_RIGHT, 0, 0, 4),
        (_EQUAL, 0, 1, 4),
        (_ON, 0, 0, len(of_6) + 1),
        *of_6,
        _ACCEPT,
        *of_4,
        _ACCEPT,
    ]
