"""A real controller in a process of its own, fleets of hollow hosts in others, and certificates for each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from bench.support.usage import own_cpu_s, pss_mb

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast._security.tls import TlsFiles
from holdfast.client import Client
from holdfast.dev import ports
from holdfast.settings import ClientSettings

CLUSTER = "hollow"
USERS = ("ann", "tv", "wall", "otto")
"""The admin, two who only look, and one with a job."""
READY_S = 120.0


class HollowCluster:
    """Made by ``hollow_cluster``. Everything lies in ``directory``."""

    def __init__(
        self, directory: Path, hosts: int, fleets: int, gpus: int, *, bare: bool = False, database_url: str = ""
    ) -> None:
        self.directory = directory
        self.hosts = hosts
        self.bare = bare
        """Whether hosts tell nothing of what their ranks do."""
        self._gpus = gpus
        self._database_url = database_url
        self.shares = [hosts // fleets + (number < hosts % fleets) for number in range(fleets)]
        # Outside the range of outgoing connections, so that it is still free when the controller comes back.
        with ports.Reserved() as reserved:
            self._port = ports.choose(None, reserved, hosts=1, gpus=None, port=None).port
            self.web_port = ports.choose(None, reserved, hosts=1, gpus=None, port=None).port
            """Of the page."""
        self.empty_pss_mb = 0.0
        """The controller's memory before the first host came."""
        self._controller: subprocess.Popen[bytes] | None = None
        self._fleets: list[_Fleet] = []
        self._log = (directory / "controller.log").open("ab")

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def database(self) -> Path:
        return self.directory / "state" / "holdfast.db"

    @property
    def controller_pid(self) -> int:
        assert self._controller is not None, "no controller was started"
        return self._controller.pid

    @property
    def fleet_pids(self) -> list[int]:
        return [fleet.process.pid for fleet in self._fleets]

    def client(self, user: str = "ann") -> Client:
        """For the SDK, as an async context manager; ``ann`` is the admin."""
        tls = self._files(user)
        return Client(ClientSettings(f"127.0.0.1:{self._port}", tls.ca, tls.cert, tls.key))

    def prepare(self) -> None:
        """Certificates of all, and the controller's settings."""
        self.pki.mkdir()
        pki.create_ca(CLUSTER, self.pki)
        controller = Identity(CLUSTER, Kind.CONTROLLER, "controller")
        tls = pki.issue(self.pki, controller, self.pki, "controller", server=True)
        for user in USERS:
            pki.issue(self.pki, Identity(CLUSTER, Kind.USER, user), self.pki, user)
        for number in range(self.hosts):
            name = f"hollow-{number}"
            pki.issue(self.pki, Identity(CLUSTER, Kind.HOST, name), self.pki, name)
        settings = {
            "listen": f"127.0.0.1:{self._port}",
            "state_dir": str(self.directory / "state"),
            "ca": str(tls.ca),
            "cert": str(tls.cert),
            "key": str(tls.key),
            "cluster": CLUSTER,
            "admins": ["ann"],
            **({"database_url": self._database_url} if self._database_url else {}),
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines += ["[web]", f'listen = "127.0.0.1:{self.web_port}"']
        (self.directory / "controller.toml").write_text("\n".join(lines) + "\n")

    def start_controller(self) -> None:
        """In a process of its own; returns at once."""
        settings = str(self.directory / "controller.toml")
        command = [sys.executable, "-m", "bench.hollow.controller", "--config", settings]
        self._controller = subprocess.Popen(command, stderr=self._log, cwd=Path(__file__).parents[2])

    def controller_cpu_s(self) -> float:
        """Seconds of CPU that it has spent since it was started."""
        return own_cpu_s(self.controller_pid)

    def kill_controller(self) -> None:
        """As a power cut would; returns once it is gone."""
        assert self._controller is not None, "no controller was started"
        self._controller.kill()
        self._controller.wait()

    async def stop_controller(self) -> None:
        """Politely; returns once it is gone, and its store is closed."""
        if self._controller is not None:
            self._controller.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(self._controller.wait, 30.0)
            except subprocess.TimeoutExpired:
                self.kill_controller()
            self._controller = None

    async def listening(self) -> None:
        """Wait until the controller takes connections."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.005)
            else:
                writer.close()
                return

    async def answering(self, client: Client) -> None:
        """Wait until the controller answers a call."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                await client.newest_jobs(1)
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
            else:
                return

    async def start_fleets(self) -> None:
        """Returns once every host has a session."""
        first = 0
        for count in self.shares:
            arguments = ["--controller", f"127.0.0.1:{self._port}", "--pki", str(self.pki)]
            arguments += ["--first", str(first), "--count", str(count), "--gpus", str(self._gpus)]
            arguments += ["--bare"] if self.bare else []
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.hollow.fleet", *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[2],
            )
            self._fleets.append(_Fleet(process))
            first += count
        await self.all_connected()

    async def all_connected(self, within_s: float = READY_S, *, epoch: int = 1) -> dict[str, Any]:
        """Wait until every host has a session of ``epoch`` or later; the tally then. Raises ``TimeoutError``."""
        until = {"connected": self.shares, "epoch": [epoch] * len(self.shares)}
        tallies = await self.tell({"op": "tally"}, until, within_s)
        if tallies["connected"] < self.hosts:
            raise TimeoutError(f"{tallies['connected']} of {self.hosts} hosts have a session after {within_s:g} s")
        return tallies

    async def tell(
        self, order: dict[str, Any], until: dict[str, list[int]] | None = None, within_s: float = READY_S
    ) -> dict[str, Any]:
        """Have every fleet carry out an order; the sum of their tallies, ``at`` being the latest.

        ``until`` has a figure for each fleet.
        """
        wanted = [{name: figures[n] for name, figures in (until or {}).items()} for n in range(len(self._fleets))]
        answers = await asyncio.gather(
            *(
                fleet.ask({**order, "until": until, "within_s": within_s})
                for fleet, until in zip(self._fleets, wanted, strict=True)
            )
        )
        return _sum(answers)

    async def end(self, job: str, code: int, acked: list[int], rank: int | None = None) -> dict[str, Any]:
        """Let a job's ranks (or one of them) end; the tally once each fleet has so many more acknowledgements."""
        before = await asyncio.gather(*(fleet.ask({"op": "tally"}) for fleet in self._fleets))
        until = {"acked": [tally["acked"] + more for tally, more in zip(before, acked, strict=True)]}
        return await self.tell({"op": "end", "job": job, "code": code, "rank": rank}, until)

    async def tally(self) -> dict[str, Any]:
        """How things stand."""
        return await self.tell({"op": "tally"})

    async def close(self) -> None:
        """End every process."""
        processes = [fleet.process for fleet in self._fleets]
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in processes:
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        await self.stop_controller()
        self._log.close()

    def _files(self, name: str) -> TlsFiles:
        return TlsFiles(self.pki / "ca.pem", self.pki / f"{name}.pem", self.pki / f"{name}.key")


@contextlib.asynccontextmanager
async def hollow_cluster(
    directory: Path, hosts: int, *, fleets: int = 1, gpus: int = 8, bare: bool = False, database_url: str = ""
) -> AsyncIterator[tuple[HollowCluster, Client]]:
    """A controller, so many hosts that have a session with it, and a client. All processes end with the block.

    Its store is in a file unless ``database_url`` names a database of PostgreSQL.
    """
    cluster = HollowCluster(directory, hosts, fleets, gpus, bare=bare, database_url=database_url)
    try:
        await asyncio.to_thread(cluster.prepare)
        cluster.start_controller()
        async with cluster.client() as client:
            await cluster.answering(client)
            cluster.empty_pss_mb = pss_mb(cluster.controller_pid)
            await cluster.start_fleets()
            yield cluster, client
    finally:
        await cluster.close()


class _Fleet:
    """A process with some of the hosts: a line with an order goes to it, and a line with a tally comes back."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Its tally once it has carried out ``order``, which is no one else's even if others asked and gave up."""
        return await asyncio.shield(self._ask(order))

    async def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        async with self._one_at_a_time:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a fleet of hollow hosts has ended with {await self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _sum(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    latest = epoch = 0
    for answer in answers:
        latest, epoch = max(latest, answer.pop("at")), max(epoch, answer.pop("epoch"))
        notes.update(answer.pop("notes"))
        total.update(answer)
    return {**total, "at": latest, "epoch": epoch, "notes": dict(notes)}
