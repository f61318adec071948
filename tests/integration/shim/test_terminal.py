"""A rank's terminal: what the shim copies out of it, gives into it, and leaves of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.v1 import agent_pb2
from holdfast_agent.shell.session import terminal_input
from holdfast_agent.shell.session.terminal_input import TerminalInput
from holdfast_agent.shim import terminal

Shim = Any
ECHO = "import os; print(input().upper()); print(os.get_terminal_size())"


def on_terminal(shim: Shim, script: str, generation: int = 1) -> dict[str, Any]:
    order: dict[str, Any] = shim.python(script, generation=generation)
    return {**order, "terminal": True}


def fifo(shim: Shim, generation: int = 1) -> Path:
    return Path(shim.directory) / terminal.fifo(generation, 0)


def give(shim: Shim, kind: bytes, rest: bytes) -> None:
    fd = os.open(fifo(shim), os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, terminal.frame(kind, rest))
    os.close(fd)


def test_what_is_typed_is_read_and_what_is_shown_is_the_output(shim: Shim) -> None:
    shim.launch(1, on_terminal(shim, ECHO))
    shim.until("started")
    give(shim, b"w", terminal.window(40, 120))
    give(shim, b"d", b"hello\r")
    assert shim.until("exited")[-1]["status"] == 0
    said = shim.output().replace("\r", "")
    assert said == "hello\nHELLO\nos.terminal_size(columns=120, lines=40)\n"
    shim.until("empty")
    assert not fifo(shim).exists()


def test_all_output_is_in_the_file_before_the_exit_is_told(shim: Shim) -> None:
    shim.launch(1, on_terminal(shim, "print('x' * 100_000 + 'end')"))
    shim.until("exited")
    assert shim.output().rstrip().endswith("xend") and len(shim.output()) >= 100_000


def test_its_last_words_are_what_the_terminal_showed(shim: Shim) -> None:
    shim.launch(1, on_terminal(shim, "raise ValueError('bad batch')"))
    assert shim.until("exited")[-1]["stderr_tail"][-1] == "ValueError: bad batch"


def test_a_program_may_let_go_of_its_terminal_and_take_it_again(shim: Shim) -> None:
    program = (
        "import os, time\n"
        "null = os.open('/dev/null', os.O_RDWR)\n"
        "for fd in range(3): os.dup2(null, fd)\n"  # as nohup does
        "os.close(null); time.sleep(0.3)\n"
        "os.write(os.open('/dev/tty', os.O_RDWR), b'back\\n')"
    )
    shim.launch(1, on_terminal(shim, program))
    assert shim.until("exited")[-1]["message"] == "exited with code 0"
    assert shim.output() == "back\n"


def test_a_ctrl_c_is_a_signal_to_the_program_alone(shim: Shim) -> None:
    # Not one long sleep: a signal that comes just before the kernel's call doesn't end it.
    program = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)"
    shim.launch(1, on_terminal(shim, program))
    shim.until("started")
    shim.await_output()
    give(shim, b"d", b"\x03")
    assert os.WTERMSIG(shim.until("exited")[-1]["status"]) == 2
    assert shim.process.poll() is None


def test_a_terminal_outlives_the_connection_of_the_agent(shim: Shim) -> None:
    shim.launch(1, on_terminal(shim, ECHO))
    shim.until("started")
    shim.hang_up()
    give(shim, b"d", b"hello\r")
    shim.connect()
    assert shim.until("exited")[-1]["status"] == 0


def test_a_rank_on_a_terminal_is_stopped_with_all_that_it_started(shim: Shim) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    shim.launch(1, on_terminal(shim, script))
    shim.until("started")
    shim.send(op="stop", generation=1, grace_s=0.5, reason="STOPPED")
    shim.until("empty")


def test_the_next_generation_has_a_terminal_of_its_own(shim: Shim) -> None:
    for generation in (1, 2):
        shim.launch(generation, on_terminal(shim, "print(input())", generation))
        shim.until("started")
        assert fifo(shim, generation).exists()
        fd = os.open(fifo(shim, generation), os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, terminal.frame(b"d", f"g{generation}\r".encode()))
        os.close(fd)
        shim.until("empty")
        assert f"g{generation}\n" in shim.output(generation=generation).replace("\r", "")


@pytest.mark.parametrize("junk", [b"?\x00\x03abc", b"w\x00\x01x", b"d\x00\x00"])
def test_a_frame_that_means_nothing_is_passed_over(shim: Shim, junk: bytes) -> None:
    shim.launch(1, on_terminal(shim, ECHO))
    shim.until("started")
    fd = os.open(fifo(shim), os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, junk)
    os.close(fd)
    give(shim, b"d", b"hello\r")
    assert shim.until("exited")[-1]["status"] == 0


def test_a_rank_without_one_has_no_terminal(shim: Shim) -> None:
    shim.launch(1, shim.python("import os; print([os.isatty(each) for each in range(3)])"))
    shim.until("exited")
    assert shim.output() == "[False, False, False]\n"


@pytest.fixture
def agents_end(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> TerminalInput:
    """The agent's side, for the worker ``workerpool0-0`` of job ``a``; answers soon."""
    monkeypatch.setattr(terminal_input, "TAKEN_WITHIN_S", 0.3)
    workers = Path(shim.out) / "workers"
    (workers / "a").mkdir(parents=True)
    (workers / "a" / "workerpool0-0").symlink_to(shim.directory)
    return TerminalInput(workers)


def asked(**fields: Any) -> agent_pb2.GiveInput:
    return agent_pb2.GiveInput(id=7, job_id="a", generation=1, worker="workerpool0-0", **fields)


def test_the_agent_gives_what_was_typed_until_no_more_is_read(shim: Shim, agents_end: TerminalInput) -> None:
    deaf = f"import tty, time; tty.setraw(0); print('on', flush=True); time.sleep(600)  # {sys.executable}"
    shim.launch(1, on_terminal(shim, deaf))
    shim.until("started")
    shim.await_output()

    async def fill() -> tuple[int, agent_pb2.InputTaken]:
        given = 0
        while (taken := await agents_end.give(asked(data=b"x" * 4000))).bytes:
            given += taken.bytes
            assert given < 1_000_000
        return given, taken

    given, last = anyio.run(fill)
    assert given >= 64_000 and (last.id, last.bytes, last.problem) == (7, 0, "")


@pytest.mark.parametrize("fields", [{"rank": 1}, {"worker": "../x"}, {"generation": 2}])
def test_the_agent_says_that_there_is_no_terminal(
    shim: Shim, agents_end: TerminalInput, fields: dict[str, Any]
) -> None:
    shim.launch(1, on_terminal(shim, "input()"))
    shim.until("started")
    order = asked(data=b"x")
    order.MergeFrom(agent_pb2.GiveInput(**fields))
    assert anyio.run(agents_end.give, order).problem


def test_what_is_no_fifo_is_not_written_to(shim: Shim, agents_end: TerminalInput) -> None:
    fifo(shim).parent.mkdir(parents=True, exist_ok=True)
    fifo(shim).write_text("file")
    taken = anyio.run(agents_end.give, asked(data=b"x"))
    assert taken.problem == "rank 0 has no terminal." and fifo(shim).read_text() == "file"
