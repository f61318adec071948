"""Backups: what is in them, what is refused, and how far the log goes on."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import shutil
import socket
import sqlite3
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import s3
from tests.support.s3 import S3

from holdfast._base import config
from holdfast._daemon.instance_lock import only_one
from holdfast._security import pki, server_names
from holdfast.dev import plan, ports
from holdfast.errors import ConfigError, Denied, HoldfastError, StoreError, Unavailable, WrongState, WrongVersion
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.restore.reconcile import COUNTED_FROM, EPOCHS_LEFT_OUT, EVENTS_LEFT_OUT, left_out
from holdfast_controller.shell.backup import backup, places, restore
from holdfast_controller.shell.backup import manifest as mf
from holdfast_controller.shell.backup.backup import back_up
from holdfast_controller.shell.backup.sealed_stream import CHUNK_BYTES
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.bundles import shared_place
from holdfast_controller.shell.main import init
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.store import Store

SECRET = "a long passphrase"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A cluster at rest, with some history; its settings are in etc/, its state in state/."""
    folders = ["--dir", str(tmp_path / "etc"), "--state-dir", str(tmp_path / "state")]
    assert init.main(["--advertise", "127.0.0.1", "--admin", "ann", *folders]) == 0
    store = Store(tmp_path / "state/holdfast.db")
    store.call(store.open).result()
    told = ev.RoleGranted(at=Wall(5.0), user="bob", project="*", role=Role.USER, by="ann")
    record = Record(1, "people", "RoleGranted", 1, 5.0, "", "bob", codec.dump_event(told))
    store.call(store.commit, [record]).result()
    store.close()
    bundles = tmp_path / "state/bundles"
    bundles.mkdir()
    (bundles / ("a" * 64)).write_bytes(os.urandom(2 * CHUNK_BYTES + 17))
    (tmp_path / "state/audit.jsonl").write_text("{}\n")
    (tmp_path / "state/secrets.key").write_bytes(b"opens the secrets")
    (tmp_path / "pass").write_text(SECRET + "\n")
    return tmp_path


def saved(cluster: Path, passphrase: str | None = SECRET) -> Path:
    back_up(cluster / "etc/controller.toml", cluster / "backup", passphrase)
    return cluster / "backup"


def restored(cluster: Path, ca_key: Path | None = None) -> mf.Manifest:
    return restore.restore(cluster / "backup", cluster / "new", cluster / "pass", ca_key)[0]


def unpacked(backup: bytes) -> bytes | None:
    """What a backup without a passphrase holds; None where gzip finds that it is damaged."""
    try:
        return gzip.decompress(backup.split(b"\n", 2)[2])
    except (IndexError, OSError, EOFError, zlib.error):
        return None


def test_a_controller_comes_back_with_all_it_had(cluster: Path) -> None:
    file = saved(cluster)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET.encode() not in file.read_bytes() and b"PRIVATE KEY" not in file.read_bytes()
    restored(cluster)
    new, old = cluster / "new/state", cluster / "state"
    for name in ("ca/ca.pem", "ca/ca.key", "secrets.key", "audit.jsonl", f"bundles/{'a' * 64}"):
        assert (new / name).read_bytes() == (old / name).read_bytes(), name
    assert (new / "controller.key").read_bytes() != (old / "controller.key").read_bytes(), "made anew"
    assert stat.S_IMODE((new / "ca/ca.key").stat().st_mode) == 0o600
    assert str(old) not in (cluster / "new/controller.toml").read_text()
    store = Store(new / "holdfast.db")
    again = store.call(store.open).result()
    store.close()
    assert again.people.roles == {"bob": {"*": Role.USER}}
    assert again.epoch > EPOCHS_LEFT_OUT and again.sequence > 1 + EVENTS_LEFT_OUT
    assert again.gaps == [(1, again.sequence)]
    assert not list(new.glob(".*")) and not list(old.glob(".copy*"))


def test_a_backup_that_is_restored_again_gives_out_none_of_the_numbers_of_the_first_time() -> None:
    first, second = left_out(Wall(COUNTED_FROM + 1e7)), left_out(Wall(COUNTED_FROM + 1e7 + 3600))
    assert second.epochs - first.epochs == 3600
    assert second.events - first.events == 3_600_000
    assert left_out(Wall(0.0)) == (EVENTS_LEFT_OUT, EPOCHS_LEFT_OUT), "a clock that was never set"


def test_a_browser_session_does_not_come_back(cluster: Path) -> None:
    with contextlib.closing(sqlite3.connect(cluster / "state/holdfast.db")) as database, database:
        database.execute("INSERT INTO web_sessions VALUES ('digest', 'id', 'bob', 1.0, 1.0, '', '', 0)")
    saved(cluster)
    restored(cluster)
    with contextlib.closing(sqlite3.connect(cluster / "new/state/holdfast.db")) as database:
        assert database.execute("SELECT count(*) FROM web_sessions").fetchone() == (0,)


@pytest.mark.parametrize("advertise", [None, "new.lab"])
def test_the_certificate_names_the_machine_it_is_restored_on(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, advertise: str | None
) -> None:
    settings = cluster / "etc/controller.toml"
    settings.write_text('names = ["10.0.0.5"]\n' + settings.read_text().replace('"127.0.0.1"', '"old.lab"'))
    saved(cluster)
    monkeypatch.setattr(socket, "gethostname", lambda: "second")
    restore.restore(cluster / "backup", cluster / "new", cluster / "pass", advertise=advertise)
    reached = advertise or "old.lab"
    names = server_names.named(cluster / "new/state/controller.pem")
    assert names == {*server_names.ALWAYS, reached, "10.0.0.5", "second"}
    assert config.load(ControllerConfig, cluster / "new/controller.toml").advertise == reached


def test_a_name_that_is_none_is_refused_before_anything_is_restored(cluster: Path) -> None:
    saved(cluster)
    with pytest.raises(ConfigError, match=r"--advertise: 'new\.lab:7443' is no host"):
        restore.restore(cluster / "backup", cluster / "new", cluster / "pass", advertise="new.lab:7443")
    assert not (cluster / "new").exists()


def test_gaps_are_known_though_a_snapshot_was_taken_since(cluster: Path) -> None:
    saved(cluster)
    restored(cluster)
    store = Store(cluster / "new/state/holdfast.db")
    state = store.call(store.open).result()
    store.call(store.snapshot, state.sequence, [("people", codec.dump_entity(state.people))]).result()
    store.close()
    store = Store(cluster / "new/state/holdfast.db")
    assert store.call(store.open).result().gaps == state.gaps
    store.close()


def test_a_backup_without_keys_has_none_and_takes_the_key_from_elsewhere(cluster: Path) -> None:
    file = saved(cluster, None)
    with file.open("rb") as raw:
        raw.readline()
        raw.readline()
        with tarfile.open(mode="r|gz", fileobj=raw) as tar:
            names = {member.name for member in tar}
    assert not [name for name in names if name.endswith(".key")]
    with pytest.raises(ConfigError, match="--ca-key"):
        restored(cluster)
    (cluster / "other.key").write_bytes((cluster / "state/controller.key").read_bytes())
    with pytest.raises(ConfigError, match="is not the key"):
        restored(cluster, ca_key=cluster / "other.key")
    assert not (cluster / "new/controller.toml").exists()
    restored(cluster, ca_key=cluster / "state/ca/ca.key")


@pytest.mark.parametrize("passphrase", [SECRET, None], ids=["sealed", "open"])
def test_a_file_that_is_damaged_or_cut_short_is_refused_and_leaves_nothing(
    cluster: Path, passphrase: str | None
) -> None:
    file = saved(cluster, passphrase)
    good = file.read_bytes()
    spoilt = [good[:left] for left in (3, 40, 300, 2000, 1 << 20, len(good) - 2000)]
    for at in (0, 10, 30, 60, 90, 300, 2000, len(good) // 2):
        spoilt.append(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
    for content in spoilt:
        if passphrase is None and unpacked(content) == unpacked(good):
            continue  # in a run of zeros it doesn't matter how far back gzip copies from
        file.write_bytes(content)
        with pytest.raises(HoldfastError):
            restored(cluster, ca_key=cluster / "state/ca/ca.key")
        assert not (cluster / "new").exists()
    file.write_bytes(good)
    restored(cluster, ca_key=cluster / "state/ca/ca.key")


def test_a_backup_is_whole_or_refused_whatever_happens_to_a_file_meanwhile(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, written = cluster / "state", backup._write
    settings = cluster / "etc/controller.toml"

    def renamed() -> None:
        (state / "audit.jsonl").rename(state / "audit-1.jsonl")
        (state / "audit.jsonl").write_text("a new one, which is longer\n")
        fresh = state / "fresh"
        fresh.write_bytes(b"another key")
        fresh.rename(state / "secrets.key")
        (state / "bundles" / ("a" * 64)).unlink()

    def appended() -> None:
        with (state / "audit.jsonl").open("a") as file:
            file.write("{}\n")

    def edited() -> None:
        settings.write_text(settings.read_text().replace("127.0.0.1", "127.0.0.2"))

    def cut() -> None:
        settings.write_text("")

    for happens in (renamed, appended, edited, cut):

        def write(*arguments: Any, happens: Callable[[], None] = happens) -> None:
            happens()
            written(*arguments)

        monkeypatch.setattr(backup, "_write", write)
        if happens in (renamed, appended):
            saved(cluster)
            restored(cluster)
            shutil.rmtree(cluster / "new")
        else:
            with pytest.raises(StoreError, match=r"controller\.toml was (changed|cut) meanwhile"):
                saved(cluster)


def test_audit_files_that_are_renamed_while_they_are_opened_are_opened_again(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, opened, calls = cluster / "state", backup._opened, 0
    (state / "audit-1.jsonl").write_text("the first\n")

    def rotating(path: Path) -> Any:
        nonlocal calls
        found, calls = opened(path), calls + 1
        if calls == 1:
            (state / "audit-1.jsonl").rename(state / "audit-2.jsonl")
            (state / "audit.jsonl").rename(state / "audit-1.jsonl")
        return found

    monkeypatch.setattr(backup, "_opened", rotating)
    found = {path.name: file.read() for path, file in backup._audit_files(state).items()}
    assert found == {"audit-1.jsonl": b"{}\n", "audit-2.jsonl": b"the first\n"}


def test_a_file_that_cannot_be_read_is_named_and_not_the_backup(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process may open no more files."""
    into = Path.open

    def few(path: Path, *how: Any, **more: Any) -> Any:
        if path.parent.name == "bundles":
            raise OSError(24, "Too many open files", str(path))
        return into(path, *how, **more)

    monkeypatch.setattr(Path, "open", few)
    with pytest.raises(StoreError, match=r"Cannot read .*/bundles/a+: Too many open files"):
        saved(cluster)


def test_a_backup_that_was_made_amid_a_change_of_the_ca_is_restored(cluster: Path) -> None:
    ca = cluster / "state/ca"
    pki.add_next_ca(ca, "main")
    (ca / "ca.key").write_bytes((ca / pki.NEXT_KEY).read_bytes())  # and the process ended
    saved(cluster)

    restored(cluster)

    pki.check_ca(cluster / "new/state/ca")


def test_another_passphrase_is_refused(cluster: Path) -> None:
    saved(cluster)
    (cluster / "pass").write_text("another")
    with pytest.raises(Denied, match="passphrase"):
        restored(cluster)


def test_a_place_that_is_taken_is_refused(cluster: Path) -> None:
    saved(cluster)
    with pytest.raises(WrongState, match="not empty"):
        restore.restore(cluster / "backup", None, cluster / "pass")
    with only_one(cluster / "state", "controller"), pytest.raises(WrongState, match="Another controller"):
        restore.restore(cluster / "backup", None, cluster / "pass")
    (cluster / "new").mkdir()
    (cluster / "new/controller.toml").write_text("")
    with pytest.raises(WrongState, match=r"controller\.toml already"):
        restored(cluster)


def test_a_ca_that_is_kept_apart_comes_back_to_its_places(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder on another disk than the state, and what all trust beside the settings."""
    state, apart, settings = cluster / "state", cluster / "disk/ca", cluster / "etc/controller.toml"
    shutil.copytree(state / "ca", apart)
    shutil.rmtree(state / "ca")
    (cluster / "etc/ca.pem").write_bytes((apart / "ca.pem").read_bytes())
    said = settings.read_text().replace(f'"{state}/ca/ca.pem"', f'"{cluster}/etc/ca.pem"')
    settings.write_text(said.replace(f'"{state}/ca"', f'"{apart}"'))
    before = {path: path.read_bytes() for path in (apart / "ca.pem", apart / "ca.key", cluster / "etc/ca.pem")}
    saved(cluster)
    for folder in (state, cluster / "etc", cluster / "disk"):
        shutil.rmtree(folder)
    rename = Path.rename

    def within_a_disk(path: Path, target: Path) -> Path:
        if path.is_relative_to(state) != target.is_relative_to(state):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", within_a_disk)
    restore.restore(cluster / "backup", None, cluster / "pass")
    assert {path: path.read_bytes() for path in before} == before
    assert [stat.S_IMODE(path.stat().st_mode) for path in (apart, apart / "ca.key")] == [0o700, 0o600]
    assert list(apart.parent.iterdir()) == [apart]


@pytest.mark.parametrize("change", [{"version": "99.0.0"}, {"schema": "9999"}, {"format": 2}])
def test_a_backup_of_a_newer_version_is_refused(change: dict[str, object]) -> None:
    layout = {name: f"/c/{name}" for name in ("settings", "state_dir", "ca", "cert", "key")} | {"ca_directory": ""}
    known = {"version": "0.0.1", "schema": "0001", "cluster": "c", "taken_at": 1.0, "epoch": 1, "sequence": 1}
    more = {"keys": True, "bundles": True, "layout": layout, "members": [], "format": 1}
    assert mf.load(json.dumps(known | more).encode()).cluster == "c"
    with pytest.raises(WrongVersion, match="newer"):
        mf.load(json.dumps(known | more | change).encode())
    with pytest.raises(StoreError):
        mf.load(b"[]")
    member = {"name": "../../etc/passwd", "size": 1, "sha256": ""}
    with pytest.raises(StoreError, match="outside"):
        mf.load(json.dumps(known | more | {"members": [member]}).encode())


def test_a_target_that_cannot_be_written_is_named(cluster: Path) -> None:
    with pytest.raises(StoreError, match="Cannot write"):
        back_up(cluster / "etc/controller.toml", cluster / "no/such/folder/backup", None)
    assert not list((cluster / "state").glob(".copy*"))


@pytest.mark.parametrize("place", [".", "/", "", "etc"])
def test_a_folder_is_no_place_of_a_backup(cluster: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(cluster)
    with pytest.raises(StoreError, match=r"is a folder\. Name a file in it"):
        back_up(cluster / "etc/controller.toml", place, None)
    assert not list(cluster.glob(".*"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with ports.Reserved() as reserved:
        free = plan.controller_ports(ports.ephemeral_range())
        port = next(port for port in free if reserved.take([port]))
        with s3.running(port) as made:
            for name, value in made.env.items():
                monkeypatch.setenv(name, value)
            yield made


@pytest.mark.require("s3")
def test_a_backup_in_a_bucket_brings_the_controller_back(
    cluster: Path, server: S3, capsys: pytest.CaptureFixture[str]
) -> None:
    place, passphrase = "s3://holdfast/nightly/holdfast.hf", ["--passphrase-file", str(cluster / "pass")]
    settings = ["--config", str(cluster / "etc/controller.toml")]
    for _ in range(2):  # the second replaces the first
        assert backup.main([place, *settings, *passphrase]) == 0
    assert f"{place}: the cluster" in capsys.readouterr().out
    assert not list((cluster / "state").glob(".backup*"))
    assert restore.main([place, "--to", str(cluster / "new"), *passphrase]) == 0
    bundle = f"bundles/{'a' * 64}"
    assert (cluster / "new/state" / bundle).read_bytes() == (cluster / "state" / bundle).read_bytes()
    assert places.newest_backup(cluster / "state") > 0


@pytest.mark.require("s3")
def test_a_bucket_that_can_not_be_reached_has_no_part_of_a_backup(
    cluster: Path, server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_place, "_RETRIES", {"max_retries": 0})
    settings = cluster / "etc/controller.toml"
    with pytest.raises(Unavailable, match="Cannot write s3://nowhere/b: "):
        back_up(settings, "s3://nowhere/b", SECRET)
    server.stop()
    with pytest.raises(Unavailable, match="Cannot write s3://holdfast/b: "):
        back_up(settings, "s3://holdfast/b", SECRET)
    assert not list((cluster / "state").glob(".backup*")) and places.newest_backup(cluster / "state") == 0
    server.start()
    with pytest.raises(ConfigError, match="Cannot read s3://holdfast/b: "):
        restore.restore("s3://holdfast/b", cluster / "new", cluster / "pass")
    assert not (cluster / "new").exists()


@pytest.mark.parametrize("place", ["s3://", "s3://bucket", "s3://bucket/", "s3:///backup"])
def test_a_place_that_names_no_object_is_refused(cluster: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="names no object in a bucket"):
        back_up(cluster / "etc/controller.toml", place, SECRET)
