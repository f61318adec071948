"""A shell beside a rank, as the shim keeps it: what goes in and out of it, and when it ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import PATIENCE_S, Shim, process_exists, wait_until
from tests.support.leaderless import LEADERLESS

from holdfast_agent.shim import terminal
from holdfast_agent.shim.keepers import frame
from holdfast_agent.shim.shells import shell_keeper

SLEEPS = "import time; print('on', flush=True); time.sleep(600)"
NAMES = ("o", "r", "x", "p")


def children(pid: int) -> set[int]:
    """Pids of a process's children."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


class Shell:
    """The agent's end of one shell; ``said`` is all that came, by the kind of its frame."""

    def __init__(self, shim: Shim, *argv: str, generation: int = 1, rank: int = 0, **fields: Any) -> None:
        self.said = dict.fromkeys(NAMES, b"")
        before = children(shim.process.pid)
        directory = os.open(shim.directory, os.O_RDONLY)
        listener = socket.socket(socket.AF_UNIX)
        try:
            name = f"shell.{time.monotonic_ns()}"
            listener.bind(f"/proc/self/fd/{directory}/{name}")
            listener.listen(1)
            listener.settimeout(PATIENCE_S)
            order = {"terminal": False, "term": "", "rows": 0, "columns": 0, **fields}
            shim.send(op="shell", generation=generation, rank=rank, socket=name, argv=list(argv), **order)
            self.connection, _ = listener.accept()
        finally:
            os.close(directory)
            listener.close()
        self.connection.settimeout(PATIENCE_S)
        self._shim, self._before = shim.process.pid, before
        self._data = b""

    def keeper(self) -> int:
        """The pid of its keeper, while no later shell is open."""
        (pid,) = children(self._shim) - self._before
        return pid

    def gives(self, data: bytes = b"", kind: bytes = b"d") -> None:
        self.connection.sendall(frame(kind, data))

    def ends_input(self) -> None:
        self.gives(kind=b"e")

    def _frame(self) -> str:
        """Takes one frame and returns its kind; empty at the end."""
        while True:
            length = terminal.HEAD + int.from_bytes(self._data[1:3], "big")
            if len(self._data) >= terminal.HEAD and len(self._data) >= length:
                break
            more = self.connection.recv(1 << 16)
            if not more:
                return ""
            self._data += more
        kind, rest, self._data = self._data[:1].decode(), self._data[3:length], self._data[length:]
        self.said[kind] += rest
        return kind

    def sees(self, text: bytes) -> None:
        while text not in self.said["o"]:
            assert self._frame(), f"waited in vain for {text!r}: {self.said}"

    def ends(self) -> dict[str, bytes]:
        while self._frame():
            pass
        return self.said

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def running(shim: Shim) -> Shim:
    """A shim whose rank runs."""
    shim.launch(1, shim.python(SLEEPS))
    shim.until("started")
    shim.await_output()
    return shim


@pytest.fixture
def beside(running: Shim) -> Iterator[Any]:
    """Opens shells beside the rank; they are closed at the end of the test."""
    opened: list[Shell] = []

    def opens(*argv: str, **fields: Any) -> Shell:
        opened.append(Shell(running, *argv, **fields))
        return opened[-1]

    yield opens
    for each in opened:
        each.close()


def test_a_command_on_pipes_gives_its_output_apart_and_its_status(beside: Any) -> None:
    said = beside("sh", "-c", "echo out; echo err >&2; exit 7").ends()
    assert said == {"o": b"out\n", "r": b"err\n", "x": b"7", "p": b""}


def test_a_command_ended_by_a_signal_has_the_status_that_a_shell_gives_it(beside: Any) -> None:
    assert beside("sh", "-c", "kill -9 $$").ends()["x"] == b"137"


def test_what_it_reads_ends_when_the_users_does(beside: Any) -> None:
    shell = beside("cat")
    shell.gives(b"one\n")
    shell.sees(b"one\n")
    shell.gives(b"two\n")
    shell.ends_input()
    assert (shell.ends()["o"], shell.said["x"]) == (b"one\ntwo\n", b"0")


def test_ten_megabytes_go_in_and_come_back_unchanged(beside: Any) -> None:
    shell = beside("cat")
    block = os.urandom(32_000)
    shell.connection.setblocking(False)
    left, back = memoryview(b"".join([frame(b"d", block)] * 320) + frame(b"e", b"")), b""
    deadline = time.monotonic() + 4 * PATIENCE_S
    while time.monotonic() < deadline:
        try:
            left = left[shell.connection.send(left) :] if left else left
        except BlockingIOError:
            pass
        try:
            data = shell.connection.recv(1 << 20)
        except BlockingIOError:
            time.sleep(0.001)
            continue
        if not data:
            break
        back += data
    shell._data = back
    assert shell.ends()["o"] == block * 320 and shell.said["x"] == b"0"


def test_on_a_terminal_it_has_a_window_and_job_control(beside: Any) -> None:
    shell = beside("/bin/sh", terminal=True, term="vt100", rows=30, columns=100)
    shell.gives(b"stty size; echo $TERM; tty | tr 'a-z' 'A-Z'\r")
    shell.sees(b"30 100")
    shell.sees(b"vt100")
    shell.sees(b"/DEV/PTS/")
    shell.gives(terminal.window(40, 120), b"w")
    shell.gives(b"stty size\r")
    shell.sees(b"40 120")
    shell.gives(b"exit 3\r")
    assert shell.ends()["x"] == b"3"


def test_a_full_screen_program_hears_of_a_new_size(beside: Any) -> None:
    program = (
        "import os, signal, tty; tty.setraw(0)\n"
        "signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'size %d %d\\n' % tuple(os.get_terminal_size())))\n"
        "os.write(1, b'ready\\n')\n"
        "while (key := os.read(0, 1)) != b'q': os.write(1, b'key %r\\n' % key)"
    )
    shell = beside(sys.executable, "-I", "-S", "-c", program, terminal=True, rows=24, columns=80)
    shell.sees(b"ready")
    shell.gives(terminal.window(50, 132), b"w")
    shell.sees(b"size 132 50")
    shell.gives(b"\x03")
    shell.sees(b"key b'\\x03'")
    shell.gives(b"q")
    assert shell.ends()["x"] == b"0"


def test_a_program_may_let_go_of_its_terminal_and_take_it_again(beside: Any) -> None:
    program = (
        "import os, time\n"
        "null = os.open('/dev/null', os.O_RDWR)\n"
        "for fd in range(3): os.dup2(null, fd)\n"
        "time.sleep(0.3)\n"
        "os.write(os.open('/dev/tty', os.O_RDWR), b'back\\n')"
    )
    assert beside(sys.executable, "-I", "-S", "-c", program, terminal=True).ends()["o"] == b"back\r\n"


def test_ctrl_c_reaches_the_program_in_the_foreground_alone(beside: Any, running: Shim, tmp_path: Path) -> None:
    program = tmp_path / "foreground.py"
    program.write_text(
        "import time\ntry:\n    print('it', 'runs', flush=True)\n    time.sleep(300)\n"
        "except KeyboardInterrupt:\n    print('it', 'hears', flush=True)\n"
    )
    shell = beside("/bin/sh", terminal=True, rows=24, columns=80)
    shell.gives(f"sleep 300 & echo ke''pt $!; {sys.executable} -I -S {program}\r".encode())
    shell.sees(b"it runs")
    shell.gives(b"\x03")
    shell.sees(b"it hears")
    background = int(shell.said["o"].split(b"kept ")[1].split()[0])
    assert process_exists(background) and running.process.poll() is None
    shell.gives(b"echo go''es on\r")
    shell.sees(b"goes on")


def test_it_has_the_ranks_environment_and_directory(beside: Any, running: Shim) -> None:
    said = beside("sh", "-c", "pwd; echo $LANG").ends()["o"].decode().split()
    assert said == [str(running.out), "C.UTF-8"]


def test_it_can_not_speak_for_the_rank(shim: Shim) -> None:
    names = {
        "TORCHELASTIC_ERROR_FILE": "/x",
        "HOLDFAST_PROGRESS_DIR": "/y",
        "KEPT": "1",
        "PATH": os.environ["PATH"],
    }
    shim.launch(1, {**shim.python(SLEEPS), "env": names})
    shim.until("started")
    said = Shell(shim, "env").ends()["o"].decode()
    assert "KEPT=1" in said and "TORCHELASTIC" not in said and "HOLDFAST" not in said


def test_without_a_command_it_is_a_shell(beside: Any) -> None:
    shell = beside()
    shell.gives(b"echo $((6 * 7))\n")
    shell.ends_input()
    assert shell.ends()["o"] == b"42\n"


def test_what_it_has_started_goes_with_it(beside: Any) -> None:
    said = beside("sh", "-c", "setsid sleep 300 & echo $!").ends()
    left = int(said["o"])
    assert said["x"] == b"0" and not process_exists(left)


def test_a_program_whose_main_thread_has_ended_goes_with_it(beside: Any) -> None:
    shell = beside(sys.executable, "-I", "-S", "-c", LEADERLESS)
    shell.sees(b"\n")
    shell.close()
    wait_until(lambda: not process_exists(int(shell.said["o"])))


@pytest.mark.parametrize("on_terminal", [True, False])
def test_it_ends_when_the_agent_goes_away(beside: Any, on_terminal: bool) -> None:
    shell = beside("sh", "-c", "trap '' HUP TERM; setsid sleep 300 & echo $! $$; wait", terminal=on_terminal)
    shell.sees(b"\n")
    pids = [shell.keeper(), *(int(pid) for pid in shell.said["o"].split())]
    shell.close()
    wait_until(lambda: not any(map(process_exists, pids)))


def test_a_connection_of_the_agents_that_breaks_leaves_the_rank_alone(beside: Any, running: Shim) -> None:
    shell = beside("cat")
    running.hang_up()
    assert running.connect()["phase"] == "running"
    shell.gives(b"still\n")
    shell.sees(b"still")


def test_a_stop_ends_it_at_once_though_the_ranks_have_a_grace(shim: Shim) -> None:
    slow = "import signal, time; signal.signal(15, lambda *_: 0); print('on', flush=True)\nwhile 1: time.sleep(1)"
    shim.launch(1, shim.python(slow))
    shim.until("started")
    shim.await_output()
    shell = Shell(shim, "sh", "-c", "trap '' TERM HUP INT; echo on; while :; do sleep 1; done", terminal=True)
    shell.sees(b"on")
    keeper = shell.keeper()
    shim.stop(grace_s=600)
    assert shell.ends()["p"] == shell_keeper.STOPPED.encode()
    wait_until(lambda: not process_exists(keeper))
    refused = Shell(shim, "true").ends()
    assert b"being stopped" in refused["p"]
    shim.stop(grace_s=0)
    shim.until("empty")


def test_ranks_that_have_ended_do_not_wait_for_it(shim: Shim) -> None:
    shim.launch(1, shim.python("import time; time.sleep(1)"))
    shim.until("started")
    shell = Shell(shim, "sh", "-c", "trap '' TERM HUP; echo on; while :; do sleep 1; done", terminal=True)
    shell.sees(b"on")
    shim.until("exited")
    began = time.monotonic()
    shim.until("empty")
    assert shell.ends()["p"] and time.monotonic() - began < PATIENCE_S


def test_nothing_of_it_survives_the_shim(running: Shim, strays: list[int]) -> None:
    strays += children(running.process.pid)
    shell = Shell(running, "sh", "-c", "setsid sleep 300 & echo $! $$; wait")
    shell.sees(b"\n")
    pids = [shell.keeper(), *(int(pid) for pid in shell.said["o"].split())]
    running.process.send_signal(signal.SIGKILL)
    assert shell.ends()["p"] == shell_keeper.SHIM_DIED.encode()
    wait_until(lambda: not any(map(process_exists, pids)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"generation": 2}, b"generation 2"), ({"rank": 5}, b"rank 5 is not there")],
    ids=["generation", "rank"],
)
def test_what_is_not_there_is_refused_in_words(beside: Any, fields: dict[str, int], words: bytes) -> None:
    said = beside("true", **fields).ends()
    assert words in said["p"] and not said["x"]


def test_a_program_that_can_not_be_found_is_named(beside: Any) -> None:
    assert beside("no-such-program").ends()["p"] == b"no-such-program: no such file on PATH"


def test_before_any_launch_there_is_none(shim: Shim) -> None:
    assert b"nothing runs there" in Shell(shim, "true").ends()["p"]


def test_it_inherits_no_descriptor(beside: Any) -> None:
    said = beside(sys.executable, "-I", "-S", "-c", "import os; print(os.listdir('/proc/self/fd'))").ends()["o"]
    assert sorted(eval(said))[:3] == ["0", "1", "2"] and len(eval(said)) == 4, "and the listing's own"


def test_its_keeper_holds_nothing_of_the_shims(beside: Any, running: Shim) -> None:
    shell = beside("cat")
    shell.gives(b"on\n")
    shell.sees(b"on")
    folder = f"/proc/{shell.keeper()}/fd"
    held = {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    assert not [each for each in held if str(running.directory) in each or "eventpoll" in each]
