"""A further controller, made of a backup of the first: what it gets, what is refused, and that it can lead."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import postgres
from tests.support.postgres import Server

from holdfast._security import server_names
from holdfast.dev import plan, ports
from holdfast.errors import ConfigError, WrongState
from holdfast_controller.__main__ import COMMANDS
from holdfast_controller.shell.backup.backup import back_up
from holdfast_controller.shell.backup.join import join, main
from holdfast_controller.shell.main import check, init
from holdfast_controller.shell.secrets import secret_keys

pytestmark = pytest.mark.require("postgres")
WITHIN_S = 90
SECRET = "a long passphrase"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres.running() as made:
        made.sql("CREATE DATABASE holdfast")
        yield made


@pytest.fixture
def first(tmp_path: Path, server: Server) -> Iterator[Path]:
    """Files of the first controller, at rest and without a store: settings in etc/, state in state/."""
    with ports.Reserved() as reserved:
        free = (port for port in plan.controller_ports(ports.ephemeral_range()) if reserved.take([port]))
        port, enrolment = next(free), next(free)
        folders = ["--dir", str(tmp_path / "etc"), "--state-dir", str(tmp_path / "state")]
        own = ["--advertise", "127.0.0.1", "--port", str(port), "--enrolment-port", str(enrolment)]
        assert init.main([*own, "--admin", "ann", *folders]) == 0
        file = tmp_path / "etc/controller.toml"
        file.write_text(f'database_url = "{server.url("holdfast")}"\n{file.read_text()}')
        bundles = tmp_path / "state/bundles"
        bundles.mkdir()
        (bundles / ("a" * 64)).write_bytes(b"packaged code")
        (tmp_path / "state/audit.jsonl").write_text("{}\n")
        secret_keys.load_or_make(tmp_path / "state/secrets.key")
        (tmp_path / "pass").write_text(SECRET + "\n")
        yield tmp_path


def changed(first: Path, key: str, value: str) -> None:
    """Write another value into the first one's settings; an empty one takes the line out."""
    file = first / "etc/controller.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{key} =")]
    file.write_text("\n".join([f"{key} = {value}"] * bool(value) + lines) + "\n")


def backed_up(first: Path, passphrase: str | None = SECRET) -> Path:
    back_up(first / "etc/controller.toml", first / "backup", passphrase)
    return first / "backup"


def joined(first: Path) -> Path:
    join(backed_up(first), "second.lab", first / "new", first / "pass")
    return first / "new"


def test_it_is_a_command() -> None:
    assert COMMANDS["join"] == main.__module__


def test_it_has_what_both_share_and_a_certificate_of_its_own(first: Path) -> None:
    new = joined(first)
    for name in ("ca/ca.pem", "ca/ca.key", "secrets.key", f"bundles/{'a' * 64}"):
        assert (new / "state" / name).read_bytes() == (first / "state" / name).read_bytes(), name
    assert stat.S_IMODE((new / "state/ca/ca.key").stat().st_mode) == 0o600
    assert "second.lab" in server_names.named(new / "state/controller.pem")
    before, after = (tomllib.loads(f.read_text()) for f in (first / "etc/controller.toml", new / "controller.toml"))
    own = {"advertise", "state_dir", "ca", "ca_directory", "cert", "key"}
    assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} == own
    # The log is in the database, and the audit log of the first stays there.
    assert not list((new / "state").glob("*.db")) and not list((new / "state").glob("audit*"))
    assert not list((new / "state").glob(".*"))
    assert check.problems(new / "controller.toml") == []


def test_a_folder_of_packaged_code_that_both_mount_is_left_as_it_is(first: Path) -> None:
    shared = first / "new/state/bundles"
    shared.mkdir(parents=True)
    (shared / ("b" * 64)).write_bytes(b"newer")
    assert [each.name for each in (joined(first) / "state/bundles").iterdir()] == ["b" * 64]


def test_nothing_is_made_where_there_is_a_controller_already(first: Path) -> None:
    joined(first)
    with pytest.raises(WrongState, match="is not empty"):
        join(first / "backup", "third.lab", first / "new", first / "pass")


@pytest.mark.parametrize(
    ("key", "value", "problem", "fix"),
    [
        ("advertise", '"second.lab"', "--advertise second.lab is the other", "the name of this machine"),
        ("listen", '"192.0.2.7:7443"', "listen = .* is an address of its machine", 'listen = "0.0.0.0:7443" there'),
        ("listen", '"ctl..lab:7443"', "listen = .* is an address of its machine", 'listen = "0.0.0.0:7443" there'),
        ("enrolment_listen", '"[2001:db8::1]:7444"', "enrolment_listen = ", 'enrolment_listen = "0.0.0.0:7444"'),
    ],
)
def test_settings_that_two_machines_cant_share(first: Path, key: str, value: str, problem: str, fix: str) -> None:
    changed(first, key, value)
    with pytest.raises(ConfigError, match=problem) as refused:
        joined(first)
    assert fix in refused.value.fix
    assert not (first / "new").exists()


def test_a_store_in_a_file_is_not_shared(first: Path) -> None:
    backed_up(first)  # makes the tables
    from holdfast_controller.shell.store.store import Store

    changed(first, "database_url", "")
    store = Store(first / "state/holdfast.db")
    store.call(store.open).result()
    store.close()
    with pytest.raises(WrongState, match="a file of its own") as refused:
        joined(first)
    assert "move-store --to URL" in refused.value.fix


def test_a_backup_without_keys_is_refused(first: Path) -> None:
    with pytest.raises(ConfigError, match="without keys"):
        join(backed_up(first, None), "second.lab", first / "new")


def test_a_name_that_is_none_is_refused_before_anything_is_made(first: Path) -> None:
    with pytest.raises(ConfigError, match="is no host"):
        join(backed_up(first), "second.lab:7443", first / "new", first / "pass")
    assert not (first / "new").exists()


def test_a_database_out_of_reach_is_named_by_the_check(first: Path) -> None:
    new = joined(first)
    file = new / "controller.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(['database_url = "postgresql://u@127.0.0.1:9/none"', *lines[1:]]))
    found = check.problems(file)
    assert len(found) == 1 and "PostgreSQL database none at 127.0.0.1:9 can't be reached" in found[0]


def test_it_stands_by_and_leads_once_the_first_has_ended(first: Path) -> None:
    done = command("join", str(backed_up(first)), "--advertise", "second.lab", *to(first))
    assert done.returncode == 0, done.stderr
    port = tomllib.loads((first / "etc/controller.toml").read_text())["listen"].rpartition(":")[2]
    assert f'controller = "127.0.0.1:{port},second.lab:{port}"' in done.stdout
    daemons = []
    try:
        for settings, event in (("etc", "controller.ready"), ("new", "controller.stands_by")):
            daemons.append(daemon(first, settings))
            says(first, settings, event)
        daemons[0].kill()
        says(first, "new", "controller.ready")
        client = {**os.environ, "HOLDFAST_CONFIG": str(first / "etc/admin/client.toml")}
        line = [sys.executable, "-m", "holdfast", "whoami"]
        seen = subprocess.run(line, env=client, capture_output=True, text=True, timeout=WITHIN_S)
        assert "ann" in seen.stdout, seen.stderr
    finally:
        for each in daemons:
            each.kill()
            each.wait(WITHIN_S)


def to(first: Path) -> list[str]:
    return ["--to", str(first / "new"), "--passphrase-file", str(first / "pass")]


def command(*line: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "holdfast_controller", *line]
    return subprocess.run(whole, capture_output=True, text=True, timeout=WITHIN_S)


def daemon(first: Path, settings: str) -> subprocess.Popen[bytes]:
    whole = [sys.executable, "-m", "holdfast_controller", "--config", str(first / settings / "controller.toml")]
    with (first / f"{settings}.out").open("wb") as out:
        return subprocess.Popen(whole, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def says(first: Path, settings: str, event: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while f'"event": "{event}"' not in (text := (first / f"{settings}.out").read_text()):
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
