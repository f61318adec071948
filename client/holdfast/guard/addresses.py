"""Under which addresses the tasks of a job reach its first host."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
import subprocess

from holdfast.errors import ConfigError
from holdfast.guard.allocation import Allocation

TOOL_S = 10.0
_NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation."""
_SIOCGIFADDR = 0x8915
"""The address of an interface: see netdevice(7)."""


def of_first(place: Allocation) -> list[str]:
    """Addresses of the host of task 0, the likeliest first. Raises ``ConfigError`` where its name leads nowhere."""
    if place.kind == "alone":
        return ["127.0.0.1"]
    if place.first_addresses:
        return list(place.first_addresses)
    name = _node_address(place.first_host) if place.kind == "slurm" else place.first_host
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for what can be no name
        raise ConfigError(
            f"{place.host} can't find the address of {name}, the host of task 0: {error}.",
            fix="Have the hosts of a job resolve each other's names.",
        ) from error
    where = list(dict.fromkeys(str(each[4][0]) for each in found))
    # A Debian has its own name lead to 127.0.1.1, at which no other host reaches it.
    is_this_host = name not in (*where, "localhost") and all(map(_is_loopback, where))
    return of_this_host() if is_this_host else where


def of_this_host() -> list[str]:
    """Addresses under which other hosts may reach this one, the likeliest first."""
    found: dict[str, None] = {}
    for family, nowhere in _NOWHERE:
        # Connecting sends nothing, and chooses the address of the route that it would take.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((nowhere, 9))
            found[probe.getsockname()[0]] = None
    try:
        names = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        names = []
    found |= dict.fromkeys(str(each[4][0]) for each in names)
    return [each for each in found if not _is_loopback(each)] or _of_interfaces() or ["127.0.0.1"]


def _of_interfaces() -> list[str]:
    """Addresses by IPv4 of a host that has no route to elsewhere, and no name for them."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("40s", name.encode()))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [each for each in found if not _is_loopback(each)]


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def own(addresses: list[str]) -> str:
    """The first of them that is this machine's. Raises ``ConfigError``."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return address
    raise ConfigError(f"This is the host of task 0, but {', '.join(addresses)} is no address of it.")


def joined(address: str, port: int) -> str:
    """Write an address and a port as one text."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _node_address(name: str) -> str:
    """A node's address as Slurm knows it; its name where Slurm doesn't say."""
    try:
        done = subprocess.run(["scontrol", "show", "node", name], capture_output=True, timeout=TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return name
    words = done.stdout.decode(errors="replace").split()
    return next((word.removeprefix("NodeAddr=") for word in words if word.startswith("NodeAddr=")), name)
