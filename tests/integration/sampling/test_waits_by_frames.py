"""What a rank waits for where only its Python frames tell: real processes, read with py-spy as the agent does."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.integration.sampling.conftest import Stage, silent_server
from tests.support.rank_gang import free_port

from holdfast.hang.pipeline import frame_waits
from holdfast.hang.pipeline.frame_waits import StackWait
from holdfast.hang.pipeline.waits import FUTEX, Wait, WaitKind
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.dumps import Dumper
from holdfast_agent.shell.evidence.tools import Tools
from holdfast_agent.shim.processes import Process

pytestmark = pytest.mark.require("ptrace")


async def frames_of(pid: int) -> StackWait:
    at_s = time.monotonic()
    dump = await Dumper(Tools(), Blocking()).python(Process(pid))
    assert dump.threads, dump.problem
    return frame_waits.read(dump.threads, at_s)


async def waits(stage: Stage, code: str, folder: Path, rank: int = 0) -> Wait:
    """What a program waits for by its call and its frames together, once both have settled."""
    path = folder / "train.py"
    *first, last = code.split("\n")
    ready = f"os.write(1, b'ready\\n'); {last}"
    path.write_text("\n".join(["import os, signal, subprocess, sys, threading, time", *first, ready]))
    pid = stage.start(f"import runpy; runpy.run_path({str(path)!r})", rank=rank)
    await stage.until(lambda: stage.output(rank).read_bytes().count(b"ready\n") == 1, "the wait")
    before: list[Wait | None] = [None, None]

    async def settled() -> Wait | None:
        for _ in range(200):
            found = next(one.wait for one in (await stage.tick()).ranks if one.rank == rank)
            found = found and replace(found, until_s=None)
            if found is not None and found.kind is not WaitKind.RUNNING and [found] * 2 == before:
                return found
            before[:] = [before[1], found]
            await stage.pause()
        return None

    await settled()
    for _ in range(10):
        # A new wait is read again, as the agent does: a loop of sleeps that wakes late on busy cores begins another.
        stage.stacks[rank] = stack = await frames_of(pid)
        found = await settled()
        assert found is not None, before
        if found.since_s is None or found.since_s <= stack.at_s:
            return found
    raise AssertionError(f"it never stayed in one wait: {before}")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("lock = threading.Lock(); lock.acquire()\nlock.acquire()", "train.py:3 `<module>`"),
        ("threading.Event().wait()", "train.py:2 `<module>`"),
        ("import queue\nqueue.Queue().get()", "train.py:3 `queue.get`"),
        (
            "from concurrent.futures import ThreadPoolExecutor as T\nT(1).submit(threading.Event().wait).result()",
            "train.py:3 `_base.result`",
        ),
    ],
    ids=["lock", "event", "queue", "future"],
)
async def test_a_lock_of_its_own(stage: Stage, tmp_path: Path, code: str, line: str) -> None:
    found = await waits(stage, code, tmp_path)
    assert (found.kind, found.place) == (WaitKind.LOCK, line)


async def test_a_thread_that_keeps_it_from_ending(stage: Stage) -> None:
    pid = stage.start("threading.Thread(target=threading.Event().wait).start()")
    await stage.up()
    with anyio.fail_after(60):
        while (found := await frames_of(pid)).what != "a thread that keeps it from ending":  # noqa: ASYNC110
            await anyio.sleep(0.1)  # until its own code is over
    assert found.kind is WaitKind.LOCK


async def test_a_thread_that_asks_a_service(stage: Stage, tmp_path: Path) -> None:
    with silent_server() as port:
        ask = f"import urllib.request as u\ndef ask():\n    u.urlopen('http://127.0.0.1:{port}/')\n"
        code = ask + "t = threading.Thread(target=ask); t.start(); t.join()"
        found = await waits(stage, code, tmp_path)
    assert (found.kind, found.place) == (WaitKind.OUTSIDE, "train.py:5 `<module>`")
    assert found.what.endswith("in a thread")


ASK = (
    "import socket, queue, asyncio, multiprocessing as mp\n"
    "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
    "def ask(_=0): socket.create_connection(('127.0.0.1', {port}), timeout=300).recv(1)\n"
    "def nap(_=0): time.sleep(300)\n"
    "def sleeps(): subprocess.run(['sleep', '300'])\n"
    "def put(work): q.put(work())\n"
    "def feed(filled): filled.qsize() or nap()\n"
    "def beat():\n"
    "    while True: time.sleep(20)\n"
    "async def child(): await (await asyncio.create_subprocess_exec('sleep', '300')).wait()\n"
    "def start(work): threading.Thread(target=put, args=(work,), daemon=True).start()\n"
    "q, context, lock = queue.Queue(), mp.get_context('fork'), threading.Lock()\n"
)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("start(ask)\nq.get()", "127.0.0.1:{port}, in a thread"),
        ("threading.Thread(target=ask).start()\nlock.acquire(); lock.acquire()", "127.0.0.1:{port}, in a thread"),
        ("pool = context.Pool(2)\npool.map(ask, range(2))", "127.0.0.1:{port}"),
        ("pool = ProcessPoolExecutor(1, context)\npool.submit(ask).result()", "127.0.0.1:{port}, in a thread"),
    ],
    ids=["thread", "lock", "pool", "executor"],
)
async def test_what_a_thread_or_a_pool_asks_is_waited_for(
    stage: Stage, tmp_path: Path, code: str, what: str
) -> None:
    with silent_server() as port:
        found = await waits(stage, ASK.format(port=port) + code, tmp_path)
    assert (found.kind, found.what.endswith(what.format(port=port))) == (WaitKind.OUTSIDE, True), found


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("start(nap)\nq.get()", "a thread, asleep"),
        ("threading.Thread(target=nap).start()\nlock.acquire(); lock.acquire()", "a thread, asleep"),
        ("pool = ThreadPoolExecutor(1)\npool.submit(time.sleep, 300).result()", "a thread, asleep"),
        ("pool = context.Pool(2)\npool.map(nap, range(2))", "2 processes below it, asleep"),
        ("start(sleeps)\nq.get()", "`sleep`, asleep"),
        ("asyncio.run(asyncio.to_thread(nap))", "a thread, asleep"),
        ("asyncio.run(child())", "`sleep`, asleep"),
        ("threading.Event().wait(300)", "with a time limit"),
        ("q.get(timeout=300)", "with a time limit"),
        ("context.Queue().get(timeout=300)", "a child process, with a time limit"),
        (
            "r, w = mp.Pipe(False); context.Process(target=threading.Event().wait).start(); w.close()\nr.poll(300)",
            "with a time limit",
        ),
        ("s = context.Semaphore(0); context.Process(target=nap).start()\ns.acquire()", "`python`, asleep"),
        ("threading.Timer(300, q.put, (1,)).start()\nq.get()", "a thread, asleep"),
        (
            "m = context.Manager(); f = m.Queue(); context.Process(target=feed, args=(f,)).start()\nf.get()",
            "`python`",
        ),
    ],
    ids=[
        "queue",
        "lock",
        "future",
        "pool",
        "command",
        "asyncio",
        "asyncio child",
        "event",
        "limit",
        "pool queue",
        "pipe",
        "semaphore",
        "timer",
        "manager",
    ],
)
async def test_what_sleeps_in_a_thread_or_a_pool_wakes_again(
    stage: Stage, tmp_path: Path, code: str, what: str
) -> None:
    found = await waits(stage, ASK.format(port=1) + code, tmp_path)
    assert (found.kind, found.what.endswith(what)) == (WaitKind.SLEEP, True), found


@pytest.mark.parametrize("more", ["", "threading.Thread(target=beat, daemon=True).start()\n"], ids=["none", "naps"])
async def test_a_queue_that_nothing_fills_is_a_lock_beside_a_heartbeat(
    stage: Stage, tmp_path: Path, more: str
) -> None:
    found = await waits(stage, ASK.format(port=1) + more + "q.get()", tmp_path)
    assert found.kind is WaitKind.LOCK, found


async def test_c_code_whose_threads_ask_a_service(stage: Stage, tmp_path: Path) -> None:
    with silent_server() as port:
        # As C code does: its thread has no Python frames.
        code = (
            "import ctypes, socket\n"
            f"s = socket.create_connection(('127.0.0.1', {port})); libc = ctypes.CDLL(None)\n"
            "tid, lock = ctypes.c_ulong(), threading.Lock(); lock.acquire()\n"
            "start = ctypes.cast(libc.getchar, ctypes.c_void_p)\n"
            "os.dup2(s.fileno(), 0); libc.pthread_create(ctypes.byref(tid), None, start, None)\n"
            "lock.acquire()"
        )
        found = await waits(stage, code, tmp_path)
    assert (found.kind, found.what) == (WaitKind.OUTSIDE, f"127.0.0.1:{port}, in a thread")


async def test_a_child_that_is_polled_for(stage: Stage, tmp_path: Path) -> None:
    found = await waits(stage, "subprocess.Popen(['sleep', '600']).wait(timeout=600)", tmp_path)
    assert (found.kind, found.place) == (WaitKind.CHILD, "train.py:2 `subprocess.wait`")


async def test_a_debugger_without_a_terminal(stage: Stage, tmp_path: Path) -> None:
    found = await waits(stage, "r, w = os.pipe(); os.dup2(r, 0)\nimport pdb\npdb.set_trace(); x = 1", tmp_path)
    assert (found.kind, found.place) == (WaitKind.PERSON, "train.py:4 `<module>`")


@pytest.mark.require("torch")
async def test_a_rendezvous_that_a_peer_never_reaches(stage: Stage, tmp_path: Path) -> None:
    code = (
        "import torch.distributed as d\n"
        f"d.init_process_group('gloo', init_method='tcp://127.0.0.1:{free_port()}', rank=0, world_size=2)"
    )
    found = await waits(stage, code, tmp_path)
    assert (found.kind, found.place) == (WaitKind.PEER, "init_process_group")


@pytest.mark.require("torch")
async def test_a_store_of_its_own_is_the_ranks_meeting_point(stage: Stage, tmp_path: Path) -> None:
    port = free_port()
    stage.peers = (f"127.0.0.1:{port}",)
    code = (
        "import torch.distributed as d, datetime\n"
        f"store = d.TCPStore('127.0.0.1', {port}, 2, True, wait_for_workers=False)\n"
        "store.wait(['done'], datetime.timedelta(hours=3))"
    )
    found = await waits(stage, code, tmp_path)
    assert (found.kind, found.what) == (WaitKind.PEER, f"the store at 127.0.0.1:{port}")


@pytest.mark.require("torch")
async def test_a_lock_file_that_is_opened_for_each_try_alone(stage: Stage, tmp_path: Path) -> None:
    """As the library filelock does, which torch and its friends lock their caches with."""
    path = str(tmp_path / "cache.lock")
    stage.start(f"import fcntl; f = open({path!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); time.sleep(600)", rank=0)
    await stage.until(lambda: Path(path).exists(), "the lock")
    found = await waits(stage, f"import filelock\nfilelock.FileLock({path!r}).acquire()", tmp_path, rank=1)
    assert (found.kind, found.polled, found.place) == (WaitKind.PEER, True, "train.py:3 `_api.acquire`")
    assert found.what.startswith(f"{path}, locked by rank 0, pid ")


@pytest.mark.require("torch")
async def test_a_collective_that_a_peer_never_enters(stage: Stage, tmp_path: Path) -> None:
    os.environ["GANG_PORT"] = str(free_port())
    init = (
        "import torch, torch.distributed as d\n"
        "d.init_process_group('gloo', init_method='tcp://127.0.0.1:' + os.environ['GANG_PORT'],\n"
        "    rank=int(os.environ['RANK']), world_size=2)\n"
    )
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("import os, time\n" + init + "time.sleep(600)")
    stage.start(f"import runpy; runpy.run_path({str(other / 'train.py')!r})", rank=1)
    found = await waits(stage, init + "d.all_reduce(torch.ones(1))", tmp_path)
    del os.environ["GANG_PORT"]
    assert (found.kind, found.place) == (WaitKind.PEER, "all_reduce")
    second = (await stage.rank(1)).wait
    assert second is not None
    assert second.kind is WaitKind.SLEEP


@pytest.mark.require("torch")
async def test_a_data_loader_whose_worker_hangs(stage: Stage, tmp_path: Path) -> None:
    code = (
        "import torch.utils.data as t\n"
        "class Slow(t.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): time.sleep(600)\n"
        "next(iter(t.DataLoader(Slow(), num_workers=1)))"
    )
    found = await waits(stage, code, tmp_path)
    assert (found.kind, found.place) == (WaitKind.CHILD, "train.py:6 `dataloader.__next__`")


async def test_frames_of_an_earlier_wait_say_nothing(stage: Stage, tmp_path: Path) -> None:
    stage.stacks[0] = StackWait(time.monotonic() - 60, WaitKind.PERSON, place="old.py:1 `x`")
    pid = stage.start("threading.Event().wait()")
    await stage.up()
    sample = await stage.sampled(lambda s: s.ranks[0].wait is not None and s.ranks[0].wait.what == FUTEX, "a wait")
    assert sample.ranks[0].wait is not None
    assert sample.ranks[0].wait.place == ""
    assert sample.ranks[0].pid == pid
