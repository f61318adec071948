"""Sums vectors over all ranks by TCP, in a star around rank 0.

Rank 0 listens at MASTER_ADDR:MASTER_PORT and every other rank keeps one connection to it. Rank 0 adds the
vectors up in rank order and sends one sum back, so every rank holds the same bits, run after run. A ring would
move less through rank 0; with a few ranks and a small network a star is shorter to read and fast enough.

A peer that dies closes its connections, which every other rank sees at once as ConnectionError. A peer that
lives and says nothing is waited for without end, as NCCL and gloo do: noticing that is somebody else's work.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]

_HELLO = struct.Struct("!8sII")  # magic, rank, world size
_MAGIC = b"digits-1"
_HEADER = struct.Struct("!Q")  # bytes of the vector that follows
_HELLO_TIMEOUT_S = 5.0
_RETRY_S = 0.05


class Group:
    """One generation's ranks, connected. `peers` holds (rank, socket): all others on rank 0, rank 0 elsewhere."""

    def __init__(self, rank: int, peers: Sequence[tuple[int, socket.socket]]) -> None:
        self.rank = rank
        self._peers = list(peers)

    def all_reduce(self, vector: Vector) -> None:
        """Replaces `vector` by the sum of all ranks' vectors, the same bits on every rank.

        Raises ConnectionError naming the peer when one is gone or sent another length.
        """
        if self.rank == 0:
            incoming = np.empty_like(vector)
            for peer, connection in self._peers:
                _receive(connection, peer, incoming)
                vector += incoming
        else:
            for peer, connection in self._peers:
                _send(connection, peer, vector)
        self.broadcast(vector)

    def broadcast(self, vector: npt.NDArray[Any]) -> None:
        """Replaces `vector`, of any type, by rank 0's. Raises ConnectionError as `all_reduce` does."""
        for peer, connection in self._peers:
            if self.rank == 0:
                _send(connection, peer, vector)
            else:
                _receive(connection, peer, vector)

    def barrier(self) -> None:
        """Returns once every rank has come here."""
        self.all_reduce(np.zeros(1, np.float32))

    def close(self) -> None:
        """Closes all connections."""
        for _, connection in self._peers:
            connection.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def join(rank: int, world_size: int, address: str, port: int, timeout_s: float = 60.0) -> Group:
    """Connects this rank with all others, whichever starts first; alone it needs no network.

    Raises ConnectionError when not all ranks have met within `timeout_s`, or when two disagree about the gang.
    """
    deadline = time.monotonic() + timeout_s
    if world_size == 1:
        return Group(0, [])
    if rank == 0:
        return Group(0, _gather(world_size, address, port, deadline))
    connection = _reach(address, port, deadline)
    connection.sendall(_HELLO.pack(_MAGIC, rank, world_size))
    return Group(rank, [(0, _steady(connection))])


def _gather(world_size: int, address: str, port: int, deadline: float) -> list[tuple[int, socket.socket]]:
    """Accepts every other rank once, in any order."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    joined: dict[int, socket.socket] = {}
    with (
        ExitStack() as opened,
        socket.create_server((address, port), family=family, backlog=world_size) as listener,
    ):
        while len(joined) < world_size - 1:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, caller = listener.accept()
            except TimeoutError:
                missing = sorted(set(range(1, world_size)) - set(joined))
                raise ConnectionError(f"ranks {missing} of {world_size} did not come to {address}:{port}") from None
            opened.enter_context(connection)
            peer = _greet(connection, world_size)
            if peer is None:  # a port scanner, or a health check
                connection.close()
                continue
            if peer in joined:
                raise ConnectionError(f"two processes call themselves rank {peer}; the second is at {caller[0]}")
            joined[peer] = _steady(connection)
        opened.pop_all()  # a gang that is whole keeps its connections
    return sorted(joined.items(), key=lambda item: item[0])


def _greet(connection: socket.socket, world_size: int) -> int | None:
    """Reads the caller's rank, None if it isn't one of ours. Raises ConnectionError on another world size."""
    connection.settimeout(_HELLO_TIMEOUT_S)
    hello = bytearray(_HELLO.size)
    try:
        _fill(connection, memoryview(hello))
    except OSError:
        return None
    magic, rank, claimed = _HELLO.unpack(hello)
    if magic != _MAGIC:
        return None
    if claimed != world_size or not 0 < rank < world_size:
        raise ConnectionError(f"a peer says rank {rank} of {claimed}, but the world size here is {world_size}")
    return int(rank)


def _reach(address: str, port: int, deadline: float) -> socket.socket:
    """Connects to rank 0, which may not listen yet."""
    while True:
        try:
            connection = socket.create_connection((address, port), max(deadline - time.monotonic(), 0.001))
        except OSError as error:  # refused, unreachable, not resolvable yet
            if time.monotonic() >= deadline:
                raise ConnectionError(f"rank 0 was not there at {address}:{port}: {error}") from error
        else:
            if connection.getsockname() != connection.getpeername():
                return connection
            connection.close()  # TCP met itself: the kernel picked the port nobody listened on yet
        time.sleep(_RETRY_S)


def _steady(connection: socket.socket) -> socket.socket:
    """The connection as training wants it: no delay, no time limit."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(None)
    return connection


def _send(connection: socket.socket, peer: int, vector: npt.NDArray[Any]) -> None:
    try:
        connection.sendall(_HEADER.pack(vector.nbytes))
        connection.sendall(vector.data.cast("B"))
    except OSError as error:
        raise ConnectionError(f"lost rank {peer} while sending: {error}") from None


def _receive(connection: socket.socket, peer: int, vector: npt.NDArray[Any]) -> None:
    header = bytearray(_HEADER.size)
    try:
        _fill(connection, memoryview(header))
        (length,) = _HEADER.unpack(header)
        if length == vector.nbytes:
            _fill(connection, vector.data.cast("B"))
    except OSError as error:
        raise ConnectionError(f"lost rank {peer}: {error}") from None
    if length != vector.nbytes:
        raise ConnectionError(f"rank {peer} sent {length} bytes where {vector.nbytes} were due")


def _fill(connection: socket.socket, view: memoryview) -> None:
    """Reads until `view` is full. Raises ConnectionError at end of file."""
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionError("the connection was closed")
        view = view[count:]
