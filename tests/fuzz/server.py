"""Targets behind a real controller's HTTP port: raw bytes, addresses and bodies, over mutual TLS."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

from tests.fuzz.engine import Target, bound_memory
from tests.fuzz.pure import JOB_JSON

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki

READY_S, WITHIN_S = 60.0, 5.0
SILENT_S = 0.05
"""A request that is not whole gets no answer; so long is waited for one."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STALL_S = 0.1 + 2 * _TICK_S
"""CPU time of another process is known in ticks."""


class Failed(AssertionError):
    """The controller answered with a failure of its own."""


@dataclass
class Served:
    """A controller that listens for HTTP."""

    port: int
    pid: int
    context: ssl.SSLContext

    def targets(self) -> Iterator[Target]:
        """Raw requests, addresses, bodies."""
        get = b"GET /v1/jobs?filter=state%3DRUNNING&pageSize=10 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        post = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        post += b"Content-Length: %d\r\n\r\n" % len(JOB_JSON) + JOB_JSON
        header = (
            b"\r\nContent-Length: ",
            b"\r\nTransfer-Encoding: chunked",
            b"\r\n",
            b"Host: ",
            b"HTTP/1.1",
            b"\r\nA: ",
        )
        yield self._target("HTTP requests", self.raw, (get, post), 1 << 17, (*header, b"0\r\n\r\n", b"5\r\n"))
        paths = (
            *(
                b"/v1/jobs?filter=owner%3Dann&pageToken=1",
                b"/v1/jobs/j1/events?cursor=5",
                b"/v1/hosts",
                b"/v1/status",
            ),
            *(b"/v1/jobs/j1/logs?rank=0,1&tailLines=5", b"/v1/projects/p/locations/l/customJobs?readMask=name"),
        )
        more = (
            b"?",
            b"&",
            b"pageToken=",
            b"filter=",
            b"readMask=",
            b"cursor=",
            b"rank=",
            b"tailLines=",
            b"pageSize=",
        )
        yield self._target("HTTP addresses", self.get, paths, 1 << 15, more)
        bodies = (b'"a":', b'{"a":', b"[[", b"\\u0000", b'"displayName":', b'"workerPoolSpecs":[')
        yield self._target("HTTP bodies", self.post, (JOB_JSON, b"{}", b""), (4 << 20) + 64, bodies, stall_s=2.0)

    def _target(
        self,
        name: str,
        call: object,
        seeds: tuple[bytes, ...],
        most: int,
        tokens: tuple[bytes, ...],
        stall_s: float = STALL_S,
    ) -> Target:
        return Target(name, call, seeds, most, (), tokens, cpu_s=self.cpu_s, stall_s=stall_s)  # type: ignore[arg-type]

    def cpu_s(self) -> float:
        """CPU time of the controller so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def get(self, data: bytes) -> None:
        """An address, its odd bytes quoted as clients do it."""
        address = quote_from_bytes(data, safe="/?&=,.:%-_~").encode()
        self.raw(
            b"GET /%b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % address.lstrip(b"/"),
            within_s=WITHIN_S,
        )

    def post(self, data: bytes) -> None:
        """A body of its own length; a job that it makes is deleted again."""
        head = (
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        )
        answer = self.raw(head + b"Content-Length: %d\r\n\r\n" % len(data) + data, within_s=WITHIN_S)
        if answer.startswith(b"HTTP/1.1 200"):
            made = json.loads(answer.partition(b"\r\n\r\n")[2])["id"].encode()
            for line in (b"POST /v1/jobs/%b:cancel", b"DELETE /v1/jobs/%b"):
                rest = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                self.raw(line % made + rest, within_s=WITHIN_S)

    def raw(self, data: bytes, within_s: float = SILENT_S) -> bytes:
        """Send bytes on a connection of their own; the answer, as far as it came. Raises ``Failed`` for a 5xx."""
        with contextlib.ExitStack() as stack:
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), WITHIN_S))
            link = stack.enter_context(self.context.wrap_socket(plain, server_hostname="localhost"))
            answer = b""
            with contextlib.suppress(OSError):
                link.sendall(data)
                link.settimeout(within_s)
                while part := link.recv(1 << 16):
                    answer += part
                    if len(answer) > 1 << 20 or (within_s == SILENT_S and b"\r\n\r\n" in answer):
                        break
        assert Path(f"/proc/{self.pid}").exists(), "the controller has ended"
        status = answer[9:12]
        # A watch and a host's logs are refused as unavailable where there is neither.
        if status in (b"500", b"501", b"502"):
            raise Failed(answer[:500])
        return answer


@contextlib.contextmanager
def controller(folder: Path) -> Iterator[Served]:
    """A controller with an HTTP port, as a process of its own, while the block runs."""
    keys, state = folder / "pki", folder / "state"
    keys.mkdir()
    pki.create_ca("fuzz", keys)
    serves = pki.issue(keys, Identity("fuzz", Kind.CONTROLLER, "c"), keys, "controller", server=True)
    ann = pki.issue(keys, Identity("fuzz", Kind.USER, "ann"), keys, "ann")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = folder / "controller.toml"
    settings.write_text(
        f'listen = "127.0.0.1:0"\nhttp_port = {port}\nstate_dir = "{state}"\nca = "{serves.ca}"\n'
        f'cert = "{serves.cert}"\nkey = "{serves.key}"\ncluster = "fuzz"\nadmins = ["ann"]\n'
    )
    log = folder / "controller.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "holdfast_controller", "--config", str(settings)]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until = time.monotonic() + READY_S
        while "controller.ready" not in log.read_text():
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        bound_memory(process.pid)
        context = ssl.create_default_context(cafile=str(ann.ca))
        context.load_cert_chain(ann.cert, ann.key)
        yield Served(port, process.pid, context)
    finally:
        process.terminate()
        process.wait(30)
