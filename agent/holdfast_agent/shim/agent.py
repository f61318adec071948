"""The agent, as a shim has it: the newest connection, and all that is said to it."""

from __future__ import annotations

import json
import os
import select

from holdfast_agent.shim.link import Link, may_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket

    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.processes import Process


class Agent:
    """Gives orders and hears what happened. What it does not take is dropped with the connection."""

    def __init__(self, epoll: select.epoll, fd: int) -> None:
        self.epoll = epoll
        self.link: Link | None = None
        self.connect(fd)

    def connect(self, fd: int) -> None:
        """Takes the newest connection; the one before it is over."""
        self.drop()
        self.link = Link(fd)
        self.epoll.register(fd, select.EPOLLIN)

    def accept(self, listener: Socket) -> bool:
        """Take the connection that waits, if it may give orders. Returns whether it was taken."""
        try:
            fd, _ = listener._accept()  # type: ignore[attr-defined]
        except OSError:
            self.drop()  # it has gone again, or the old connection's descriptor is needed for it
            return False
        if not may_order(fd):
            os.close(fd)
            return False
        self.connect(fd)
        return True

    def drop(self) -> None:
        """End the connection; the next one begins with a replay."""
        if self.link:
            self.link.close()
            self.link = None

    def greet(self, hello: Record, replay: list[Record]) -> None:
        """Say `hello`, then every record of the current generation that was reported."""
        if self.link:
            self.link.out_limit_bytes += sum(len(json.dumps(record)) + 32 for record in replay)
        self.say(hello)
        self.tell(hello["generation"], replay)

    def say(self, message: Record | None = None) -> None:
        """Send without waiting, continuing what was not sent; an agent that does not read loses the connection."""
        link = self.link
        if link is None:
            return
        line = json.dumps(message).encode() + b"\n" if message else b""
        if link.send(line) and not link.overdue:
            self.epoll.modify(link.fd, select.EPOLLIN | (select.EPOLLOUT if link.out else 0))
        else:
            self.drop()

    def tell(self, generation: int, records: list[Record]) -> None:
        """Say records of a generation."""
        for record in records:
            self.say({**record, "generation": generation})

    def refuse(self, generation: int, message: str) -> None:
        """Say why an order is not carried out."""
        self.say({"ev": "refused", "generation": generation, "message": message})

    def note(self, generation: int, message: str) -> None:
        """Say something for the agent's log."""
        self.say({"ev": "note", "generation": generation, "message": message})

    def stuck(self, generation: int, left: list[Process], problem: str, detail: str = "") -> None:
        """Say what is wrong with which processes, or with something else."""
        message = f"{problem}: {', '.join(process.where() for process in left[:50]) or detail}"
        pids = [process.pid for process in left]
        self.say({"ev": "stuck", "generation": generation, "pids": pids, "message": message})
