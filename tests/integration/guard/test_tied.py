"""Processes that end with their guard, made by a new interpreter or forked from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast._daemon import loop_watch
from holdfast.guard import tied
from holdfast.guard.allocation import SEED_VARIABLE

PATIENCE_S = 180.0
# A daemon: says what it finds, and ends with 7, or waits.
DAEMON = """\
import json, os, signal, sys, time
import shadowed
found = {"argv": sys.argv[1:], "cwd": os.getcwd(), "seed": os.environ.get("HOLDFAST_GUARD_SEED"), "of": shadowed.OF}
found["files"] = sorted(os.listdir("/proc/self/fd"))[:-1]
found["leads"] = os.getsid(0) == os.getpid()
found["blocked"] = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
with open("/proc/self/cmdline") as file:
    found["shown"] = file.read().replace("\\0", " ").strip()
print(json.dumps(found), flush=True)
time.sleep(1000 if "waits" in sys.argv else 0)
sys.exit(7)
"""
# A guard: forks the daemon, with a file open and a module of the same name in its folder.
GUARD = """\
import os, sys
from holdfast.guard import tied
kept = open("kept", "w")
assert tied.is_alone()
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
child = tied.Forked(log, "daemon_of_test", *sys.argv[1:])
print(child.pid, child.poll(), flush=True)
print(child.wait(), child.poll(), flush=True)
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/daemon_of_test.py").write_text(DAEMON)
    (tmp_path / "lib/shadowed.py").write_text("OF = 'the library'")
    (tmp_path / "user").mkdir()
    (tmp_path / "user/shadowed.py").write_text("OF = 'the user'")
    (tmp_path / "user/guard_of_test.py").write_text(GUARD)
    paths = os.pathsep.join([os.path.relpath(tmp_path / "lib", tmp_path / "user"), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": paths, SEED_VARIABLE: "s" * 64}


def start(folder: Path, env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "guard_of_test", *words)
    return subprocess.Popen(command, cwd=folder / "user", env=env, stdout=subprocess.PIPE, text=True)


def test_a_forked_daemon_finds_what_a_new_interpreter_would(tmp_path: Path, env: dict[str, str]) -> None:
    said, _ = start(tmp_path, env, "--config", "x").communicate(timeout=PATIENCE_S)

    assert said.splitlines()[0].endswith(" None") and said.splitlines()[1] == "7 7"
    found = json.loads((tmp_path / "user/log").read_text())
    # As many bytes of its command line as the guard has of its own.
    shown = found.pop("shown")
    assert f"{sys.executable} -m daemon_of_test --config x".startswith(shown) and "daemon_of" in shown
    assert found == {
        "argv": ["--config", "x"],
        "cwd": "/",
        "seed": None,
        "of": "the library",
        "files": ["0", "1", "2"],
        "leads": True,
        "blocked": True,
    }


def test_a_forked_daemon_ends_with_its_guard(tmp_path: Path, env: dict[str, str]) -> None:
    guard = start(tmp_path, env, "waits")
    assert guard.stdout is not None
    pid = int(guard.stdout.readline().split()[0])
    wait_until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "user/log").stat().st_size:
        assert time.monotonic() < wait_until
        time.sleep(0.05)

    guard.send_signal(signal.SIGKILL)
    guard.communicate()

    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < wait_until
        time.sleep(0.05)


def test_one_that_fails_leaves_its_last_words(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "lib/daemon_of_test.py").write_text("raise ImportError('no such thing')")

    said, _ = start(tmp_path, env).communicate(timeout=PATIENCE_S)

    assert said.splitlines()[1] == "1 1"
    words = (tmp_path / "user/log").read_text()
    assert words.endswith("ImportError: no such thing\n")
    problem = tied.unloadable(words)
    assert problem is not None and f"{sys.executable}, Python 3" in problem.message


def test_nothing_is_forked_while_another_thread_may_hold_a_lock() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert not tied.is_alone()
    finally:
        over.set()
        thread.join()


def test_daemons_of_a_guard_look_seldom_at_their_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tied.SELDOM == loop_watch.SELDOM
    monkeypatch.delenv(loop_watch.REPORT, raising=False)
    assert loop_watch.LoopWatch()._beat_s == loop_watch.BEAT_S
    for name, value in tied.environment({}).items():
        monkeypatch.setenv(name, value)
    assert loop_watch.LoopWatch()._beat_s == loop_watch.SELDOM_S
