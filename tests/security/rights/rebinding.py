"""Run in a network namespace of its own: a name server that answers differently each time, and two receivers.

Prints JSON: what became of each delivery, how often the name was asked for, and what each receiver got.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import threading

from holdfast_controller.shell.notify.allowed_hosts import AllowedHosts
from holdfast_controller.shell.notify.channels import Target
from holdfast_controller.shell.notify.render import test_message as message
from holdfast_controller.shell.notify.sender import NotDelivered, Sender

HOST = "hooks.example"
ALLOWED, INSIDE = "127.0.0.5", "127.0.0.6"
PORT = 8080


class NameServer(threading.Thread):
    """Answers for IPv4 with the allowed address the first time, and with the other one from then on; TTL 0."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))

    def run(self) -> None:
        while True:
            data, sender = self._socket.recvfrom(512)
            end = data.index(b"\0", 12) + 1
            (kind,) = struct.unpack_from(">H", data, end)
            address = b""
            if kind == 1:
                address = socket.inet_aton(INSIDE if self.asked else ALLOWED)
                self.asked += 1
            head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, int(bool(address)), 0, 0) + data[12 : end + 4]
            answer = struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + address if address else b""
            self._socket.sendto(head + answer, sender)


async def main() -> None:
    names = NameServer()
    names.start()
    got = {ALLOWED: 0, INSIDE: 0}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        got[writer.get_extra_info("sockname")[0]] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    for address in got:
        await asyncio.start_server(serve, address, PORT)
    target = Target(f"http://{HOST}:{PORT}/x", "hook", allowed=AllowedHosts((HOST, ALLOWED)))
    became = []
    for _ in range(3):
        sender, asked = Sender(), names.asked
        try:
            await sender.send(target, message("x", "t", 1.0))
            became.append(["delivered", names.asked - asked])
        except NotDelivered as error:
            became.append([str(error), names.asked - asked])
        finally:
            await sender.close()
    json.dump({"became": became, "got": got}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
