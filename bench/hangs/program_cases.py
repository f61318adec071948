"""Programs that hang, or only look like it: ``python program_cases.py NAME`` is one rank of the program NAME.

Two ranks meet by TCP at ``MASTER_ADDR:MASTER_PORT``, as a framework's would, and print a line each few seconds. After
``TRAIN_S`` the program does what its name says. ``CASES`` says what is expected of the detector. Only the standard
library is used but where a case says torch.

Longer than 400 lines because each program stands beside its kind, and is read alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TRAIN_S = float(os.environ.get("TRAIN_S", "60"))
PAUSE_S = float(os.environ.get("PAUSE_S", "180"))
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
GENERATION = int(os.environ.get("HOLDFAST_GENERATION", "1"))


@dataclass(frozen=True, slots=True)
class Case:
    """What is expected of a program: ``acts`` (restarted), ``tells`` (reported, acted on later) or ``healthy``."""

    expected: str
    run: Callable[[], None]
    guilty: int | None = None
    timeout: str = ""
    notice: bool = True
    """A healthy pause may be reported."""
    ranks: int = 2
    env: tuple[tuple[str, str], ...] = ()
    script: bool = False
    """Run by ``bash run.sh``."""


class Gang:
    """The ranks' meeting: rank 0 listens, the others connect; an all-reduce is a line to it and one back."""

    def __init__(self) -> None:
        self.peers: list[socket.socket] = []
        if SIZE == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with socket.create_server(address, reuse_port=True) as server:
                self.peers = [server.accept()[0] for _ in range(SIZE - 1)]
            return
        for _ in range(600):
            with contextlib.suppress(OSError):
                self.peers = [socket.create_connection(address)]
                return
            time.sleep(0.1)
        raise SystemExit("no rank 0")

    def all_reduce(self) -> None:
        """Return once all ranks are here."""
        for peer in self.peers if RANK == 0 else ():
            self._take(peer)
        for peer in self.peers:
            peer.sendall(b"x")
        for peer in self.peers if RANK != 0 else ():
            self._take(peer)

    def _take(self, peer: socket.socket) -> None:
        if not peer.recv(1):
            raise SystemExit(17)


def train(gang: Gang | None, seconds: float, first: int = 0) -> int:
    """Steps of 0.3 s with a line each 5 s; the number of the step after the last."""
    step, printed = first, 0.0
    while True:
        sum(i * i for i in range(20_000))
        time.sleep(0.3)
        if gang is not None:
            gang.all_reduce()
        step += 1
        if (RANK == 0 or gang is None) and time.monotonic() - printed > 5:
            printed = time.monotonic()
            print(f"step {step} loss {2 / (1 + step):.4f}", flush=True)
        if step - first >= seconds / 0.35:
            return step


def note_fault() -> None:
    """Keep the time at which the program begins to be odd."""
    with open("fault", "a") as file:
        file.write(f"{time.strftime('%H:%M:%S', time.gmtime())} (generation {GENERATION}) ")


def with_gang(odd: Callable[[Gang], None], *, all_ranks: bool = False) -> Callable[[], None]:
    """A gang that trains, of which rank 1 (or all ranks) then does something odd, and trains on."""

    def run() -> None:
        gang = Gang()
        step = train(gang, TRAIN_S)
        if all_ranks or RANK == SIZE - 1:
            note_fault()
            odd(gang)
        for _ in range(20):
            step = train(gang, TRAIN_S, step)

    return run


def alone(odd: Callable[[], None]) -> Callable[[], None]:
    """Ranks that train without each other; rank 1 then does something odd."""

    def run() -> None:
        step = train(None, TRAIN_S)
        if RANK == SIZE - 1:
            note_fault()
            odd()
        for _ in range(20):
            step = train(None, TRAIN_S, step)

    return run


# -- Hung ----------------------------------------------------------------------------------------------------------


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep_for_ever() -> None:
    time.sleep(3600)


def deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spin() -> None:
    while True:
        pass


def retry() -> None:
    for attempt in range(10_000):
        print(f"connection refused, retry #{attempt}", flush=True)
        time.sleep(2)


def sqlite_lock() -> None:
    """Rank 1 asks again and again for a database that rank 0 has locked, which waits for rank 1."""
    gang = Gang()
    step = train(gang, TRAIN_S)
    database = sqlite3.connect("../lock.db", isolation_level=None, timeout=3600)
    if RANK == 0:
        database.execute("create table if not exists t (x)")
        database.execute("begin exclusive")
    else:
        time.sleep(2)
        note_fault()
        database.execute("insert into t values (1)")
    train(gang, TRAIN_S, step)


def cycle_with_gauges(gang: Gang) -> None:
    def gauges() -> None:
        used = 40
        while True:
            used += (7 * int(time.time())) % 5 - 2
            print(f"memory in use {used} MiB, temperature {60 + used % 7}", flush=True)
            time.sleep(1)

    threading.Thread(target=gauges, daemon=True).start()
    for peer in gang.peers:
        peer.recv(1)


def flush_while_hung() -> None:
    def flush() -> None:
        with open("events.out.tfevents.1.host", "ab") as file:
            while True:
                file.write(os.urandom(4096))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(2)

    threading.Thread(target=flush, daemon=True).start()
    deadlock()


def stopped_loader() -> None:
    import multiprocessing

    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    child = multiprocessing.Process(target=time.sleep, args=(10_000,), daemon=True)
    child.start()
    os.kill(child.pid or 0, signal.SIGSTOP)
    queue.get()


def exits_before_the_rendezvous() -> None:
    if RANK == SIZE - 1:
        sys.exit(0)
    Gang()


def second_generation_hangs() -> None:
    gang = Gang()
    if GENERATION == 2 and RANK == 1:
        note_fault()
        time.sleep(10_000)
    train(gang, 20 if GENERATION == 1 else TRAIN_S)
    if GENERATION == 1 and RANK == 1:
        sys.exit(3)
    for _ in range(10):
        train(gang, TRAIN_S)


def stuck_at_exit() -> None:
    train(Gang(), TRAIN_S)
    if RANK == SIZE - 1:
        note_fault()
        threading.Thread(target=threading.Event().wait).start()


def heartbeat_stops() -> None:
    import holdfast

    gang = Gang()
    for step in range(int(TRAIN_S / 0.4)):
        holdfast.progress(step=step)
        time.sleep(0.3)
        gang.all_reduce()
    for beat in range(100_000):
        print(f"PULSE {beat} ok items={beat * 3}", flush=True)
        sum(i * i for i in range(3000))
        time.sleep(1)


def early_hang() -> None:
    gang = Gang()
    print("loading", flush=True)
    if RANK == 1:
        note_fault()
        time.sleep(3600)
    gang.all_reduce()


def lock_of_a_thread_that_waits_for_a_peer(gang: Gang) -> None:
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            gang.peers[0].recv(1)

    threading.Thread(target=hold, daemon=True).start()
    time.sleep(1)
    lock.acquire()


def file_lock_of_a_peer() -> None:
    import fcntl

    gang = Gang()
    step = train(gang, TRAIN_S)
    with open("../lock", "w") as file:
        if RANK != 0:
            time.sleep(1)
            note_fault()
        fcntl.flock(file, fcntl.LOCK_EX)
        train(gang, TRAIN_S, step)


def spin_beside_busy_peers() -> None:
    gang = Gang()
    train(gang, TRAIN_S)
    if RANK == SIZE - 1:
        note_fault()
        spin()
    for peer in gang.peers:
        peer.setblocking(False)
        while True:
            with contextlib.suppress(BlockingIOError):
                peer.recv(1)


def early_sleep() -> None:
    """Hangs before the first line of progress, without a timeout."""
    gang = Gang()
    if RANK == 1:
        note_fault()
        threading.Event().wait()
    gang.all_reduce()


def wait_for_a_dead_thread() -> None:
    """A queue that nothing fills any more: its producer ended."""
    import queue

    filled: queue.Queue[int] = queue.Queue()
    threading.Thread(target=filled.put, args=(1,)).start()
    filled.get()
    filled.get()


def pipe_of_a_waiting_child() -> None:
    """Two pipes, each side reading first."""
    code = "import sys; sys.stdin.read(1)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read(1)


# -- Healthy -------------------------------------------------------------------------------------------------------


def remote() -> None:
    with socket.create_connection(("127.0.0.1", int(os.environ["SILENT_PORT"]))) as service:
        service.settimeout(PAUSE_S)
        with contextlib.suppress(TimeoutError):
            service.recv(1)


def remote_without_timeout() -> None:
    with socket.create_connection(("127.0.0.1", int(os.environ["SILENT_PORT"]))) as service:
        threading.Timer(PAUSE_S, lambda: service.shutdown(socket.SHUT_RDWR)).start()
        service.recv(1)


def poll_remote() -> None:
    end = time.monotonic() + PAUSE_S
    while time.monotonic() < end:
        time.sleep(5)


def nap() -> None:
    time.sleep(PAUSE_S)


def small_portions() -> None:
    end = time.monotonic() + PAUSE_S
    with open("snapshot.part", "wb") as file:
        while time.monotonic() < end:
            file.write(os.urandom(512))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.4)


def upload() -> None:
    code = (
        f"import socket\ns = socket.create_connection(('127.0.0.1', {os.environ['SILENT_PORT']}))\n"
        f"s.settimeout({PAUSE_S})\ntry: s.recv(1)\nexcept TimeoutError: pass"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def compile_children() -> None:
    end = time.monotonic() + PAUSE_S
    while time.monotonic() < end:
        burn = "sum(i * i for i in range(500)); time.sleep(0.005)"
        code = f"import time\nend = time.monotonic() + 10\nwhile time.monotonic() < end: {burn}"
        subprocess.run([sys.executable, "-c", code], check=True)


def evaluate() -> None:
    end = time.monotonic() + PAUSE_S
    turn = 0
    while time.monotonic() < end:
        turn += 1
        (sorted([(i * 7919) % 1009 for i in range(20_000)]) if turn % 2 else sum(i * i for i in range(50_000)))
        time.sleep(0.02)


def prompt() -> None:
    import pty

    leader, follower = pty.openpty()
    os.dup2(follower, 0)
    threading.Timer(PAUSE_S, lambda: os.write(leader, b"c\n")).start()
    import pdb

    pdb.Pdb(stdin=os.fdopen(0), nosigint=True).set_trace()
    print("resumed", flush=True)


def remote_evaluations() -> None:
    gang = Gang()
    step = 0
    for _ in range(8):
        step = train(gang, 60, step)
        if RANK == 0:
            with socket.create_connection(("127.0.0.1", int(os.environ["SILENT_PORT"]))) as service:
                service.settimeout(100)
                with contextlib.suppress(TimeoutError):
                    service.recv(1)


def idle_server() -> None:
    """Rank 1 serves requests that never come, beside rank 0 that trains."""
    if RANK == 1:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()
    for _ in range(20):
        train(None, TRAIN_S)


def idle_web_server() -> None:
    """Rank 1's main thread sits in ``serve_forever``."""
    from http.server import HTTPServer, SimpleHTTPRequestHandler

    if RANK == 1:
        HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler).serve_forever()
    for _ in range(20):
        train(None, TRAIN_S)


def idle_server_in_a_thread() -> None:
    """Rank 1 serves in a thread, and its main thread waits for the end."""
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    if RANK == 1:
        server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Event().wait()
    for _ in range(20):
        train(None, TRAIN_S)


def idle_grpc_server() -> None:
    """All ranks serve, and no request comes."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_insecure_port("127.0.0.1:0")
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


def wait_in_asyncio() -> None:
    import asyncio

    async def ask() -> None:
        reader, _ = await asyncio.open_connection("127.0.0.1", int(os.environ["SILENT_PORT"]))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), PAUSE_S)

    asyncio.run(ask())


def actors() -> None:
    """A learner that waits for its children, which play for long after they have been quick for a while."""
    import multiprocessing

    played: multiprocessing.Queue[int] = multiprocessing.Queue()

    def play(long_s: float) -> None:
        for turn in range(10_000):
            time.sleep(2 if turn < TRAIN_S / 2 else long_s)
            played.put(turn)

    for _ in range(2):
        multiprocessing.Process(target=play, args=(PAUSE_S / 2,), daemon=True).start()
    while True:
        print(f"update {played.get()}", flush=True)


def evaluator() -> None:
    """Rank 1 looks for a new checkpoint each minute."""
    while RANK == 1:
        os.listdir(".")
        time.sleep(60)
    for _ in range(20):
        train(None, TRAIN_S)


def slow_imports() -> None:
    """Rank 1 imports for a minute and more, with pauses, while rank 0 waits for it."""
    with open("slow_module.py", "w") as file:
        file.write("import time\nfor _ in range(12):\n    sum(i * i for i in range(200_000))\n    time.sleep(6)\n")
    sys.path.insert(0, os.getcwd())
    if RANK == 1:
        __import__("slow_module")
    gang = Gang()
    for _ in range(20):
        train(gang, TRAIN_S)


def console() -> None:
    """``input()`` at a terminal."""
    import pty

    leader, follower = pty.openpty()
    os.dup2(follower, 0)
    sys.stdin = os.fdopen(0)
    threading.Timer(PAUSE_S, lambda: os.write(leader, b"c\n")).start()
    input("go on? ")


def debugger() -> None:
    """``python -m pdb`` at a terminal, with a breakpoint in the middle of a gang's training."""
    import pty

    with open("debugged.py", "w") as file:
        file.write("import time\ntime.sleep(1)\nprint('debugged')\n")
    leader, follower = pty.openpty()
    child = subprocess.Popen([sys.executable, "-m", "pdb", "debugged.py"], stdin=follower, stdout=follower)
    threading.Timer(PAUSE_S, lambda: os.write(leader, b"c\nq\n")).start()
    child.wait()


def busy_child() -> None:
    code = f"import time\nend = time.monotonic() + {PAUSE_S}\nwhile time.monotonic() < end: time.sleep(0.01)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def sleeping_child() -> None:
    code = f"import time; time.sleep({PAUSE_S})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def rare_lines() -> None:
    for step in range(1000):
        time.sleep(5)
        if step % 12 == 0:
            print(f"step {step}", flush=True)


def gauges_beside_training() -> None:
    def gauges() -> None:
        for n in range(100_000):
            print(f"gpu memory {40 + n % 7}", flush=True)
            time.sleep(1)

    threading.Thread(target=gauges, daemon=True).start()
    gang = Gang()
    for _ in range(20):
        train(gang, TRAIN_S)


SETTLED = (("TRAIN_S", "150"),)
"""Long enough for the job's rate to be known, which silence alone is measured by."""
CASES: dict[str, Case] = {
    "stop": Case("acts", with_gang(lambda _g: stop()), guilty=1),
    "stop alone": Case("acts", alone(stop), guilty=1),
    "sleep": Case("acts", with_gang(lambda _g: sleep_for_ever()), guilty=1),
    "sleep alone": Case("acts", alone(sleep_for_ever), guilty=1),
    "deadlock": Case("acts", with_gang(lambda _g: deadlock()), guilty=1),
    "spin": Case("tells", with_gang(lambda _g: spin()), guilty=1, env=SETTLED),
    "retry": Case("tells", with_gang(lambda _g: retry()), guilty=1),
    "sqlite lock": Case("acts", sqlite_lock),
    "cycle with gauges": Case("acts", with_gang(cycle_with_gauges, all_ranks=True)),
    "flush while hung": Case("acts", with_gang(lambda _g: flush_while_hung()), guilty=1),
    "stopped loader": Case("acts", with_gang(lambda _g: stopped_loader()), guilty=1),
    "exit before the rendezvous": Case("tells", exits_before_the_rendezvous),
    "second generation hangs": Case("acts", second_generation_hangs, guilty=1),
    "stuck at exit": Case("acts", stuck_at_exit, guilty=1),
    "heartbeat stops": Case("tells", heartbeat_stops, env=SETTLED),
    "early hang, timeout 20 s": Case("acts", early_hang, guilty=1, timeout="20s"),
    "lock of a waiting thread": Case("acts", with_gang(lock_of_a_thread_that_waits_for_a_peer), guilty=1),
    "file lock of a peer": Case("acts", file_lock_of_a_peer),
    "spin beside busy peers": Case("tells", spin_beside_busy_peers, guilty=1, env=SETTLED),
    "early event": Case("acts", early_sleep, guilty=1),
    "early event, MA_HANG_DETECT_TIME": Case("acts", early_sleep, guilty=1, env=(("MA_HANG_DETECT_TIME", "10"),)),
    "queue that nothing fills": Case("acts", with_gang(lambda _g: wait_for_a_dead_thread()), guilty=1),
    "pipe of a waiting child": Case("acts", with_gang(lambda _g: pipe_of_a_waiting_child()), guilty=1),
    "stuck at exit, four ranks": Case("acts", stuck_at_exit, guilty=3, ranks=4),
    "sleep behind bash": Case("acts", with_gang(lambda _g: sleep_for_ever()), guilty=0, script=True, ranks=1),
    "stop behind bash": Case("acts", alone(stop), guilty=1, script=True),
    "deadlock behind bash": Case("acts", with_gang(lambda _g: deadlock()), guilty=1, script=True),
    "remote behind bash": Case("healthy", with_gang(lambda _g: remote()), script=True),
    "idle web server": Case("healthy", idle_web_server, notice=False),
    "idle server in a thread": Case("healthy", idle_server_in_a_thread, notice=False),
    "idle gRPC server": Case("healthy", idle_grpc_server),
    "remote in asyncio": Case("healthy", with_gang(lambda _g: wait_in_asyncio())),
    "actors": Case("healthy", actors),
    "busy child": Case("healthy", with_gang(lambda _g: busy_child())),
    "sleeping child": Case("healthy", with_gang(lambda _g: sleeping_child())),
    "evaluator": Case("healthy", evaluator, notice=False),
    "slow imports": Case("healthy", slow_imports, notice=False),
    "console": Case("healthy", with_gang(lambda _g: console()), notice=False),
    "debugger": Case("healthy", with_gang(lambda _g: debugger()), notice=False),
    "remote, 3 min": Case("healthy", with_gang(lambda _g: remote())),
    "remote without timeout": Case("healthy", with_gang(lambda _g: remote_without_timeout())),
    "remote, timeout 10 min": Case("healthy", with_gang(lambda _g: remote()), timeout="10m"),
    "poll remote": Case("healthy", with_gang(lambda _g: poll_remote())),
    "nap": Case("healthy", with_gang(lambda _g: nap(), all_ranks=True)),
    "small portions": Case("healthy", with_gang(lambda _g: small_portions())),
    "upload by a child": Case("healthy", with_gang(lambda _g: upload())),
    "compile in children": Case("healthy", with_gang(lambda _g: compile_children())),
    "evaluate": Case("healthy", with_gang(lambda _g: evaluate()), notice=False),
    "prompt": Case("healthy", with_gang(lambda _g: prompt()), notice=False),
    "remote evaluations": Case("healthy", remote_evaluations),
    "idle server": Case("healthy", idle_server, notice=False),
    "rare lines": Case("healthy", rare_lines, notice=False),
    "gauges beside training": Case("healthy", gauges_beside_training, notice=False),
}


if __name__ == "__main__":
    work = Path(os.environ["WORK"]) / f"r{RANK}"
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    CASES[sys.argv[1]].run()
