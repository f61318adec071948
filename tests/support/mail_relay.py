"""A mail relay on loopback: a real SMTP server that keeps what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message

WITHIN_S = 180.0


@dataclass
class Relay:
    """``refuses``: it answers each mail with a temporary failure."""

    port: int = 0
    refuses: bool = False
    mails: list[Message] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    tries: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, test: Callable[[Relay], object]) -> None:
        """Wait until ``test`` holds."""
        async with asyncio.timeout(WITHIN_S):
            while not test(self):
                self.news.clear()
                await self.news.wait()

    def texts(self) -> list[str]:
        """The plain text of each mail."""
        found = []
        for mail in self.mails:
            parts = [part for part in mail.walk() if part.get_content_type() == "text/plain"] or [mail]
            payload = parts[0].get_payload(decode=True)
            assert isinstance(payload, bytes)
            found.append(payload.decode())
        return found

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        try:
            say("220 relay.test ESMTP")
            while line := (await reader.readline()).decode().strip():
                verb = line[:4].upper()
                if verb == "RCPT":
                    self.recipients.append(line.partition("<")[2].partition(">")[0])
                if verb == "DATA":
                    say("354 go on")
                    data = await reader.readuntil(b"\r\n.\r\n")
                    self.tries += 1
                    if not self.refuses:
                        self.mails.append(message_from_bytes(data[:-5].replace(b"\r\n..", b"\r\n.")))
                    say("451 not now" if self.refuses else "250 taken")
                    self.news.set()
                else:
                    say("221 bye" if verb == "QUIT" else "250 relay.test")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relay() -> AsyncIterator[Relay]:
    """A relay that listens while the block runs."""
    made = Relay()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
