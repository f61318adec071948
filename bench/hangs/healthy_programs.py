"""Programs that are healthy and look as if they hung: ``python healthy_programs.py NAME`` is one rank of one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

from bench.hangs.program_gang import PAUSE_S, RANK, TRAIN_S, Case, Gang, play, train, with_gang


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


def idle_server_whose_peer_has_ended() -> None:
    """Rank 0 serves somebody outside, who asks for nothing; rank 1 had something to prepare."""
    if RANK == 1:
        time.sleep(5)
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


def parameter_server() -> None:
    """Rank 0 serves at the ranks' meeting point; its only client trains for a while, and ends well."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 1:
        train(None, 2 * TRAIN_S)
        return
    with socket.create_server(address, reuse_port=True) as server:
        while True:
            server.accept()


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


CASES: dict[str, Case] = {
    "remote behind bash": Case("healthy", with_gang(lambda _g: remote()), script=True),
    "idle web server": Case("healthy", idle_web_server, notice=False),
    "idle server in a thread": Case("healthy", idle_server_in_a_thread, notice=False),
    "idle gRPC server": Case("healthy", idle_grpc_server),
    "idle server whose peer has ended": Case("healthy", idle_server_whose_peer_has_ended),
    "parameter server": Case("healthy", parameter_server),
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
    play(CASES)
