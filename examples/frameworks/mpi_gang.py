"""Runs one mpirun over all workers of a job.

    holdfast run --replicas 2 --gpus 4 -- python mpi_gang.py mpirun python train.py

Worker 0 runs the command, told of all workers; the others start what mpirun wants started on their hosts. As a rule
mpirun does that by ssh. Here it does it by this file, so hosts need neither ssh nor a service of MPI's. For Open MPI 4
and 5, MPICH and Intel MPI; standard library only. `--slots N` before mpirun: ranks of each worker, one per GPU unless
given.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

WAIT_S = 600.0
"""Workers may be this long behind each other."""


def workers() -> list[str]:
    """The address, host:port, of every worker; each may listen on its port."""
    cluster = json.loads(os.environ["CLUSTER_SPEC"])["cluster"]
    return [address for name in ("workerpool0", "workerpool1") for address in cluster.get(name, ())]


def proof(challenge: bytes) -> bytes:
    """What only this generation of this job can answer."""
    return hmac.digest(os.environ["HOLDFAST_RENDEZVOUS_SECRET"].encode(), challenge, "sha256")


def ask(worker: int, order: dict[str, object]) -> int:
    """Has a worker carry out an order; passes its output on, and returns its exit status."""
    host, _, port = workers()[worker].rpartition(":")
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            link = socket.create_connection((host, int(port)), timeout=10)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    link.settimeout(None)
    with link, link.makefile("rwb") as stream:
        stream.write(proof(stream.read(32)) + json.dumps(order).encode() + b"\n")
        stream.flush()
        for line in stream:
            said = json.loads(line)
            if "status" in said:
                return int(said["status"])
            print(said["text"], end="", flush=True, file=sys.stdout if said["stream"] == 1 else sys.stderr)
    return 255


def serve(link: socket.socket, ended: threading.Event) -> None:
    """Carries out one order of worker 0: to run a program, or to end."""
    lock = threading.Lock()
    with link, link.makefile("rwb") as stream:

        def say(**words: object) -> None:
            with lock:
                stream.write(json.dumps(words).encode() + b"\n")
                stream.flush()

        def relay(pipe: IO[str], number: int) -> None:
            for line in pipe:
                say(stream=number, text=line)

        challenge = secrets.token_bytes(32)
        stream.write(challenge)
        stream.flush()
        if not hmac.compare_digest(stream.read(32), proof(challenge)):
            return
        order = json.loads(stream.readline())
        if "run" not in order:
            say(status=0)
            ended.set()
            return
        # As the remote shell that mpirun takes it for: it sends variables and its daemon's start as one line.
        program = subprocess.Popen(
            ["/bin/sh", "-c", order["run"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert program.stdout is not None
        assert program.stderr is not None
        relays = [threading.Thread(target=relay, args=each) for each in ((program.stdout, 1), (program.stderr, 2))]
        for thread in relays:
            thread.start()
        for thread in relays:
            thread.join()
        say(status=program.wait() % 256)


def follow() -> int:
    """Carries out worker 0's orders until it says that mpirun has ended."""
    ended = threading.Event()
    with socket.create_server(("", int(workers()[int(os.environ["GROUP_RANK"])].rpartition(":")[2]))) as server:
        server.settimeout(0.5)
        while not ended.is_set():
            try:
                link, _ = server.accept()
            except TimeoutError:
                continue
            link.settimeout(None)
            threading.Thread(target=serve, args=(link, ended), daemon=True).start()
    return 0


def told(slots: int, folder: Path) -> dict[str, str]:
    """Variables by which Open MPI and MPICH learn of the workers and of how to start programs there."""
    names = [socket.gethostname(), *(f"worker{number}" for number in range(1, len(workers())))]
    (folder / "hostfile").write_text("".join(f"{name} slots={slots}\n" for name in names))
    (folder / "machinefile").write_text("".join(f"{name}:{slots}\n" for name in names))
    agent = folder / "agent"
    own = " ".join(map(shlex.quote, (sys.executable, os.path.abspath(__file__))))
    agent.write_text(f'#!/bin/sh\nexec {own} --on "$@"\n')
    agent.chmod(0o755)
    variables = {
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_orte_default_hostfile": str(folder / "hostfile"),
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_prte_default_hostfile": str(folder / "hostfile"),
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(agent),
        "HYDRA_HOST_FILE": str(folder / "machinefile"),
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(agent),
        "I_MPI_HYDRA_HOST_FILE": str(folder / "machinefile"),
    }
    if interface := os.environ.get("NCCL_SOCKET_IFNAME"):
        variables |= {"OMPI_MCA_btl_tcp_if_include": interface, "HYDRA_IFACE": interface}
    return variables


def lead(command: list[str]) -> int:
    """Runs mpirun; the other workers end with it where it ends well, and with the job where it doesn't."""
    gpus = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    slots = max(1, len(gpus))
    if command[0] == "--slots":
        slots, command = int(command[1]), command[2:]
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen(command, env={**told(slots, Path(folder)), **os.environ})
        signal.signal(signal.SIGTERM, lambda *_: program.terminate())
        status = program.wait()
    if status == 0:
        for worker in range(1, len(workers())):
            ask(worker, {"end": True})
    return status if status >= 0 else 128 - status


def main(arguments: list[str]) -> int:
    """As worker 0, as another worker, or as what mpirun runs in place of ssh: ``--on [-x] HOST COMMAND…``."""
    if arguments[:1] != ["--on"]:
        return lead(arguments) if os.environ["GROUP_RANK"] == "0" else follow()
    place = next(index for index, word in enumerate(arguments[1:], 1) if not word.startswith("-"))
    return ask(int(arguments[place].removeprefix("worker")), {"run": " ".join(arguments[place + 1 :])})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
