"""Two servers of PostgreSQL on machines of their own: one takes writes, the other one is its synchronous replica."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.faults.network import Network
from tests.support.postgres import Server

PORT = 5432
WITHIN_S = 180.0
_SETTINGS = """
listen_addresses = '*'
fsync = off
max_connections = 40
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
autovacuum = off
wal_retrieve_retry_interval = 200ms
wal_sender_timeout = 5s
wal_receiver_timeout = 5s
synchronous_standby_names = '{synchronous}'
unix_socket_directories = '{folder}'
primary_conninfo = 'host={other} port={port} user=holdfast connect_timeout=3'
"""


@dataclass
class Databases:
    """The servers by the name of their machine, and which of them takes writes."""

    network: Network
    servers: dict[str, Server] = field(default_factory=dict)
    primary: str = ""

    @property
    def replica(self) -> str:
        """The machine of the one that follows."""
        return next(name for name in self.servers if name != self.primary)

    @property
    def address(self) -> str:
        """How controllers are told of both."""
        hosts = ",".join(map(self.network.address, self.servers))
        return f"host={hosts} user=holdfast dbname=holdfast"

    def begin(self) -> None:
        """Make both, and the database."""
        self.primary, _ = self.servers
        server = self.servers[self.primary]
        server.run("initdb", "-U", "holdfast", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        with (server.folder / "data/pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/24 trust\nhost replication all 10.77.0.0/24 trust\n")
        self._settle(self.primary, synchronous="")
        server.start()
        server.sql("CREATE DATABASE holdfast")
        self.follow()

    def follow(self) -> None:
        """Have the other server follow the one that takes writes, from a new copy of it, and commits wait for it."""
        primary, replica = self.servers[self.primary], self.servers[self.replica]
        shutil.rmtree(replica.folder / "data", ignore_errors=True)
        source = ("-h", self.network.address(self.primary), "-U", "holdfast", "-D", f"{replica.folder}/data")
        replica.run("pg_basebackup", *source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        (replica.folder / "data/postgresql.auto.conf").write_text("")
        self._settle(self.replica, synchronous="")
        replica.start()
        self._synchronous(primary, "*")
        self.in_step()

    def in_step(self) -> None:
        """Wait until commits reach both."""
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn IS NOT NULL"
        deadline = time.monotonic() + WITHIN_S
        while self.asked(query) != "1":
            assert time.monotonic() < deadline, (self.servers[self.replica].folder / "log").read_text()[-3000:]
            time.sleep(0.1)

    def asked(self, query: str) -> str:
        """What the one that takes writes answers."""
        server = self.servers[self.primary]
        return server.run(
            "psql", "-h", str(server.folder), "-U", "holdfast", "-d", "postgres", "-Atc", query
        ).strip()

    def kill(self, name: str) -> None:
        """The machine of a server loses its power."""
        found = self._processes(name)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, WITHIN_S)
        folder = self.servers[name].folder
        for left in (folder / "data/postmaster.pid", *folder.glob(".s.PGSQL*")):
            left.unlink(missing_ok=True)

    def signal(self, name: str, what: signal.Signals) -> None:
        """Send a signal to every process of a server."""
        for process in self._processes(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(what)

    def start(self, name: str) -> None:
        """Start it where it ended."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                return self.servers[name].start()
            except RuntimeError:
                assert time.monotonic() < deadline
                time.sleep(0.5)

    def promote(self) -> None:
        """The replica takes over, as a manager of replicas has it: alone until the other one follows again."""
        new = self.replica
        self._synchronous(self.servers[new], "")
        self.servers[new].promote()
        self.primary = new

    def _synchronous(self, server: Server, names: str) -> None:
        file = server.folder / "data/postgresql.conf"
        with file.open("a") as settings:
            settings.write(f"synchronous_standby_names = '{names}'\n")
        server.run("pg_ctl", "reload")

    def _settle(self, name: str, synchronous: str) -> None:
        other = next(each for each in self.servers if each != name)
        server = self.servers[name]
        text = _SETTINGS.format(
            synchronous=synchronous, folder=server.folder, other=self.network.address(other), port=PORT
        )
        with (server.folder / "data/postgresql.conf").open("a") as settings:
            settings.write(text)

    def _processes(self, name: str) -> list[psutil.Process]:
        try:
            head = psutil.Process(int((self.servers[name].folder / "data/postmaster.pid").read_text().split()[0]))
            return [head, *head.children(recursive=True)]
        except (OSError, IndexError, psutil.NoSuchProcess):
            return []


@contextlib.contextmanager
def running(network: Network, first: str, second: str) -> Iterator[Databases]:
    """Servers on two machines of the network, for as long as the block runs. Needs root."""
    made = Databases(network)
    try:
        for name in (first, second):
            folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))  # a socket's path has to be short
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
            made.servers[name] = Server(folder, inside=tuple(network.inside(name)))
        made.begin()
        yield made
    finally:
        for name, server in made.servers.items():
            made.signal(name, signal.SIGCONT)
            made.kill(name)
            shutil.rmtree(server.folder, ignore_errors=True)
