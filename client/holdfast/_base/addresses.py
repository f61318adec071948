"""Addresses of the controllers of one cluster: ``HOST:PORT``, or several between commas, of which one leads."""

from __future__ import annotations

import ipaddress
import socket

from holdfast.errors import ConfigError

MIN_PING_MS = 1_000
"""Callers that ask more often than this whether the controller is there are refused by it."""


def parse(text: str, key: str) -> tuple[str, ...]:
    """Each address. Raises ``ConfigError`` that names the setting."""
    found = tuple(each.strip() for each in text.split(","))
    for each in found:
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f'{key} must be "HOST:PORT", not {each!r}.',
                fix='Several controllers are written with commas between: "HOST:PORT,HOST:PORT".',
            )
    return found


def target(text: str) -> str:
    """The target of a channel that connects to whichever of the addresses answers.

    Names are resolved now where there are several; those that have no address are left out while others have one.
    """
    several = parse(text, "controller")
    if len(several) == 1:
        return several[0]
    found = [address for each in several for address in _resolved(each)]
    if not found:
        return several[0]  # gRPC says of it that the name is not known
    if all(ip.version == 4 for ip, _ in found):
        return "ipv4:" + ",".join(f"{ip}:{port}" for ip, port in found)
    mapped = (f"[::ffff:{ip}]:{port}" if ip.version == 4 else f"[{ip}]:{port}" for ip, port in found)
    return "ipv6:" + ",".join(mapped)


def keepalive(idle_ms: int, answer_ms: int) -> tuple[tuple[str, int], ...]:
    """Options of a channel or server: who was silent for ``idle_ms`` is asked, and has ``answer_ms`` to answer."""
    return (
        ("grpc.keepalive_time_ms", idle_ms),
        ("grpc.keepalive_timeout_ms", answer_ms),
        # gRPC has two bounds on the answer to a ping, and by default this one lets a frozen peer have a minute.
        ("grpc.http2.ping_timeout_ms", answer_ms),
    )


def fixed_window(size: int) -> tuple[tuple[str, int], ...]:
    """Options of a channel or server: so many bytes of a call may be under way to it, and wait there unread.

    Without it gRPC measures what the network bears, by a ping and an answer for each message of a quiet connection, and
    lets a caller who sends fast fill memory with megabytes of each call.
    """
    return (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", size))


FIXED_WINDOW = fixed_window(1 << 20)
"""Of agents' channels: what the controller may send ahead."""

SEVERAL = (*keepalive(2_000, 3_000), ("grpc.min_reconnect_backoff_ms", 3_000))
"""Of a channel to one of several controllers: one that is frozen or unplugged is given up for another within 5 s.

The last of them is also the time that an attempt to connect may take.
"""


def _resolved(address: str) -> list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for what can be no name
        return []
    return [(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]), int(port)) for entry in found]


class Addresses:
    """The address to dial of several: the one that answered last, until it fails."""

    def __init__(self, text: str) -> None:
        """Take what the settings say. Raises ``ConfigError``."""
        self._all = parse(text, "controller")
        self._at = self._first = 0
        """Position of the one to dial, and of the one that a round began with."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all)

    @property
    def current(self) -> str:
        """The one to dial."""
        return self._all[self._at]

    def answered(self) -> None:
        """The current one leads: a round of tries begins with it."""
        self._first = self._at

    def failed(self) -> bool:
        """The current one does not lead: dial the next one. Whether each was tried since one has answered, or since
        this was last true."""
        self._at = (self._at + 1) % len(self._all)
        return self._at == self._first
