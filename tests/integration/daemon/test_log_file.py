"""A daemon's log file: bounded, nothing lost when it is renamed, and the first to give way on a full disk."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast._daemon import log_file
from holdfast._daemon.log_file import KEPT, LogFile, LogFileHandler
from holdfast.errors import ConfigError


def parts(path: Path) -> list[Path]:
    """The files of a log, oldest first."""
    numbered = [path.with_name(f"{path.name}.{number}") for number in range(KEPT + 5, 0, -1)]
    return [each for each in (*numbered, path) if each.exists()]


def lines(path: Path) -> list[str]:
    return [line for each in parts(path) for line in each.read_text().splitlines()]


def test_no_line_is_lost_or_torn_while_several_threads_write_and_files_are_renamed(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    file = LogFile(path, 40_000, stderr=False)
    logger = logging.Logger("load")
    logger.addHandler(LogFileHandler(file))
    start = threading.Barrier(4)

    def write(thread: int) -> None:
        start.wait()
        for number in range(400):
            logger.info("%d-%d %s", thread, number, "x" * 80)

    threads = [threading.Thread(target=write, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    assert len(parts(path)) == KEPT, "it was renamed several times"
    assert all(each.stat().st_size <= 40_000 for each in parts(path))
    words = [line.split()[0] for line in lines(path)]
    assert sorted(words) == sorted(f"{thread}-{number}" for thread in range(4) for number in range(400))
    for writer in range(4):
        mine = [word for word in words if word.startswith(f"{writer}-")]
        assert mine == [f"{writer}-{number}" for number in range(400)], (
            "in order, from the oldest file to the newest"
        )


def test_the_oldest_file_goes_when_the_bound_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    file = LogFile(path, 100, stderr=False)
    for number in range(200):
        file.write(f"line {number}")
    file.close()
    assert len(parts(path)) == KEPT + 1
    kept = lines(path)
    assert kept[-1] == "line 199"
    assert kept == [f"line {number}" for number in range(200 - len(kept), 200)]


def test_mode_and_owner_stay_when_a_new_file_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.touch()
    path.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(path, 1, 2)
    file = LogFile(path, 50, stderr=False)
    file.write("x" * 40)
    file.write("y" * 40)
    file.close()
    old, new = parts(path)
    assert (old.read_text(), new.read_text()) == ("x" * 40 + "\n", "y" * 40 + "\n")
    assert (new.stat().st_mode, new.stat().st_uid, new.stat().st_gid) == (
        old.stat().st_mode,
        old.stat().st_uid,
        old.stat().st_gid,
    )


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_file_that_somebody_takes_away_is_begun_anew_at_the_next_line(tmp_path: Path, how: str) -> None:
    path = tmp_path / "agent.log"
    file = LogFile(path, 1 << 20, stderr=False)
    file.write("before")
    if how == "moved":
        path.rename(tmp_path / "agent.log-20260101")
    else:
        path.unlink()
    file.write("after")
    file.close()
    assert path.read_text() == "after\n"


def test_what_a_dying_daemon_prints_is_in_the_file_that_is_newest(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    code = f"""
from pathlib import Path
from holdfast._daemon.log_file import LogFile
file = LogFile(Path({str(path)!r}), 60)
for number in range(3):
    file.write("x" * 50)
raise SystemError("the end")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=180)
    assert done.stderr == b""
    assert "SystemError: the end" in path.read_text()
    assert len(parts(path)) == 3


@pytest.mark.require("root", "mount")
def test_on_a_full_disk_old_logs_give_way_first_then_lines_which_are_counted(tmp_path: Path) -> None:
    """In a mount namespace of its own, on a tmpfs of 64 KiB."""
    code = """
import os, sys
from pathlib import Path
from holdfast._daemon.log_file import LogFile
folder = Path(sys.argv[1])
file = LogFile(folder / "agent.log", 8_000, stderr=False)
for number in range(200):
    file.write(f"{number} " + "x" * 90)
full = len(list(folder.glob("agent.log.*")))
hog = os.open(folder / "hog", os.O_WRONLY | os.O_CREAT)
for number in range(200, 400):
    try:
        while True:
            os.write(hog, b"y" * 1000)
    except OSError:
        pass
    file.write(f"{number} " + "x" * 90)
left = len(list(folder.glob("agent.log.*")))
os.ftruncate(hog, 0)
file.write("there is room again")
print(full, left, flush=True)
print((folder / "agent.log").read_text())
"""
    script = 'mount -t tmpfs -o size=64k tmpfs "$1" && exec "$2" -c "$3" "$1"'
    words = ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=True)
    head, *said = done.stdout.splitlines()
    full, left = map(int, head.split())
    assert full > left == 0, "full files have given way"
    told = [json.loads(line) for line in said if line.startswith("{")]
    assert told and told[0]["event"] == "log.lines_dropped", said[-3:]
    assert told[0]["lines"] > 0
    assert "there is room again" in said


@pytest.mark.parametrize("where", ["stderr", "file"])
def test_a_crash_of_native_code_leaves_its_stack_where_the_log_goes(tmp_path: Path, where: str) -> None:
    path = tmp_path / "agent.log"
    code = (
        "import os; from pathlib import Path; from holdfast._daemon import log_file\n"
        f"log_file.handler({'None' if where == 'stderr' else f'Path({str(path)!r})'}, 1)\n"
        "os.abort()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGABRT
    written = ended.stderr if where == "stderr" else path.read_text()
    assert "Fatal Python error: Aborted" in written
    assert 'File "<string>", line 3' in written


@pytest.mark.parametrize("log", ["None", "log"])
@pytest.mark.parametrize("daemon", ["holdfast_agent", "holdfast_controller"])
def test_a_daemon_that_is_started_without_standard_streams_writes_its_log_and_nothing_else_there(
    tmp_path: Path, daemon: str, log: str
) -> None:
    code = f"""
import contextlib, sys
from pathlib import Path
from {daemon}.__main__ import main
from holdfast._daemon import log, log_file
sys.argv[1:] = ["--version"]
with contextlib.suppress(SystemExit):
    main()
first = open("first", "w")
path = {log!r}
log.configure("info", log_file.handler(None if path == "None" else Path(path), 1))
log.info("agent.started")
print("a library's word", file=sys.stderr, flush=True)
first.write(f"number {{first.fileno()}}")
"""
    command = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "first").read_text() == "number 3"
    if log == "log":
        started, word = (tmp_path / "log").read_text().splitlines()
        assert json.loads(started)["event"] == "agent.started"
        assert word == "a library's word"


def test_a_log_that_cannot_be_opened_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log_file: cannot open .*missing/agent.log: No such file"):
        log_file.handler(tmp_path / "missing/agent.log", 64)
    with pytest.raises(ConfigError, match="log_file_mb is 0"):
        log_file.handler(tmp_path / "agent.log", 0)
    assert isinstance(log_file.handler(None, 64), logging.StreamHandler)
