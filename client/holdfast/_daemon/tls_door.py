"""A listening port for TLS that lets callers begin handshakes at a rate, and only so many at once.

A handshake is computed in the daemon's event loop, a millisecond or two before anyone has shown a certificate. So
connections wait for their turn before it, those of each address for themselves: a caller who opens them without end
waits for itself. One that waits costs a descriptor, and of these an address has ``OF_ONE``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast._daemon import log

BURST, PER_S = 20, 50
"""Handshakes that one address may begin at once, and a second."""
OF_ONE, OF_ALL = 64, 512
"""Connections that wait for their handshake to begin or to end."""
NO_DESCRIPTOR_S = 0.5
"""Pause after the system had none for a connection."""
BACKLOG = 512


def network_of(peer: str) -> str:
    """The addresses that one caller may be behind: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


@dataclass(slots=True)
class _Caller:
    """The connections of one address whose handshake isn't over, and when the next one may begin."""

    waiting: int = 0
    next_at: float = 0.0


class Turns:
    """When each handshake may begin. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._callers: dict[str, _Caller] = {}
        self._waiting = 0

    def begin(self, address: str, now: float) -> float | None:
        """Seconds until a connection's handshake may begin, after which ``end`` is due; None where it is refused."""
        caller = self._callers.setdefault(address, _Caller())
        if caller.waiting >= OF_ONE or self._waiting >= OF_ALL:
            return None
        caller.waiting += 1
        self._waiting += 1
        caller.next_at = max(caller.next_at, now - BURST / PER_S) + 1 / PER_S
        return max(caller.next_at - now, 0.0)

    def crowd(self, address: str) -> str | None:
        """The address that gives one of its places up, where none is left: it has most, and more than this one."""
        if self._waiting < OF_ALL:
            return None
        found = max(self._callers, key=lambda name: self._callers[name].waiting)
        mine = self._callers.get(address)
        return found if self._callers[found].waiting > (mine.waiting if mine else 0) else None

    def end(self, address: str, now: float) -> None:
        """Forget a connection whose handshake is over, one way or another."""
        self._callers[address].waiting -= 1
        self._waiting -= 1
        if len(self._callers) > OF_ALL:
            self._callers = {name: one for name, one in self._callers.items() if one.waiting or one.next_at > now}


class TlsDoor:
    """Serves until it is closed; ``port`` is the one chosen if any was asked for."""

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        handshake_s: float,
    ) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self._factory, self._context, self._handshake_s = factory, context, handshake_s
        self._turns = Turns()
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._waiting: dict[str, dict[asyncio.Task[None], None]] = {}
        """Connections whose handshake isn't over, by address, the oldest first."""
        self._tasks = {self._loop.create_task(self._accept(each)) for each in sockets}

    def close(self) -> None:
        """Take no more connections; those whose handshake is over go on."""
        for task in self._tasks:
            task.cancel()
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, peer = await self._loop.sock_accept(listening)
            except OSError as error:
                log.warning("tls.not_accepted", error=str(error))
                await asyncio.sleep(NO_DESCRIPTOR_S)
                continue
            address = network_of(peer[0])
            wait_s = self._turns.begin(address, time.monotonic())
            if wait_s is None and (crowd := self._turns.crowd(address)) is not None:
                # Who has many addresses, as anyone has of IPv6, keeps no other out.
                oldest = next(iter(self._waiting[crowd]))
                oldest.cancel()
                await asyncio.wait({oldest})
                wait_s = self._turns.begin(address, time.monotonic())
            if wait_s is None:
                connection.close()
                continue
            self._begin(connection, address, wait_s)
            await asyncio.sleep(0)  # it has begun, and closes its connection whatever happens

    def _begin(self, connection: socket.socket, address: str, wait_s: float) -> None:
        task = self._loop.create_task(self._take_in(connection, address, wait_s))
        of_one = self._waiting.setdefault(address, {})
        of_one[task] = None
        self._tasks.add(task)

        def over(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            of_one.pop(task)
            if not of_one and self._waiting.get(address) is of_one:
                del self._waiting[address]

        task.add_done_callback(over)

    async def _take_in(self, connection: socket.socket, address: str, wait_s: float) -> None:
        try:
            with contextlib.ExitStack() as still_ours:
                still_ours.callback(connection.close)
                await asyncio.sleep(wait_s)
                still_ours.pop_all()
            # What goes wrong in anyone's handshake is no news here.
            with contextlib.suppress(OSError):
                await self._loop.connect_accepted_socket(
                    self._factory, connection, ssl=self._context, ssl_handshake_timeout=self._handshake_s
                )
        finally:
            self._turns.end(address, time.monotonic())


async def open_door(
    factory: Callable[[], asyncio.Protocol], host: str, port: int, context: ssl.SSLContext, handshake_s: float
) -> TlsDoor:
    """Serve a protocol over TLS at ``host``, on all of its addresses; port 0 takes any free one. Raises ``OSError``."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{host!r} can be no name") from error
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                made = opened.enter_context(socket.create_server(address, family=family, backlog=BACKLOG))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                continue  # names have addresses of IPv6 where the kernel has none
            made.setblocking(False)
            sockets.append(made)
        if not sockets:
            raise OSError(errno.EAFNOSUPPORT, "the kernel supports none of its addresses")
        opened.pop_all()
    return TlsDoor(sockets, factory, context, handshake_s)
