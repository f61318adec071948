"""Texts of /proc as recorded on real machines."""

from __future__ import annotations

import pytest

from holdfast.hang.pipeline.samples import State
from holdfast_agent.core.proc import proc_text
from holdfast_agent.core.proc.proc_text import World

FIELDS = (
    b"R 41 77 78 0 -1 4194304 900 3 12 4 250 50 30 7 20 0 9 0 123456 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 "
    b"5 0 0 0 0 0\n"
)
IO = b"rchar: 10\nwchar: 20\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n"
STATUS = (
    b"Name:\tvoluntary_ctxt_switches: 9\nState:\tS (sleeping)\nTracerPid:\t4711\nThreads:\t3\n"
    b"voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"
)
MOUNTS = (
    b"36 35 98:0 / / rw,noatime - ext4 /dev/root rw\n"
    b"71 36 0:42 / /mnt/my\\040data rw shared:3 - nfs4 filer:/data rw\n"
)


@pytest.mark.parametrize("name", [b"python3", b"a b", b"x) R 1 (y", b")", b"((", b"\xff\xfe"])
def test_stat_is_read_whatever_the_programs_name(name: bytes) -> None:
    stat = proc_text.parse_stat(b"1234 (" + name + b") " + FIELDS)
    assert stat.name == name.decode("utf-8", "replace")
    assert stat[1:] == (State.RUNNING, 41, 77, 78, 12, 300, 37, 123456, 5)


@pytest.mark.parametrize(
    ("letter", "state"),
    [*((state.value, state) for state in State), ("X", State.ZOMBIE), ("I", State.SLEEPING), ("W", State.SLEEPING)],
)
def test_every_state_letter_has_a_meaning(letter: str, state: State) -> None:
    assert proc_text.parse_stat(b"1 (x) " + letter.encode() + FIELDS[1:]).state is state


@pytest.mark.parametrize("text", [b"", b"1 (x", b"1 (x) R 2", b"1 (x) " + FIELDS.replace(b"250", b"many")])
def test_what_is_no_stat_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        proc_text.parse_stat(text)


def test_storage_is_what_reached_the_disk() -> None:
    io = proc_text.parse_io(IO)
    assert io == (10, 20, 4096, 8192)
    assert io.storage_bytes == 12288
    with pytest.raises(ValueError):
        proc_text.parse_io(b"")


def test_main_threads_switches_and_tracer_are_not_taken_from_a_name_that_looks_like_them() -> None:
    assert proc_text.parse_main_thread(STATUS) == (4711, 150, State.SLEEPING)
    with pytest.raises(ValueError):
        proc_text.parse_main_thread(b"Name:\tx\n")


def test_system_call_of_a_sleeping_thread() -> None:
    call = proc_text.parse_syscall(
        b"0 0x3 0x7f9ec7790000 0x20000 0x0 0xffffffff 0x0 0x7ffe65c943e8 0x7f9ec790c2ad\n"
    )
    assert call == (0, (3, 0x7F9EC7790000, 0x20000, 0, 0xFFFFFFFF, 0))
    assert proc_text.parse_syscall(b"running\n") is None
    assert proc_text.parse_syscall(b"") is None
    assert proc_text.parse_syscall(b"-1 0x7ffe65c943e8 0x7f9ec790c2ad\n") == (-1, (0x7FFE65C943E8, 0x7F9EC790C2AD))


def test_mount_of_a_descriptor() -> None:
    assert proc_text.parse_fdinfo(b"pos:\t0\nflags:\t0100001\nmnt_id:\t71\nino:\t5\n") == (True, 71)
    assert proc_text.parse_fdinfo(b"pos:\t0\nflags:\t02100000\nmnt_id:\t36\n") == (False, 36)
    assert proc_text.mount_point(MOUNTS, 71) == "/mnt/my data"
    assert proc_text.mount_point(MOUNTS, 72) == ""


MPIRUN = b"OMPI_COMM_WORLD_RANK=0\0OMPI_COMM_WORLD_SIZE=2\0"


@pytest.mark.parametrize(
    ("environ", "world"),
    [
        (b"A=1\0RANK=17\0B=2\0", World(17, 17)),
        (b"RANK=1\0WORLD_SIZE=4\0", World(1, 1, 4)),
        (b"RANK=1\0WORLD_SIZE=4\0" + MPIRUN + b"OMPI_COMM_WORLD_LOCAL_SIZE=2\0", World(1, 0, 2)),
        (b"RANK=1\0WORLD_SIZE=4\0" + MPIRUN, World(1, 1, 4)),  # those that a launch sets for JAX
        (b"RANK=1\0WORLD_SIZE=4\0PMI_RANK=2\0", World(1, 1, 4)),
        (b"LOCAL_RANK=3\0", World()),
        (b"RANK=x\0", World()),
        (b"RANK=99999999999\0", World()),
        (b"", World()),
    ],
)
def test_world_in_an_environment(environ: bytes, world: World) -> None:
    assert proc_text.world_in(environ) == world


def test_command_line_of_a_zombie_is_empty() -> None:
    assert proc_text.parse_command(b"") == ()
    assert proc_text.parse_command(b"python\0-c\0x y\0") == ("python", "-c", "x y")
    assert proc_text.parse_wchan(b"0") == ""
    assert proc_text.parse_wchan(b"futex_wait_queue\n") == "futex_wait_queue"


def test_schedstat_has_the_time_on_a_core_and_without_one() -> None:
    found = proc_text.parse_schedstat(b"505678000 1463755000 2\n")
    assert (found.ran_s, found.queued_s) == pytest.approx((0.505678, 1.463755))
    with pytest.raises(ValueError, match="no schedstat"):
        proc_text.parse_schedstat(b"")
