"""What an agent that is root does in directories of a worker's: no planted link, pipe or name leads it away."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.containers import output_mount
from holdfast_agent.shell.prepare.scratch import remove_aside, set_aside
from holdfast_agent.shell.users import safe_paths
from holdfast_agent.shim import error_file

NOBODY = 65534
SECRET = '{"message": "secret"}'
ROUNDS = 300


@pytest.fixture(params=["openat2", "walked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the kernel's own call, and as on a kernel that lacks it."""
    if request.param == "walked":
        monkeypatch.setattr(safe_paths, "_openat2", lambda *_: None)
    return str(request.param)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """What a link would lead to. It must be neither read nor touched."""
    folder = tmp_path / "canary"
    (folder / "below").mkdir(parents=True)
    (folder / "r0.json").write_text(SECRET)
    (folder / "below/kept").write_text("kept")
    (folder / "setuid").write_text("")
    (folder / "setuid").chmod(0o4755)
    return folder


def picture(folder: Path) -> list[tuple[str, int, int, int]]:
    """Names, modes, owners and sizes of all in a folder."""
    found = [(path, path.lstat()) for path in sorted((folder, *folder.rglob("*")))]
    return [(str(path), status.st_mode, status.st_uid, status.st_size) for path, status in found]


@contextlib.contextmanager
def swapping(name: Path, target: Path) -> Iterator[None]:
    """Somebody who turns the directory ``name`` into a link to ``target`` and back, as fast as he can."""
    stop, aside, link = threading.Event(), name.with_suffix(".aside"), name.with_suffix(".link")
    link.symlink_to(target)

    def swap() -> None:
        while not stop.is_set():
            for old, new in ((name, aside), (link, name), (name, link), (aside, name)):
                with contextlib.suppress(OSError):  # it may be removed under his hands
                    os.rename(old, new)

    worker = threading.Thread(target=swap)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def plant(kind: str, folder: Path, canary: Path) -> None:
    """Where ``folder/errors/r0.json`` is looked for."""
    errors = folder / "errors"
    if kind == "linked folder":
        errors.symlink_to(canary)
        return
    errors.mkdir()
    file = errors / "r0.json"
    match kind:
        case "link":
            file.symlink_to(canary / "r0.json")
        case "second name":
            os.link(canary / "r0.json", file)
        case "pipe":
            os.mkfifo(file)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(file))
        case "folder":
            file.mkdir()


def read(directory: Path, path: str) -> bytes:
    """What is read at ``path`` below a directory."""
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        handle = safe_paths.open_inside(top, path, os.O_RDONLY)
    finally:
        os.close(top)
    try:
        return os.read(handle, 1000)
    finally:
        os.close(handle)


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "socket", "folder", "nothing"])
def test_error_file_that_is_no_plain_file_of_the_workers_is_not_read(
    tmp_path: Path, canary: Path, kind: str
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    plant(kind, folder, canary)
    assert error_file.raised(os.fsencode(folder / "errors/r0.json")) == ""
    (folder / "errors/r1.json").write_text(SECRET)
    assert error_file.raised(os.fsencode(folder / "errors/r1.json")) == "secret"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["link", "linked folder"])
def test_no_link_on_the_way_is_followed(tmp_path: Path, canary: Path, kind: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    plant(kind, folder, canary)
    with pytest.raises(OSError):
        read(folder, "errors/r0.json")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", ["../canary/r0.json", "errors/../../canary/r0.json", "/etc/passwd"])
def test_no_way_leads_out_of_the_directory(tmp_path: Path, canary: Path, path: str) -> None:
    (tmp_path / "logs/errors").mkdir(parents=True)
    with pytest.raises(OSError):
        read(tmp_path / "logs", path)


@pytest.mark.usefixtures("way")
def test_a_directory_that_is_swapped_for_a_link_is_never_read_through(tmp_path: Path, canary: Path) -> None:
    errors = tmp_path / "logs/errors"
    errors.mkdir(parents=True)
    (errors / "r0.json").write_text("own")
    found = set()
    with swapping(errors, canary):
        for _ in range(ROUNDS):
            try:
                found.add(read(tmp_path / "logs", "errors/r0.json"))
            except OSError:
                continue
    assert found <= {b"own"}


@pytest.mark.require("root")
def test_results_go_where_the_worker_may_go_itself_and_nowhere_else(tmp_path: Path) -> None:
    """A container's engine is root: it would mount a folder that lies in somebody's closed home."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("pytest-", "popen-")) or parent == tmp_path:
            parent.chmod(parent.stat().st_mode | 0o011)
    nobody = WorkerUser("nobody", "/", "/bin/sh", NOBODY, NOBODY, ())
    closed, open_ = tmp_path / "home", tmp_path / "open"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "data").chmod(0o755)
    open_.mkdir(mode=0o777)
    open_.chmod(0o777)
    (open_ / "link").symlink_to(closed / "data")
    for path in (closed / "data", open_ / "link", closed / "data/new"):
        with pytest.raises(output_mount.Unreachable, match="can't be used as nobody"):
            output_mount.entered_by(nobody, str(path))
    found = output_mount.entered_by(nobody, str(open_ / "new/results"))
    assert output_mount.is_mounted(os.getpid(), str(open_ / "new/results"), found)
    assert (open_ / "new").stat().st_uid == NOBODY
    (open_ / "new").rename(open_ / "old")
    (open_ / "new").mkdir()
    (open_ / "new/results").symlink_to(closed / "data")
    assert not output_mount.is_mounted(os.getpid(), str(open_ / "new/results"), found), (
        "what was swapped is found out"
    )


def fill(job: Path, canary: Path) -> None:
    """What a worker may leave in its scratch directory to make its removal fail, or reach elsewhere."""
    (job / "locked/inner").mkdir(parents=True)
    (job / "locked/inner/file").write_text("x")
    (job / "locked").chmod(0)
    (job / "link").symlink_to(canary)
    (job / "dangling").symlink_to("nowhere")
    os.link(canary / "setuid", job / "second-name")
    os.mkfifo(job / "pipe")
    (job / ".removed-0").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(job / "sock"))
    for number in range(2 * safe_paths.BATCH + 7):
        (job / f"many-{number}").write_text("")
    here = os.open(job, os.O_RDONLY)
    for _ in range(1500):  # deeper than any path, and than Python's own way of removing trees goes
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.mark.require("root")
def test_a_scratch_directory_full_of_traps_is_removed_and_nothing_else(tmp_path: Path, canary: Path) -> None:
    scratch, job = tmp_path / "scratch", tmp_path / "scratch/job"
    job.mkdir(parents=True)
    before = picture(canary)
    try:
        fill(job, canary)
        aside = set_aside(scratch, "job")
        assert not job.exists()
        job.mkdir()  # the job is here again
        remove_aside(scratch, aside)
        assert list(scratch.iterdir()) == [job]
        remove_aside(scratch, set_aside(scratch, "job"))
        assert list(scratch.iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", scratch], check=True)  # pytest could not
    assert picture(canary) == before


def test_a_link_in_the_place_of_a_scratch_directory_goes_and_what_it_leads_to_stays(
    tmp_path: Path, canary: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "job").symlink_to(canary)
    before = picture(canary)
    for _ in range(2):
        remove_aside(scratch, set_aside(scratch, "job"))
    assert list(scratch.iterdir()) == []
    assert picture(canary) == before


def test_a_tree_that_is_swapped_while_it_is_removed_leads_nowhere(tmp_path: Path, canary: Path) -> None:
    before = picture(canary)
    for number in range(ROUNDS // 10):
        inner = tmp_path / f"scratch/job-{number}/inner"
        (inner / "below").mkdir(parents=True)
        with swapping(inner, canary):
            safe_paths.try_to_remove(inner.parent)
    assert picture(canary) == before


@pytest.mark.usefixtures("way")
@pytest.mark.require("root")
def test_a_tree_is_given_away_and_what_its_links_lead_to_is_not(tmp_path: Path, canary: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/file").write_text("x")
    (tree / "a/link").symlink_to(canary)
    (tree / "a/b/file-link").symlink_to(canary / "setuid")
    before = picture(canary)
    safe_paths.give(tree, NOBODY, NOBODY)
    assert {path.lstat().st_uid for path in (tree, *tree.rglob("*"))} == {NOBODY}
    assert picture(canary) == before
    assert stat.S_IMODE((canary / "setuid").stat().st_mode) == 0o4755


@pytest.mark.usefixtures("way")
def test_a_tree_is_measured_without_what_its_links_lead_to(tmp_path: Path, canary: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a/file").write_bytes(b"x" * 10_000)
    alone = safe_paths.size(tree)
    assert alone >= 10_000
    (canary / "huge").write_bytes(b"x" * 1_000_000)
    (tree / "a/link").symlink_to(canary)
    assert safe_paths.size(tree) - alone < 100_000
    assert safe_paths.size(tmp_path / "gone") == 0


MOUNTED = """\
import subprocess, sys
from pathlib import Path
from holdfast_agent.shell.users import safe_paths
root = Path(sys.argv[1])
if sys.argv[2] == "walked":
    safe_paths._openat2 = lambda *_: None
(root / "job/below/data").mkdir(parents=True)
(root / "share").mkdir()
(root / "share/kept").write_text("kept")
subprocess.run(["mount", "--bind", root / "share", root / "job/below/data"], check=True)
try:
    safe_paths.remove_tree(root, "job")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.require("mount")
def test_what_is_mounted_in_a_tree_that_is_removed_stays(tmp_path: Path, way: str) -> None:
    command = ["unshare", "--mount", sys.executable, "-c", MOUNTED, str(tmp_path), way]

    done = subprocess.run(command, capture_output=True, text=True, timeout=180)

    assert (done.stdout, done.stderr) == ("Invalid cross-device link\n", "")
    assert (tmp_path / "share/kept").read_text() == "kept"
