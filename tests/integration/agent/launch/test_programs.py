"""Programs that run for a job beside its ranks: what they start with, and what is left of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program
from holdfast_agent.shell.prepare import hooks
from holdfast_agent.shim import program_reaper

DAEMON = "setsid sleep 612 > /dev/null 2>&1 & echo $! > {pid}"


def lives(path: Path) -> bool:
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def shell(script: str, within_s: float = 20, **how: bool) -> programs.Ran:
    return programs.run(Program(["/bin/sh", "-c", script], within_s, **how))  # type: ignore[arg-type]


def test_it_starts_with_nothing_of_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    said = shell("env; umask; ls /proc/self/fd; grep NoNewPrivs /proc/self/status; readlink /proc/$$/fd/0").output
    lines = said.decode().splitlines()
    assert not any("SECRET" in line for line in lines)
    # ``ls`` itself has the folder open.
    assert lines[-7:] == ["0022", "0", "1", "2", "3", "NoNewPrivs:\t1", "/dev/null"]


@pytest.mark.parametrize(
    ("script", "within_s", "how", "code"),
    [
        ("exit 0", 20, How.ENDED, 0),
        ("exit 3", 20, How.ENDED, 3),
        ("kill -9 $$", 20, How.ENDED, -9),
        ("sleep 612", 1, How.LATE, None),
        ("yes", 20, How.FLOOD, None),
    ],
)
def test_nothing_of_it_is_left_however_it_ends(
    script: str, within_s: float, how: How, code: int | None, tmp_path: Path
) -> None:
    ran = shell(f"{DAEMON.format(pid=tmp_path / 'pid')}; {script}", within_s)
    assert (ran.how, ran.code, ran.left) == (how, code, "")
    assert not lives(tmp_path / "pid")


def test_what_can_not_be_started_is_said() -> None:
    ran = programs.run(Program(["/no/such/program"], 20))
    assert (ran.how, ran.problem) == (How.NOT_STARTED, "no such file")
    ran = programs.run(Program(["no-such-program"], 20))
    assert (ran.how, ran.problem) == (How.NOT_STARTED, "no such file on PATH")
    ran = programs.run(Program(["/bin/true"], 20, cwd="/no/such/folder"))
    assert (ran.how, ran.problem) == (
        How.NOT_STARTED,
        "cannot change to /no/such/folder: No such file or directory",
    )


NO_MORE_IMPORTS = f"""
import sys
sys.path.append({os.path.dirname(os.path.dirname(os.path.dirname(program_reaper.__file__)))!r})
from holdfast_agent.shim import program_reaper

def refuse(event, args):
    if event == "import":
        raise ImportError(f"{{args[0]}} lies where the account may not read")

def take_identity(self):
    sys.addaudithook(refuse)

program_reaper.Reaper._take_identity = take_identity
program_reaper.main()
"""


def test_it_starts_for_an_account_that_may_not_read_the_agents_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program_reaper.py").write_text(NO_MORE_IMPORTS)
    monkeypatch.setattr(program_reaper, "__file__", str(tmp_path / "program_reaper.py"))
    ran = programs.run(Program(["sh", "-c", "echo there"], 20))
    assert (ran.how, ran.code, ran.output) == (How.ENDED, 0, b"there\n"), ran


@pytest.mark.parametrize(("code", "stays"), [(0, True), (1, False)])
def test_a_hook_may_leave_something_behind_if_it_ends_well(code: int, stays: bool, tmp_path: Path) -> None:
    command = ("/bin/sh", "-c", f"{DAEMON.format(pid=tmp_path / 'pid')}; exit {code}")
    try:
        assert bool(hooks.run("prolog", command, {}, 20)) == (code != 0)
        assert lives(tmp_path / "pid") == stays
    finally:
        if lives(tmp_path / "pid"):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
