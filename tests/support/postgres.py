"""A server of PostgreSQL in a temporary folder, on a Unix socket alone. Run by root it uses another account."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",  # it is the machine that would have to fail
    "max_connections": "20",
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",  # in its own folder: a server that is killed would leave it in /dev/shm
    "autovacuum": "off",
}


def missing() -> str:
    """What is missing for a server here; empty if nothing is."""
    if not (PROGRAMS or shutil.which("initdb")):
        return "PostgreSQL"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg"
    return ""


@dataclass
class Server:
    """A server that can be stopped and started again."""

    folder: Path
    hosts: tuple[Path, ...] = ()
    """Folders of all servers of which one may lead, if there are several."""
    inside: tuple[str, ...] = ()
    """What its programs are started by, such as nsenter with a network namespace."""

    def address(self, database: str) -> str:
        hosts = ",".join(map(str, self.hosts or (self.folder,)))
        return f"host={hosts} user=holdfast dbname={database}"

    def url(self, database: str) -> str:
        """The same as a URL, which a TOML file can hold between double quotes."""
        return f"postgresql://holdfast@/{database}?host={','.join(map(str, self.hosts or (self.folder,)))}"

    def start(self) -> None:
        self.run("pg_ctl", "-w", "-t", "60", "-l", f"{self.folder}/log", "start")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-w", "-t", "60", "-m", mode, "stop")

    def sql(self, statement: str) -> None:
        """Execute a statement, such as CREATE DATABASE, as an administrator."""
        import psycopg  # it may not be there

        alone = f"host={self.folder} user=holdfast dbname=postgres"
        with psycopg.connect(alone, autocommit=True) as connection:
            connection.execute(statement.encode())

    def promote(self) -> None:
        """Have a replica take writes."""
        self.run("pg_ctl", "-w", "-t", "60", "promote")

    def caught_up(self, replica: Server) -> None:
        """Wait until a replica has written all that this server has."""
        import psycopg

        alone = f"host={self.folder} user=holdfast dbname=postgres"
        query = "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_lsn()"
        deadline = time.monotonic() + 60
        with psycopg.connect(alone, autocommit=True) as connection:
            while connection.execute(query).fetchone() != (1,):
                assert time.monotonic() < deadline, (replica.folder / "log").read_text()
                time.sleep(0.05)

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs on this server's data; what it has said. Raises ``RuntimeError``."""
        # Not by subprocess: it would fork, which a process with gRPC's threads should not.
        other = ["setpriv", f"--reuid={account}", "--clear-groups"] if (account := _account()) is not None else []
        command = [*self.inside, *other, str(PROGRAMS[-1] / program) if PROGRAMS else program, *arguments]
        place = {**os.environ, "PGDATA": f"{self.folder}/data", "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command,
            env=place,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        if done.returncode:
            log = self.folder / "log"
            told = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} has failed: {done.stdout}{told}")
        return done.stdout


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A new server for as long as the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))  # a socket's path has to be short
    try:
        if (account := _account()) is not None:
            os.chown(folder, pwd.getpwnam(account).pw_uid, -1)
        server = Server(folder)
        server.run("initdb", "-U", "holdfast", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write("".join(f"{name} = {value}\n" for name, value in SETTINGS.items()))
            settings.write(f"unix_socket_directories = '{folder}'\n")
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def with_replica() -> Iterator[tuple[Server, Server]]:
    """A new server and its replica, which is not synchronous; the addresses of both name both."""
    with running() as primary:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))
        replica = Server(folder)
        primary.hosts = replica.hosts = (primary.folder, folder)
        try:
            if (account := _account()) is not None:
                os.chown(folder, pwd.getpwnam(account).pw_uid, -1)
            source = ("-h", str(primary.folder), "-U", "holdfast", "-D", f"{folder}/data")
            replica.run("pg_basebackup", *source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
            with (folder / "data/postgresql.conf").open("a") as settings:
                settings.write(f"unix_socket_directories = '{folder}'\nwal_retrieve_retry_interval = 200ms\n")
            replica.start()
            try:
                yield primary, replica
            finally:
                with contextlib.suppress(RuntimeError):
                    replica.stop("immediate")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def copied(server: Server) -> Iterator[Server]:
    """Another server that has what this one has now; it is not running, and this one goes on."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir="/tmp"))
    made = Server(folder)
    try:
        if (account := _account()) is not None:
            os.chown(folder, pwd.getpwnam(account).pw_uid, -1)
        server.stop()
        subprocess.run(["cp", "-a", f"{server.folder}/data", f"{folder}/data"], check=True)
        server.start()
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write(f"unix_socket_directories = '{folder}'\n")
        try:
            yield made
        finally:
            with contextlib.suppress(RuntimeError):
                made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> str | None:
    return "nobody" if os.geteuid() == 0 else None
