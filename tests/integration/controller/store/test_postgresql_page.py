"""The runbook for PostgreSQL, typed: each line of its two blocks, by the programs themselves, on a real server.

What a test has to say otherwise is only where things are: the page means /etc/holdfast, and a terminal for passphrases.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_store import commit, folded, opened, records, same
from tests.support.postgres import Server
from tests.support.printed_commands import fenced
from tests.unit.controller.examples import EVENTS

from holdfast_controller.shell.main import init
from holdfast_controller.shell.secrets import secret_keys
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")
PAGE = (Path(__file__).parents[4] / "docs/admins/postgresql.md").read_text()


def printed(*words: str) -> str:
    """The line of a block that begins so, without what the page says behind it."""
    (found,) = {
        line.partition("#")[0].strip()
        for block in fenced(PAGE)
        for line in block.splitlines()
        if line.split()[: len(words)] == list(words)
    }
    return found


@pytest.fixture
def database(postgres_server: Server, tmp_path: Path) -> Iterator[InPostgres]:
    postgres_server.sql("CREATE DATABASE typed")
    yield InPostgres(tmp_path / "state/postgresql", postgres_server, "typed")
    postgres_server.sql("DROP DATABASE typed WITH (FORCE)")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cluster at rest whose log is in a file."""
    folders = ["--dir", str(tmp_path / "etc"), "--state-dir", str(tmp_path / "state")]
    assert init.main(["--advertise", "127.0.0.1", "--admin", "ann", *folders]) == 0
    store, _ = opened(tmp_path / "state/holdfast.db")
    commit(store, records())
    store.close()
    secret_keys.load_or_make(tmp_path / "state/secrets.key")
    (tmp_path / "pass").write_text("a long passphrase\n")
    return tmp_path


def typed(line: str, *where: str) -> str:
    """What the program says, which has to end well."""
    program, *words = line.split()
    assert program == "holdfast-controller"
    command = [sys.executable, "-m", "holdfast_controller", *words, *where]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_url(settings: Path, url: str) -> None:
    """As the page says: set ``database_url``, or take it out."""
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("database_url")]
    settings.write_text("\n".join([*[f'database_url = "{url}"'] * bool(url), *lines]) + "\n")


def test_the_log_is_moved_there_and_back_by_the_lines_of_the_page(home: Path, database: InPostgres) -> None:
    settings = home / "etc/controller.toml"
    here, url = ("--config", str(settings)), database.server.url(database.database)
    said = typed(printed("holdfast-controller", "move-store", "--to").replace("URL", url), *here)
    assert "database_url" in said
    set_url(settings, url)
    typed("holdfast-controller --check", *here)
    store = Store(database.engine())
    assert same(store.call(store.open).result(), folded(EVENTS))
    store.close()
    typed(printed("holdfast-controller", "move-store", "--to-file"), *here)
    set_url(settings, "")
    typed("holdfast-controller --check", *here)
    store, cluster = opened(home / "state/holdfast.db")
    store.close()
    assert same(cluster, folded(EVENTS))


def test_a_second_controller_is_made_by_the_lines_of_the_page(home: Path, database: InPostgres) -> None:
    settings = home / "etc/controller.toml"
    passphrase = ("--passphrase-file", str(home / "pass"))
    url = database.server.url(database.database)
    typed(printed("holdfast-controller", "move-store", "--to").replace("URL", url), "--config", str(settings))
    set_url(settings, url)
    file = str(home / "backup")
    backup = printed("holdfast-controller", "backup").replace("FILE", file)
    typed(backup, "--config", str(settings), *passphrase)
    join = printed("holdfast-controller", "join").replace("FILE", file)
    said = typed(join, "--to", str(home / "second"), *passphrase)
    assert "ctl2.example" in said
    typed("holdfast-controller --check", "--config", str(home / "second/controller.toml"))
    for name in ("ca/ca.pem", "secrets.key"):
        assert (home / "second/state" / name).read_bytes() == (home / "state" / name).read_bytes()
