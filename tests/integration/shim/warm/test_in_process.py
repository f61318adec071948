"""Ranks that go on in their own process when their gang is restarted, and what becomes of those that can't."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shim.conftest import FAILPOINTS
from tests.integration.shim.warm.in_process_gang import PROGRAM, RANKS, WARM, Gang, eventually
from tests.integration.shim.warm.warm_jobs import Shim, below, children, gone

from holdfast_agent.shell.shims.shim_files import Started, read_journal


def test_the_ranks_that_did_not_fail_go_on(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    first = gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    ends = gang.of("exited", 1)
    assert ends[2]["status"] == 3 << 8
    for rank in (0, 1, 3):
        assert (ends[rank]["status"], ends[rank]["reason"]) == (None, "STOPPED")
        assert ends[rank]["message"].endswith("it left its work, and its process waits for the next generation")
    second = gang.launch(2)
    assert gang.in_process(2) == {0, 1, 3}
    for rank in (0, 1, 3):
        assert second[rank] == [f"2.{rank}", first[rank][1], f"1.{rank}", f"2.{rank}"]
    assert second[2][2:] == ["2.2"]
    gang.until(lambda: bool(gang.said(2)))
    assert gang.said(2)[-1].startswith("3 of 4 ranks went on in process")
    gang.stop(2, another=False)
    assert children(gang.shim.process.pid) == []


def crash_and_launch(gang: Gang, generation: int, rank: int = 2) -> dict[int, list[str]]:
    gang.crash(generation, rank)
    gang.stop(generation)
    words = gang.launch(generation + 1)
    gang.until(lambda: bool(gang.said(generation + 1)))
    return words


STUCK_IN_PYTHON = {
    "a queue": "import queue; READY; queue.Queue().get()",
    "a lock": "import threading; lock = threading.Lock(); lock.acquire(); READY; lock.acquire()",
    "a sleep": "READY; time.sleep(600)",
    "a socket": "import socket; a, b = socket.socketpair(); READY; a.recv(1)",
    "a loop": "READY\nwhile True: pass",
    "errors that it catches": "READY\nwhile True:\n    try:\n        time.sleep(600)\n    except Exception: pass",
    "every error that it catches, once": "try:\n    READY; time.sleep(600)\n"
    "except BaseException: pass\ntime.sleep(600)",
    "a child of multiprocessing": "import multiprocessing as mp\n"
    "child = mp.get_context('fork').Process(target=time.sleep, args=(600,)); child.start(); READY; child.join()",
    "a data loader's thread": "import threading\n"
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); READY; time.sleep(600)",
}


def get_stuck(gang: Gang, rank: int, code: str) -> None:
    """Has a rank of the first generation run the code, and returns once it is about to be stuck."""
    ready = gang.shim.out / "ready"
    gang.fate(1, rank, code.replace("READY", f"open({str(ready)!r}, 'w').close()"))
    assert eventually(ready.exists)
    time.sleep(0.1)


@pytest.mark.parametrize("place", STUCK_IN_PYTHON)
def test_a_rank_that_is_stuck_where_python_can_leave_goes_on(hasty: Callable[..., Shim], place: str) -> None:
    gang = Gang(hasty(), within_s=20.0)
    gang.launch(1)
    get_stuck(gang, 1, STUCK_IN_PYTHON[place])
    gang.stop(1, grace_s=60.0)
    assert {end["status"] for end in gang.of("exited", 1).values()} == {None}
    gang.launch(2)
    assert gang.in_process(2) == {0, 1, 2, 3}


CANNOT_LEAVE = {
    "code that holds on to the interpreter": "import ctypes; READY; ctypes.PyDLL(None).pause()",
    "a thread that goes on": "import threading\n"
    "threading.Thread(target=time.sleep, args=(600,)).start(); READY; time.sleep(600)",
    "a process": "import subprocess; subprocess.Popen(['sleep', '600']); READY; time.sleep(600)",
    "every error that it catches": "READY\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass",
    "a handler of its own": "import signal\n"
    "signal.signal(signal.SIGRTMAX - 2, signal.SIG_IGN); READY; time.sleep(600)",
    "an end of its own": "try:\n    READY; time.sleep(600)\nfinally:\n    os._exit(7)",
}


@pytest.mark.parametrize("place", CANNOT_LEAVE)
def test_a_rank_that_cannot_leave_ends_and_is_started_again(hasty: Callable[..., Shim], place: str) -> None:
    gang = Gang(hasty(), within_s=2.0)
    gang.launch(1)
    get_stuck(gang, 1, CANNOT_LEAVE[place])
    pids = {rank: each["pid"] for rank, each in gang.of("started", 1).items()}
    left = below(pids[1])
    gang.stop(1, grace_s=8.0)
    ends = gang.of("exited", 1)
    assert [ends[rank]["status"] for rank in (0, 2, 3)] == [None] * 3
    assert ends[1]["status"] is not None
    assert gone([pids[1], *left], 0.0)
    assert waiting(gang.shim) == {pids[rank] for rank in (0, 2, 3)}
    gang.launch(2)
    assert gang.in_process(2) == {0, 2, 3}


def test_a_rank_that_hung_starts_in_a_new_process_though_it_could_leave(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.launch(1)
    get_stuck(gang, 1, STUCK_IN_PYTHON["a sleep"])
    gang.stop(1, reason="HANG_KILLED", hung=[1])
    ends = gang.of("exited", 1)
    assert [ends[rank]["status"] for rank in range(RANKS)] == [None, signal.SIGTERM, None, None]
    gang.launch(2)
    assert gang.in_process(2) == {0, 2, 3}
    gang.until(lambda: any(" went on " in each for each in gang.said(2)))
    assert gang.said(2)[-1].endswith("rank 1 hung")


def waiting(shim: Shim) -> set[int]:
    """The shim's children but the keeper of what is parked."""
    found = children(shim.process.pid)
    return {pid for pid in found if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def test_an_error_that_a_lost_peer_explains_waits_for_the_word(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.launch(1)
    gang.fate(1, 0, "raise ConnectionResetError('by peer')")
    gang.fate(
        1, 1, "try:\n    raise BrokenPipeError\nexcept OSError as error:\n    raise ValueError('lost') from error"
    )
    gang.fate(1, 3, "raise RuntimeError('[gloo/transport/tcp/pair.cc:553] Connection closed by peer')")
    gang.crash(1, 2)
    gang.stop(1)
    gang.launch(2)
    assert gang.in_process(2) == {0, 1, 3}
    assert "ConnectionResetError: by peer; waiting" in Path(f"{gang.shim.out}/g1.r0.err").read_text()


def test_any_other_end_is_told_as_it_is(hasty: Callable[..., Shim]) -> None:
    quick = PROGRAM.replace(
        "train([])", "from holdfast.training import restartable\nrestartable.WORD_S = 0.2\ntrain([])"
    )
    gang = Gang(hasty(), quick)
    gang.launch(1)
    gang.fate(1, 0, "raise KeyError('x')")
    gang.fate(1, 1, "sys.exit(5)")
    gang.fate(1, 2, "pass")
    gang.fate(1, 3, "raise ConnectionResetError('by peer')")
    gang.until(lambda: len(gang.of("exited", 1)) == RANKS)
    ends = gang.of("exited", 1)
    assert [ends[rank]["status"] for rank in range(RANKS)] == [1 << 8, 5 << 8, 0, 1 << 8]
    assert ends[0]["stderr_tail"][-1] == "KeyError: 'x'"
    assert ends[3]["stderr_tail"][-1] == "ConnectionResetError: by peer"
    gang.stop(1)


def test_a_rank_takes_what_is_new_in_its_environment_and_keeps_what_it_has_set(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.job.env = {"MASTER_PORT": "2901", "HOLDFAST_OLD": "1", "OMP_NUM_THREADS": "4", "PYTHONPATH": ""}
    gang.launch(1)
    gang.fate(1, 0, "os.environ['OMP_NUM_THREADS'] = '1'; os.environ['OWN'] = 'kept'; time.sleep(600)")
    gang.crash(1, 2)
    gang.stop(1)
    gang.job.env = {"MASTER_PORT": "2902", "HOLDFAST_NEW": "2", "OMP_NUM_THREADS": "4", "PYTHONPATH": ""}
    gang.launch(2)
    names = ("MASTER_PORT", "HOLDFAST_OLD", "HOLDFAST_NEW", "OMP_NUM_THREADS", "OWN")
    shown = f"print([os.environ.get(n) for n in {names}])"
    gang.fate(2, 0, shown)
    gang.until(lambda: 0 in gang.of("exited", 2))
    assert "['2902', None, '2', '1', 'kept']" in gang.shim.await_output(0, 2)
    assert gang.in_process(2) == {0, 1, 3}
    gang.stop(2, another=False)


@pytest.mark.require("root", "mount")
def test_the_next_generation_shares_their_shm_and_a_new_start_has_a_fresh_one(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.launch(1, private_shm=True)
    gang.crash(1, 2)
    gang.stop(1)
    gang.launch(2, private_shm=True)
    assert gang.in_process(2) == {0, 1, 3}
    (shm(gang, 2, 0) / "left").write_text("by rank 0")
    assert [(shm(gang, 2, rank) / "left").exists() for rank in range(RANKS)] == [True] * RANKS
    assert not Path("/dev/shm/left").exists()
    gang.stop(2, another=False)
    gang.launch(3, private_shm=True)
    assert not (shm(gang, 3, 0) / "left").exists()


def shm(gang: Gang, generation: int, rank: int) -> Path:
    """The /dev/shm that a rank sees."""
    return Path(f"/proc/{gang.of('started', generation)[rank]['pid']}/root/dev/shm")


def test_the_last_call_of_a_generation_is_the_one_that_is_left(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty(), PROGRAM.replace("train([])", "holdfast.restartable(len)([])\ntrain([])"))
    gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    gang.launch(2)
    assert gang.in_process(2) == {0, 1, 3}


def test_what_differs_too_much_starts_in_new_processes(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    gang.job.env = {"CUDA_VISIBLE_DEVICES": "1"}
    gang.launch(2)
    assert gang.in_process(2) == set()
    assert "started in new processes: CUDA_VISIBLE_DEVICES has changed" in gang.said(2)


def test_one_that_ends_while_it_waits_is_started_again(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    first = gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    os.kill(int(first[0][1]), signal.SIGKILL)
    assert gone([int(first[0][1])])
    gang.launch(2)
    gang.until(lambda: any("went on" in each for each in gang.said(2)))
    assert gang.in_process(2) == {1, 3}
    assert gang.said(2)[-1].endswith("the process of rank 0 ended while it waited")


def test_one_that_does_not_answer_is_started_again(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    first = gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    os.kill(int(first[0][1]), signal.SIGSTOP)
    gang.launch(2)
    assert gang.in_process(2) == {1, 3}
    assert gone([int(first[0][1])])


def test_those_that_wait_end_with_a_stop_that_nothing_follows(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    first = gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    assert len(waiting(gang.shim)) == 3
    gang.heard.clear()
    gang.stop(1, another=False)
    assert gone([int(words[1]) for words in first.values()], 0.0)


def test_a_stop_that_nothing_follows_ends_those_that_are_leaving(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.launch(1)
    get_stuck(gang, 0, CANNOT_LEAVE["every error that it catches"])
    gang.shim.send(op="stop", generation=1, grace_s=60.0, reason="STOPPED", another_follows=True)
    gang.until(lambda: len(gang.of("exited", 1)) == 3)
    gang.stop(1, another=False)
    assert gang.of("exited", 1)[0]["status"] == signal.SIGTERM
    assert children(gang.shim.process.pid) == []


def test_those_that_wait_end_with_their_shim(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    first = gang.launch(1)
    gang.crash(1, 2)
    gang.stop(1)
    gang.shim.process.kill()
    gang.shim.process.wait()
    assert gone([int(words[1]) for words in first.values()])
    assert [type(record).__name__ for record in read_journal(gang.shim.directory / "g1.journal")][-1] == "Empty"


def test_ranks_run_on_without_their_shim(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    first = gang.launch(1)
    gang.shim.process.kill()
    gang.shim.process.wait()
    gang.fate(1, 0, "print('still', flush=True)")
    assert gone([int(first[0][1])])
    assert gang.shim.output(0, 1).endswith("still\n")
    gang.end_without_shim()


def test_only_a_rank_is_heard(hasty: Callable[..., Shim]) -> None:
    gang = Gang(hasty())
    gang.launch(1)
    pid = gang.of("started", 1)[0]["pid"]
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (name,) = [each.partition(b"=")[2] for each in environ if each.startswith(b"HOLDFAST_IN_PROCESS=")]
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(b"\0" + name[1:])
        with contextlib.suppress(ConnectionError):
            other.sendall(b"within 60\nunwound\n")
            assert other.recv(1) == b""
    gang.stop(1)
    assert len(gang.of("exited", 1)) == RANKS


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_a_job_that_does_not_ask_for_it_has_none_of_it(hasty: Callable[..., Shim], mode: str) -> None:
    names = "import sys; print([n for n in sys.modules if 'surv' in n or 'warm' in n], file=open('loaded', 'w'))"
    more = f"import atexit\natexit.register(lambda: exec({names!r}))"
    gang = Gang(hasty(more=more))
    first = gang.launch(1, None if mode == "off" else {"preload": [], "never": []})
    gang.crash(1, 2)
    environ = Path(f"/proc/{first[0][1]}/environ").read_bytes()
    assert b"HOLDFAST_IN_PROCESS" not in environ
    gang.stop(1)
    assert [gang.of("exited", 1)[rank]["status"] for rank in (0, 1, 3)] == [signal.SIGTERM] * 3


ROUNDS, SEED = int(os.environ.get("IN_PROCESS_ROUNDS", "10")), int(os.environ.get("IN_PROCESS_SEED", "0"))
FATES = {
    "sys.exit(1)": 1 << 8,
    "sys.exit(3)": 3 << 8,
    "raise KeyError": 1 << 8,
    "os.kill(os.getpid(), 9)": 9,
    "os.kill(os.getpid(), 11)": 11,
    "os.abort()": 6,
}
CORE = 0x80


@pytest.mark.timeout(3600)
def test_rounds_of_crashes(hasty: Callable[..., Shim]) -> None:
    """``IN_PROCESS_ROUNDS=50`` has more of them."""
    gang, chance = Gang(hasty()), random.Random(SEED)
    gang.launch(1)
    for generation in range(1, ROUNDS + 1):
        victim, fate = chance.randrange(RANKS), chance.choice(list(FATES))
        gang.crash(generation, victim, fate)
        gang.stop(generation)
        ends = gang.of("exited", generation)
        assert ends.pop(victim)["status"] & ~CORE == FATES[fate]
        assert [(end["status"], end["reason"]) for end in ends.values()] == [(None, "STOPPED")] * (RANKS - 1)
        pids = {gang.of("started", generation)[rank]["pid"] for rank in ends}
        assert waiting(gang.shim) == pids
        if disturbed := chance.random() < 0.2:
            os.kill(pids.pop(), signal.SIGKILL)
        words = gang.launch(generation + 1)
        assert len(gang.in_process(generation + 1)) == RANKS - 1 - disturbed
        assert {int(words[rank][1]) for rank in gang.in_process(generation + 1)} == pids
    gang.stop(ROUNDS + 1, another=False)
    assert children(gang.shim.process.pid) == []


POINTS = {
    "shim.unwind.after": 1,
    "shim.survivor.after": 1,
    "shim.fork.before": 1,
    "shim.release.before": 1,
    "shim.fork.after": 1,
    "shim.started.before": 1,
    "shim.release.after": 2,
    "shim.started.after": 2,
}
"""The shim's death there, and the last generation of which a survivor may run then."""


@pytest.mark.parametrize("point", POINTS)
def test_a_death_on_the_way_runs_nothing_that_the_journal_does_not_name(
    hasty: Callable[..., Shim], tmp_path: Path, point: str
) -> None:
    armed = tmp_path / "failpoints"
    armed.mkdir()
    gang = Gang(hasty(FAILPOINTS.format(folder=str(armed))))
    first = gang.launch(1)
    pids = {rank: int(words[1]) for rank, words in first.items()}
    gang.crash(1, 2)
    if point in ("shim.unwind.after", "shim.survivor.after"):
        (armed / point).write_text("exit")
        gang.shim.send(op="stop", generation=1, grace_s=10.0, reason="STOPPED", another_follows=True)
    else:
        gang.stop(1)
        (armed / point).write_text("exit")
        gang.job.launch(2, warm=WARM)
    assert gang.shim.wait() == -signal.SIGKILL
    try:
        survivors = [pids[rank] for rank in (0, 1, 3)]
        named = [record.pid for record in gang.shim.journal(2) if isinstance(record, Started)]
        if POINTS[point] == 2:
            assert set(survivors) <= set(named)
            for rank in (0, 1, 3):
                assert gang.shim.await_output(rank, 2).startswith(f"2.{rank} {pids[rank]}")
        else:
            assert gone(survivors)
            written = [Path(f"{gang.shim.out}/g2.r{rank}.out") for rank in (0, 1, 3)]
            assert [path.read_text() for path in written if path.exists()] in ([], [""] * 3)
    finally:
        gang.end_without_shim()
