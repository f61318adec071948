"""What another user of a host puts in a guard's way, or makes of what lies there: he learns and alters nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import PATIENCE_S, environment, guard
from tests.support import slurm_cluster

from holdfast.errors import ConfigError, Unauthenticated
from holdfast.guard import lines, meeting, scratch, trust
from holdfast.guard.allocation import Allocation
from holdfast.guard.lines import Link
from holdfast.guard.meeting import Host
from holdfast.guard.record import Record
from holdfast.guard.run import Words
from holdfast.guard.shared_file import SharedFile
from holdfast.settings import ClientSettings

pytestmark = pytest.mark.require("root")
USER, NEIGHBOUR = 12_345, 65_534
SEED, OTHERS = b"s" * trust.SEED_BYTES, b"o" * trust.SEED_BYTES
STICKY, LOOSE = 0o1777, 0o777
"""Folders in which all can make files: only one's own can be removed and renamed, or everyone's."""


@contextlib.contextmanager
def being(uid: int) -> Iterator[None]:
    """What the block does to files, it does as this user."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="shared-"))
    made.chmod(STICKY)
    yield made
    shutil.rmtree(made)


def _file(path: Path) -> None:
    path.write_text('{"seed": "' + OTHERS.hex() + '", "addresses": ["192.0.2.1"]}')
    path.chmod(0o666)


def _link(path: Path) -> None:
    _file(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


PLANTED: dict[str, Callable[[Path], None]] = {
    "file": _file,
    "link": _link,
    "pipe": lambda path: os.mkfifo(path, 0o666),
    "folder": lambda path: path.mkdir(0o777),
}


@pytest.mark.parametrize("mode", [STICKY, LOOSE])
@pytest.mark.parametrize("what", PLANTED)
def test_a_meeting_file_that_a_neighbour_has_put_there_is_neither_read_nor_written(
    folder: Path, what: str, mode: int
) -> None:
    folder.chmod(mode)
    file = SharedFile(folder, "guard-1")
    with being(NEIGHBOUR):
        PLANTED[what](file.path)

    with being(USER):
        assert file.read() is None
        if mode == LOOSE and what != "folder":
            file.write(SEED, ["10.0.0.1"])  # in its place
            assert file.read() == (SEED, ["10.0.0.1"])
        else:
            with pytest.raises(ConfigError, match="guard-1 can't be written, by which the tasks meet"):
                file.write(SEED, ["10.0.0.1"])

    with being(NEIGHBOUR):
        assert SEED.hex() not in "".join(_readable(folder))


def _readable(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
            yield file.read()


@pytest.mark.parametrize("mode", [STICKY, LOOSE])
def test_a_meeting_file_can_be_read_by_no_neighbour_and_what_takes_its_place_is_not_believed(
    folder: Path, mode: int
) -> None:
    folder.chmod(mode)
    file = SharedFile(folder, "guard-1")
    with being(USER):
        file.write(SEED, ["10.0.0.1"])

    with being(NEIGHBOUR):
        with pytest.raises(PermissionError):
            file.path.read_text()
        with pytest.raises(PermissionError):
            file.path.write_text("")
        _file(folder / "mine")
        if mode == STICKY:
            with pytest.raises(PermissionError):
                (folder / "mine").replace(file.path)
        else:
            (folder / "mine").replace(file.path)

    with being(USER):
        assert file.read() == ((SEED, ["10.0.0.1"]) if mode == STICKY else None)


@pytest.fixture
def settings(tmp_path: Path) -> ClientSettings:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "user.pem", "user.key"))
    for path in (ca, cert, key):
        path.write_text("of the guard")
        shutil.chown(path, USER, USER)
        path.chmod(0o600)
    return ClientSettings("127.0.0.1:7000", ca, cert, key)


def _record(path: Path, said: list[str]) -> Record:
    return Record(path, Words(said.append, lambda event: "", lambda job: (), lambda found: ""))


def test_a_record_is_written_where_it_was_made_whatever_gets_its_name(
    folder: Path, settings: ClientSettings
) -> None:
    folder.chmod(LOOSE)
    said: list[str] = []
    with being(USER):
        record = _record(folder / "rec", said)
    with being(NEIGHBOUR):
        (folder / "rec").rename(folder / "away")
        (folder / "rec").mkdir(0o777)
        for name in ("client.toml", "ca.pem", "user.pem", "user.key"):
            (folder / "rec" / name).touch(0o666)
            (folder / "rec" / name).chmod(0o666)

    with being(USER):
        record.open_to_commands(settings)

    assert said == []
    assert {path.read_text() for path in (folder / "rec").iterdir()} == {""}
    assert (folder / "away/user.key").read_text() == "of the guard"
    with being(NEIGHBOUR):
        assert list(_readable(folder / "away")) == []
    with being(USER):
        record.close_to_commands()
    assert list((folder / "away").iterdir()) == []
    assert len(list((folder / "rec").iterdir())) == 4


def test_a_record_does_not_go_where_a_neighbours_link_of_its_name_leads(
    folder: Path, settings: ClientSettings
) -> None:
    said: list[str] = []
    with being(NEIGHBOUR):
        (folder / "mine").mkdir(0o777)
        (folder / "rec").symlink_to("mine")

    with being(USER):
        record = _record(folder / "rec", said)
        record.open_to_commands(settings)

    assert record.directory == folder / "rec-2" and not record.problem
    assert list((folder / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("owner", "mode", "who"),
    [
        (0, LOOSE, "everyone who can write to "),
        (0, STICKY, ""),
        (NEIGHBOUR, LOOSE, f"its owner, uid {NEIGHBOUR}, "),
        (NEIGHBOUR, STICKY, f"its owner, uid {NEIGHBOUR}, "),
        (USER, 0o755, ""),
    ],
)
def test_scratch_lies_nowhere_where_a_neighbour_can_put_another_folder_in_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, who: str
) -> None:
    (folder / "real").mkdir()
    (folder / "real").chmod(mode)
    shutil.chown(folder / "real", owner, owner)
    (folder / "link").symlink_to("real")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "link"))

    with being(USER):
        if who:
            with pytest.raises(PermissionError, match=f"{who}.*can replace what lies there: set TMPDIR"):
                scratch.make()
        else:
            made = Path(scratch.make())
            # The link is anybody's guess from now on.
            assert made.parent == folder / "real"
            assert made.stat().st_mode & 0o7777 == 0o700


def test_a_guard_whose_scratch_would_be_open_to_others_says_so_and_the_command_may_run_bare(folder: Path) -> None:
    env = environment(folder)
    shutil.chown(env["TMPDIR"], NEIGHBOUR)

    done = guard(folder, "--or-run", "--", "echo", "ran", env=env)

    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert f"{env['TMPDIR']}: its owner, uid 65534, can replace what lies there: set TMPDIR" in done.stderr
    assert os.listdir(env["TMPDIR"]) == []


# --- munge ----------------------------------------------------------------------------------------------------


@pytest.fixture
def munged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a munge of our own, which the neighbour reaches as well."""
    made = Path(tempfile.mkdtemp(prefix="munge-"))
    made.chmod(0o755)
    try:
        with slurm_cluster.munge(made) as socket:
            monkeypatch.setattr(trust, "DEFAULT_SOCKET", str(socket))
            monkeypatch.setenv("SLURM_CONF", "/nowhere")
            yield socket
    finally:
        shutil.rmtree(made)


def by_neighbour(text: str, *command: str) -> subprocess.CompletedProcess[str]:
    account = ["setpriv", f"--reuid={NEIGHBOUR}", f"--regid={NEIGHBOUR}", "--clear-groups"]
    return subprocess.run(
        [*account, *command], input=text, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.require("slurm")
def test_a_credential_opens_for_its_user_alone_and_a_neighbours_is_refused(munged: Path) -> None:
    munge = trust.Munge()
    sealed = munge.seal(SEED, "17.0")

    read = by_neighbour(sealed, "unmunge", f"--socket={munged}")
    assert read.returncode != 0 and "Unauthorized credential" in read.stderr
    assert SEED.hex() not in read.stdout

    forged = by_neighbour(
        '{"job": "17.0", "seed": "' + OTHERS.hex() + '"}', "munge", f"--socket={munged}", "--restrict-uid=0"
    )
    assert forged.returncode == 0, "the neighbour has munge too"
    with pytest.raises(Unauthenticated, match="made by another user"):
        munge.open(forged.stdout.strip(), "17.0")

    assert munge.open(sealed, "17.0") == SEED
    with pytest.raises(Unauthenticated, match=r"can't be opened: .*Replayed"):
        munge.open(sealed, "17.0")


@pytest.mark.require("slurm")
async def test_a_neighbour_who_listens_first_and_seals_a_seed_of_his_own_is_passed_by(munged: Path) -> None:
    place = Allocation("slurm", f"test-{os.urandom(8).hex()}", 0, 2, 0, 1, "n1", ("n1", "n2"))
    munge = trust.Munge()
    sealed = '{"job": "' + place.job + '", "seed": "' + OTHERS.hex() + '"}'
    forged = by_neighbour(sealed, "munge", f"--socket={munged}", "--restrict-uid=0").stdout.strip()
    tried: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.write_line(writer, {"job": place.job, "nonce": "n", "credential": forged})
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            theirs = (await lines.read_line(reader))["nonce"]
            words = ("n", theirs, str(meeting.ports(place.job)[0]))
            link = Link(reader, writer, OTHERS, words, first_task=True)
            link.send({"controller": "192.0.2.1:7000"})
        tried.append("")
        writer.close()

    impostor = await asyncio.start_server(answer, "127.0.0.1", meeting.ports(place.job)[0])
    host = Host(place, SEED, "127.0.0.1:7000", lambda: munge.seal(SEED, place.job))
    async with impostor:
        await host.listen("127.0.0.1")
        other = replace(place, task=1, host="n2")
        guest = await meeting.join(other, ["127.0.0.1"], OTHERS, lambda said: munge.open(said, place.job), 30.0)

        assert (guest.seed, guest.controller) == (SEED, "127.0.0.1:7000")
        assert tried
        guest.leave()
        await host.close()
