"""What /proc says of a process, and which processes of a worker are its ranks."""

from __future__ import annotations

import pytest

from holdfast.hang.evidence.evidence import Vector
from holdfast_agent.core.proc.proc_vector import Member, below, rank_processes, vector

STAT = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 3 0 250 50 0 0 20 0 7 0 12345 0 0"
STATUS = "Name:\tpython\nTracerPid:\t9\nvoluntary_ctxt_switches:\t46\nnonvoluntary_ctxt_switches:\t3\n"
STACK = "[<0>] futex_wait_queue+0x60/0x90\n[<0>] __x64_sys_futex+0x143/0x180\n[<0>] 0xffffffff\n"


def test_every_file_adds_to_the_vector() -> None:
    files = {"stat": STAT, "status": STATUS, "wchan": "futex_wait_queue", "syscall": "202 0x7f 0x0", "stack": STACK}
    assert vector(files, 100) == Vector(
        state="S",
        wchan="futex_wait_queue",
        syscall="futex",
        cpu_s=3.0,
        main_switches=46,
        threads=7,
        tracer=9,
        kernel_stack=("futex_wait_queue", "__x64_sys_futex"),
    )
    assert vector(files, 100, "aarch64").syscall == "accept"
    assert vector({"stat": STAT}, 100) == Vector(state="S", cpu_s=3.0, threads=7)


@pytest.mark.parametrize(
    ("text", "call"),
    [("running", ""), ("-1 0x7ffe", ""), ("9999 0x0", "syscall 9999"), ("", ""), ("62 0x1", "kill")],
)
def test_system_calls_have_names(text: str, call: str) -> None:
    assert vector({"stat": STAT, "syscall": text}, 100).syscall == call


@pytest.mark.parametrize("stat", ["", "42 python S", "42 (python) S 1 2", "42 (python) S " + "x " * 30])
def test_a_stat_that_makes_no_sense_is_refused(stat: str) -> None:
    with pytest.raises(ValueError):
        vector({"stat": stat}, 100)


PYTHON = ("python", "train.py")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([Member(10, 1, PYTHON, 0), Member(11, 1, PYTHON, 1), Member(20, 10, PYTHON, 0)], {0: 10, 1: 11}),
        (
            [Member(10, 1, ("/bin/bash", "run.sh"), 0), Member(20, 10, PYTHON, 0), Member(11, 1, PYTHON, 1)],
            {0: 20, 1: 11},
        ),
        (
            # A shell's pipeline: the interpreter counts.
            [
                Member(10, 1, ("bash",), 0),
                Member(20, 10, ("tee", "x"), 0),
                Member(21, 10, PYTHON, 0),
                Member(11, 1),
            ],
            {0: 21, 1: 11},
        ),
        (
            # torchrun under a shell, with ranks of its own and their helpers.
            [
                Member(10, 1, ("sh", "-c", "x"), 0),
                Member(20, 10, ("/v/bin/python", "/v/bin/torchrun", "train.py"), 0),
                Member(30, 20, PYTHON, 2),
                Member(31, 20, PYTHON, 3),
                Member(40, 31, PYTHON, 3),
                Member(11, 1, PYTHON, 9),
            ],
            {1: 11, 2: 30, 3: 31},
        ),
        # As the sampler sees them: one list of what only starts others.
        (
            [Member(10, 1, ("uv", "run", "train.py"), 0), Member(20, 10, PYTHON, 0), Member(11, 1, PYTHON, 1)],
            {0: 20, 1: 11},
        ),
        ([Member(10, 1, ("bash",), 0), Member(11, 1, PYTHON, 1)], {0: 10, 1: 11}),
        ([], {0: 10, 1: 11}),
    ],
)
def test_launchers_and_shells_are_no_ranks(members: list[Member], expected: dict[int, int]) -> None:
    assert rank_processes({0: 10, 1: 11}, members) == expected


def test_below_is_everything_under_a_process() -> None:
    members = [Member(1, 0), Member(2, 1), Member(3, 2), Member(4, 1), Member(5, 9)]
    assert [member.pid for member in below(1, members)] == [2, 4, 3]
