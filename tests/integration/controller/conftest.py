"""A controller served in this process over mutual TLS, and the certificates of those who call it."""

from __future__ import annotations

import asyncio
import functools
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.controller.cluster import Certificates, Controller
from tests.integration.controller.process import Process
from tests.integration.controller.store.places import InFile, InPostgres, Place
from tests.support.postgres import Server, running

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast._security.tls import TlsFiles
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main.server import serve
from holdfast_controller.shell.store.store import Store


@pytest.fixture
def certificates(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA's, in a folder of the test's own."""
    made = _issued(str(tmp_path_factory.getbasetemp()))
    directory = tmp_path / "pki"
    directory.mkdir()
    for path in made.directory.iterdir():
        shutil.copy2(path, directory)
    return Certificates(directory, {who: _in(directory, files) for who, files in made.files.items()})


@functools.cache
def _issued(folder: str) -> Certificates:
    """Made once: each is written for good, and a disk takes milliseconds for that."""
    directory = Path(folder, "issued")
    directory.mkdir()
    pki.create_ca("test", directory)
    made = Certificates(directory, {})
    for who in ("host/host-0", "host/host-1", "user/ann", "user/bob"):
        kind, _, name = who.partition("/")
        made.files[who] = pki.issue(directory, Identity("test", Kind(kind), name), directory, name)
    made.files["stranger"] = pki.issue(directory, Identity("other", Kind.USER, "eve"), directory, "eve")
    made.files["controller"] = _controller(directory)
    return made


def _in(directory: Path, files: TlsFiles) -> TlsFiles:
    """The same files in another directory."""
    return TlsFiles(*(directory / path.name for path in (files.ca, files.cert, files.key)))


def _controller(directory: Path) -> TlsFiles:
    return pki.issue(directory, Identity("test", Kind.CONTROLLER, "c"), directory, "controller", server=True)


@pytest.fixture
def config(tmp_path: Path, certificates: Certificates) -> ControllerConfig:
    tls = certificates.files["controller"]
    return ControllerConfig(
        "127.0.0.1:0", tmp_path / "state", tls.ca, tls.cert, tls.key, "test", admins=("ann", "bob")
    )


@pytest.fixture
async def controller(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Controller]:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve(config, ready.set_result))
        async with asyncio.timeout(20):
            port = await ready
        served = Controller(port, certificates)
        yield served
        await served.close()
        serving.cancel()


@pytest.fixture
def daemon(tmp_path: Path, config: ControllerConfig, certificates: Certificates) -> Iterator[Process]:
    fields = ("listen", "state_dir", "ca", "cert", "key", "cluster")
    lines = [f'{name} = "{getattr(config, name)}"\n' for name in fields]
    (tmp_path / "controller.toml").write_text("".join([*lines, 'admins = ["ann", "bob"]\n']))
    made = Process(tmp_path, certificates)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store will be."""
    return tmp_path / "state" / "holdfast.db"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server that lasts for all tests of a process."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_tables(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the tables of a store: a copy takes a third of the time that it takes to make them."""
    postgres_server.sql("CREATE DATABASE tables")
    engine = InPostgres(tmp_path_factory.mktemp("tables") / "postgresql", postgres_server, "tables").engine()
    engine.connect()
    engine.close(0)
    return "tables"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.require("postgres"))])
def place(request: pytest.FixtureRequest, path: Path) -> Iterator[Place]:
    """Where a store will be, of either kind."""
    if request.param == "sqlite":
        yield InFile(path)
        return
    server: Server = request.getfixturevalue("postgres_server")
    database = f"test_{uuid.uuid4().hex}"
    server.sql(f"CREATE DATABASE {database} TEMPLATE {request.getfixturevalue('postgres_tables')}")
    yield InPostgres(path.with_name("postgresql"), server, database)
    server.sql(f"DROP DATABASE {database} WITH (FORCE)")


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    made = Store(place.engine())
    made.call(made.open).result()
    yield made
    made.close()
