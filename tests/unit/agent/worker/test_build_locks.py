"""Which locks of killed builds are removed, and what is left alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_agent.shim import build_locks
from holdfast_agent.shim.build_locks import caches, remove_dead


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with many processes and little time looks through all their files before it removes a lock."""
    monkeypatch.setattr(build_locks, "BOUND_S", 60.0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    """A mount table that has all of this test's files on an ext4."""
    table = tmp_path / "mountinfo"
    table.write_text(
        f"20 1 8:1 / / rw - nfs4 server:/ rw\n21 20 8:2 / {tmp_path} rw,relatime - ext4 /dev/sda1 rw\n"
    )
    return str(table)


def lock(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run(home: Path, mounts: str, **env: object) -> list[Path]:
    said = {"HOME": home, "USER": "ada", "TMPDIR": home.parent / "tmp", **env}
    encoded = {os.fsencode(name): os.fsencode(str(value)) for name, value in said.items()}
    return [Path(os.fsdecode(path)) for path in remove_dead(encoded, mounts)]


def test_locks_are_found_where_each_compiler_puts_them(home: Path, mounts: str) -> None:
    dead = [
        lock(home / ".cache/torch_extensions/py311_cu128/fused_adam/lock"),
        lock(home.parent / "tmp/torchinductor_ada/locks/cabc.lock"),
        lock(home / ".triton/cache/3f2a/kernel.lock"),
    ]
    assert run(home, mounts) == dead
    assert not any(path.exists() for path in dead)
    assert run(home, mounts) == []


def test_the_users_choice_of_a_cache_is_respected(home: Path, mounts: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    dead = [lock(elsewhere / "t/ext/lock"), lock(elsewhere / "i/locks/a.lock"), lock(elsewhere / "tri/k/lock")]
    kept = lock(home / ".cache/torch_extensions/py311_cpu/ext/lock")
    workers = {"TORCH_EXTENSIONS_DIR": "t", "TORCHINDUCTOR_CACHE_DIR": "i", "TRITON_CACHE_DIR": "tri"}
    assert run(home, mounts, **{name: elsewhere / where for name, where in workers.items()}) == dead
    assert kept.exists()
    moved = lock(elsewhere / "torch_extensions/py311_cpu/ext/lock")
    assert run(home, mounts, XDG_CACHE_HOME=elsewhere) == [moved]


def test_a_lock_that_a_living_process_has_open_stays(home: Path, mounts: str) -> None:
    held = lock(home / ".cache/torch_extensions/py311_cpu/ext/lock")
    child = _holder(held)
    try:
        assert run(home, mounts) == []
    finally:
        child()
    assert run(home, mounts) == [held]


def test_a_locked_file_stays(home: Path, mounts: str) -> None:
    held = lock(home.parent / "tmp/torchinductor_ada/locks/a.lock")
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert run(home, mounts) == []
    assert run(home, mounts) == [held]


@pytest.mark.parametrize(
    "name",
    [
        ".cache/torch_extensions/py311_cpu/ext/lock.txt",
        ".cache/torch_extensions/py311_cpu/ext/src/lock",
        ".cache/torch_extensions/py311_cpu/ext/build.ninja",
        ".triton/cache/a/b/x.lock",
        "lock",
    ],
)
def test_other_files_stay(home: Path, mounts: str, name: str) -> None:
    kept = lock(home / name)
    assert run(home, mounts) == []
    assert kept.exists()


def test_a_file_with_content_is_no_lock(home: Path, mounts: str) -> None:
    kept = lock(home / ".cache/torch_extensions/py311_cpu/ext/lock", "precious")
    assert run(home, mounts) == []
    assert kept.exists()


def test_links_and_pipes_are_not_followed(home: Path, mounts: str, tmp_path: Path) -> None:
    victim = lock(tmp_path / "victim/lock")
    folder = home / ".cache/torch_extensions/py311_cpu"
    (folder / "a").mkdir(parents=True)
    (folder / "b").symlink_to(victim.parent)
    (folder / "a/lock").symlink_to(victim)
    (folder / "c").mkdir()
    os.mkfifo(folder / "c/lock")
    assert run(home, mounts) == []
    assert victim.exists() and (folder / "a/lock").is_symlink() and (folder / "c/lock").is_fifo()


@pytest.mark.require("root")
def test_a_lock_of_another_user_stays(home: Path, mounts: str) -> None:
    kept = lock(home / ".cache/torch_extensions/py311_cpu/ext/lock")
    os.chown(kept, 65534, 65534)
    assert run(home, mounts) == []
    assert kept.exists()


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "lustre", "9p", "unheard-of"])
def test_on_a_file_system_that_others_write_to_nothing_is_removed(home: Path, tmp_path: Path, kind: str) -> None:
    kept = lock(home / ".cache/torch_extensions/py311_cpu/ext/lock")
    table = tmp_path / "mountinfo"
    table.write_text(
        f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 0:50 / {tmp_path} rw shared:3 - {kind} server:/ rw\n"
    )
    assert run(home, str(table)) == []
    assert kept.exists()


def test_the_search_is_bounded(home: Path, mounts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = lock(home / ".cache/torch_extensions/py311_cpu/ext/lock")
    monkeypatch.setattr(build_locks, "BOUND_S", -1.0)
    assert run(home, mounts) == []
    assert kept.exists()


def test_relative_and_missing_caches_are_passed_over(mounts: str) -> None:
    assert caches({}) != [] and all(root.startswith(b"/") for root, _, _ in caches({}))
    assert remove_dead({b"HOME": b"relative", b"TORCH_EXTENSIONS_DIR": b"here"}, mounts) == []


def _holder(path: Path) -> Callable[[], None]:
    """A process that has the file open; call it to end that."""
    reading, writing = os.pipe()
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.open(path, os.O_RDONLY)
        os.write(done, b"x")
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.read(ready, 1)

    def end() -> None:
        os.close(writing)
        os.waitpid(pid, 0)
        for fd in (reading, ready, done):
            os.close(fd)

    return end


def test_of_a_cache_with_too_many_entries_some_are_looked_at(
    home: Path, mounts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program fills it; a start doesn't take the time and memory of all its names."""
    monkeypatch.setattr(build_locks, "ENTRIES_MOST", 3)
    for number in range(5):
        lock(home.parent / f"tmp/torchinductor_ada/locks/{number}.lock")
    assert len(run(home, mounts)) == 3
    assert len(run(home, mounts)) == 2


def test_no_entry_is_looked_at_once_the_time_is_up(
    home: Path, mounts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_locks, "BOUND_S", -1.0)
    dead = lock(home.parent / "tmp/torchinductor_ada/locks/a.lock")
    assert run(home, mounts) == [] and dead.exists()
