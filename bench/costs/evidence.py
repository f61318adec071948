"""What evidence costs: `python -m bench.costs.evidence [ROUNDS]`, of 8 deadlocked ranks on this host.

The time counts from the order to the evidence in hand, encoded, without the pause that is made on purpose between
the two looks. `py-spy` alone, eight times in a row by hand, stands beside it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.support.report import Table, framed, progress

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import Evidence, diagnosis
from holdfast.hang.evidence.evidence_json import encode
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner, Limits

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"
RANKS, GUILTY, STEP = 8, 5, 40
SETTLE_S = 60.0


def start(folder: Path) -> list[subprocess.Popen[bytes]]:
    """A gang whose data loader deadlocks on one rank."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    faults = ["--hang-rank", str(GUILTY), "--hang-step", str(STEP), "--checkpoint-dir", str(folder)]
    command = [sys.executable, str(TRAIN), *faults]
    return [
        subprocess.Popen(command, env=env | {"RANK": str(rank)}, stdout=subprocess.DEVNULL) for rank in range(RANKS)
    ]


async def settle(examiner: Examiner, worker: Worker) -> Evidence:
    """Look until the gang hangs as it should."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        found = await examiner.diagnose(worker, 1, [GUILTY], native=False, interval_s=0.5)
        said = diagnosis([found], 0.0)
        if said.same and f"{RANKS - 1} ranks wait in all_reduce" in said.words:
            return found
    raise SystemExit("the gang did not hang as it was told to")


async def measure(folder: Path, worker: Worker, rounds: int) -> None:
    facts = HostFacts("host-0", str(folder), str(folder), WorkerUser("ada", "/", "/bin/sh"), 2)
    examiner = Examiner(lambda: facts, SimulatedSource("host-0", RANKS), limits=Limits(interval_s=0.0))
    print(f"\n    {diagnosis([await settle(examiner, worker)], 0.0).words}")
    table = Table("Evidence of 8 ranks, two looks each", "s")
    sizes = []
    for native in (False, True):
        took, used = [], []
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}, native {native}")
            began, cpu = time.perf_counter(), _cpu_s()
            sizes.append(len(encode(await examiner.diagnose(worker, 1, [GUILTY], native=native))))
            took.append(time.perf_counter() - began)
            used.append(_cpu_s() - cpu)
        kind = "and C frames of the suspect" if native else "of Python frames"
        table.add(f"evidence {kind}", took)
        table.add("  CPU of the agent and its tools", used)
    table.add(
        "py-spy by hand, 16 dumps in a row", [await asyncio.to_thread(by_hand, worker) for _ in range(rounds)]
    )
    table.print()
    print(f"\n    {min(sizes):,}–{max(sizes):,} bytes as JSON")


def by_hand(worker: Worker) -> float:
    """Seconds for two dumps of each rank, one after the other."""
    spy = str(Path(sys.executable).with_name("py-spy"))
    began = time.perf_counter()
    for pid in [*worker.pids.values()] * 2:
        command = [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _cpu_s() -> float:
    return sum(os.times()[:4])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with framed(), tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        gang = start(Path(folder))
        pids = {rank: process.pid for rank, process in enumerate(gang)}
        try:
            worker = Worker(WorkerId("job", "workerpool0-0"), Running(1), pids=pids)
            asyncio.run(measure(Path(folder), worker, rounds))
        finally:
            for process in gang:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
