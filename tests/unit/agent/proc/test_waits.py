"""System calls, descriptors and tables of /proc, and the wait that follows from them."""

from __future__ import annotations

import math
import struct

import pytest

from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast_agent.core.proc import descriptors, system_calls, waits
from holdfast_agent.core.proc.descriptors import Fdinfo, Link, Lock, Sort, Unix
from holdfast_agent.core.proc.proc_text import Call
from holdfast_agent.core.proc.system_calls import For, Limit, TimeForm
from holdfast_agent.core.proc.waits import End, Gang
from holdfast_agent.shell.sampling.worker import gang_at


@pytest.mark.parametrize(
    ("name", "waits_for"),
    [
        ("read", For.DESCRIPTORS),
        ("recvfrom", For.DESCRIPTORS),
        ("epoll_pwait", For.DESCRIPTORS),
        ("futex", For.FUTEX),
        ("wait4", For.CHILD),
        ("clock_nanosleep", For.CLOCK),
        ("rt_sigsuspend", For.SIGNAL),
        ("openat", For.PATH),
        ("restart_syscall", For.RESUMED),
    ],
)
def test_a_call_means_the_same_on_both_machines(name: str, waits_for: For) -> None:
    for machine, names in system_calls.NAMES.items():
        number = next(number for number, found in names.items() if found == name)
        assert system_calls.blocked(Call(number, (7, 0, 1, 0, 0, 0)), machine).waits_for is waits_for
    assert system_calls.blocked(Call(9999, ()), "x86_64").waits_for is For.OTHER


def test_arguments_say_how_long_a_call_may_last() -> None:
    def limit(number: int, *arguments: int) -> Limit | None:
        return system_calls.blocked(Call(number, arguments), "x86_64").limit

    assert limit(7, 0x7000, 1, 0xFFFFFFFF) == Limit(TimeForm.MILLISECONDS, -1)
    assert limit(7, 0x7000, 1, 5000) == Limit(TimeForm.MILLISECONDS, 5000)
    assert limit(230, 1, 1, 0x7000, 0) == Limit(TimeForm.MONOTONIC, 0x7000)
    assert limit(230, 0, 1, 0x7000, 0) == Limit(TimeForm.OTHER_CLOCK, 0x7000)
    assert limit(230, 1, 0, 0x7000, 0) == Limit(TimeForm.TIMESPEC, 0x7000)
    assert limit(202, 0x5000, 128, 0, 0x7000) == Limit(TimeForm.TIMESPEC, 0x7000)
    assert limit(202, 0x5000, 128 | 9, 0, 0x7000) == Limit(TimeForm.MONOTONIC, 0x7000)
    assert limit(202, 0x5000, 128 | 256 | 9, 0, 0x7000) is None
    assert limit(202, 0x5000, 6, 0, 0x7000) is None
    assert limit(23, 4, 0x1, 0, 0, 0x7000) == Limit(TimeForm.TIMEVAL, 0x7000)
    assert system_calls.seconds(struct.pack("=qq", 5, 500_000), TimeForm.TIMEVAL) == 5.5
    assert system_calls.seconds(struct.pack("=qq", 5, 500_000_000), TimeForm.TIMESPEC) == 5.5
    with pytest.raises(ValueError):
        system_calls.seconds(b"", TimeForm.TIMESPEC)


def test_a_lock_between_processes_is_told_from_one_of_threads() -> None:
    for operation, shared in ((0, True), (9 | 256, True), (128, False), (128 | 9, False)):
        assert system_calls.blocked(Call(202, (0x5000, operation)), "x86_64").shared is shared


def test_a_poll_without_descriptors_waits_for_the_clock() -> None:
    assert system_calls.blocked(Call(7, (0, 0, 500)), "x86_64").waits_for is For.CLOCK
    assert system_calls.blocked(Call(23, (0, 0, 0, 0, 0x7000)), "x86_64").waits_for is For.CLOCK


def test_descriptors_of_poll_and_select() -> None:
    assert list(system_calls.polled(struct.pack("=ihhihhih", 3, 1, 0, -1, 1, 0, 9, 1))) == [3]
    assert list(system_calls.polled(struct.pack("=ihhihh", 3, 1, 0, 9, 1, 0))) == [3, 9]
    assert list(system_calls.selected(bytes([0b1001, 0, 1]))) == [0, 3, 16]


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("socket:[42]", Link(Sort.SOCKET, 42)),
        ("pipe:[7]", Link(Sort.PIPE, 7)),
        ("/dev/pts/3", Link(Sort.TERMINAL, path="/dev/pts/3")),
        ("/dev/tty", Link(Sort.TERMINAL, path="/dev/tty")),
        ("/dev/ttyS0", Link(Sort.TERMINAL, path="/dev/ttyS0")),
        ("/dev/ptmx", Link(Sort.PTMX, path="/dev/ptmx")),
        ("/dev/nvidia0", Link(Sort.DEVICE, path="/dev/nvidia0")),
        ("/dev/shm/x", Link(Sort.FILE, path="/dev/shm/x")),
        ("/data/a b (deleted)", Link(Sort.FILE, path="/data/a b")),
        ("anon_inode:[eventfd]", Link(Sort.EVENT, path="[eventfd]")),
        ("anon_inode:[io_uring]", Link(Sort.OTHER, path="anon_inode:[io_uring]")),
        ("", Link(Sort.OTHER)),
    ],
)
def test_links_of_descriptors(text: str, link: Link) -> None:
    assert descriptors.link_of(text) == link


def test_socket_tables() -> None:
    head = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = b"   0: 0100007F:1F90 0700000A:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n"
    v6 = b"   1: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9 1\n"
    first, second = descriptors.parse_tcp(head + row + v6 + b"junk\n")
    assert first == (("127.0.0.1", 8080), ("10.0.0.7", 443), False, 4711)
    assert second == (("127.0.0.1", 80), ("::", 0), True, 9)
    assert (descriptors.shown(first.remote), descriptors.shown(("::1", 80))) == ("10.0.0.7:443", "[::1]:80")
    unix = b"Num RefCount\n0: 2 0 00010000 0001 01 77 /run/a b\n0: 3 0 00000000 0001 03 78\n0: x\n"
    assert list(descriptors.parse_unix(unix)) == [Unix(77, True, "/run/a b"), Unix(78, False, "")]


def test_locks_and_who_waits_for_them() -> None:
    text = (
        b"1: FLOCK  ADVISORY  WRITE 10 08:01:123 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 11 08:01:123 0 EOF\n"
        b"2: POSIX  ADVISORY  READ 12 fd:10:9 128 128\n3: LEASE ACTIVE\n"
    )
    assert descriptors.parse_locks(text) == [Lock(10, (8, 1, 123), (11,)), Lock(12, (0xFD, 0x10, 9), shared=True)]


def test_fdinfo() -> None:
    text = (
        b"pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t99\ntfd:        4 events: 1 data: 4\ntfd:  7 events: 1\nPid:\t8\n"
    )
    assert descriptors.parse_fdinfo(text) == Fdinfo((4, 7), 99, 15, 8)
    assert descriptors.parse_fdinfo(b"") == Fdinfo()


PEER, OUTSIDE = End(WaitKind.PEER, "10.0.0.1:29500"), End(WaitKind.OUTSIDE, "s3:443")
LISTENS, OWN = End(WaitKind.REQUEST, "0.0.0.0:80"), End(WaitKind.LOCK)
ACCEPTED = End(WaitKind.OUTSIDE, "10.9.9.9:1", accepted=True)
MEETS = End(WaitKind.MEETING, "0.0.0.0:29500")


@pytest.mark.parametrize(
    ("ends", "until_s", "wait"),
    [
        ((), 7.0, Wait(WaitKind.SLEEP, until_s=7.0)),
        ((PEER,), 7.0, Wait(WaitKind.PEER, "10.0.0.1:29500")),
        ((OWN, PEER), math.inf, Wait(WaitKind.PEER, "10.0.0.1:29500")),
        ((PEER, OUTSIDE), math.inf, Wait(WaitKind.OUTSIDE, "s3:443")),
        ((OUTSIDE, End(WaitKind.PERSON, "/dev/tty")), None, Wait(WaitKind.PERSON, "/dev/tty")),
        (
            (LISTENS, OWN, End(WaitKind.OUTSIDE, "10.9.9.9:1", accepted=True)),
            None,
            Wait(WaitKind.REQUEST, "0.0.0.0:80"),
        ),
        ((LISTENS, OUTSIDE), None, Wait(WaitKind.OUTSIDE, "s3:443")),
        ((MEETS, OWN), None, Wait(WaitKind.MEETING, "0.0.0.0:29500")),
        ((MEETS, End(WaitKind.PEER, "h:1", accepted=True)), None, Wait(WaitKind.MEETING, "0.0.0.0:29500")),
        ((MEETS, ACCEPTED), None, Wait(WaitKind.REQUEST, "0.0.0.0:29500")),
        ((MEETS, LISTENS), None, Wait(WaitKind.REQUEST, "0.0.0.0:80")),
        ((OWN, OWN), math.inf, Wait(WaitKind.LOCK)),
        ((OWN,), 7.0, Wait(WaitKind.SLEEP, until_s=7.0)),
        (tuple(End(WaitKind.PEER, f"h{n}") for n in range(5)), None, Wait(WaitKind.PEER, "h0, h1, h2 and 2 more")),
    ],
)
def test_of_several_ends_the_one_that_may_last_longest_decides(
    ends: tuple[End, ...], until_s: float | None, wait: Wait
) -> None:
    assert waits.of_ends(ends, until_s) == wait


def test_an_address_of_the_gang() -> None:
    gang = Gang(frozenset({"10.0.0.1"}), frozenset({29500, 80}))
    assert gang.has(("10.0.0.1", 29500))
    assert gang.has(("10.0.0.1", 41234))
    assert gang.has(("10.0.0.1", 80))
    assert not gang.has(("10.0.0.1", 443))
    assert not gang.has(("10.0.0.1", 5000))
    assert not gang.has(("10.0.0.2", 29500))


def test_a_gang_of_one_worker_has_no_peer_in_another_process_of_its_host() -> None:
    gang = gang_at(("127.0.0.1:29500", "127.0.0.1:7001"))
    assert gang.has(("127.0.0.1", 29500)) and gang.has(("127.0.0.1", 7001))
    assert not gang.has(("127.0.0.1", 41234))
    assert gang_at(("127.0.0.1:29500", "127.0.0.1:7001", "127.0.0.1:7002")).has(("127.0.0.1", 41234))


@pytest.mark.parametrize(
    ("wchan", "kind"),
    [
        ("hrtimer_nanosleep", WaitKind.SLEEP),
        ("do_wait", WaitKind.CHILD),
        ("n_tty_read", WaitKind.PERSON),
        ("locks_lock_inode_wait", WaitKind.FILE),
        ("futex_wait_queue", WaitKind.UNKNOWN),
        ("", WaitKind.UNKNOWN),
    ],
)
def test_where_the_call_may_not_be_read_the_kernel_function_must_do(wchan: str, kind: WaitKind) -> None:
    assert waits.by_wchan(wchan).kind is kind
