"""NCCL's counts are asked for twice with the dumps of a rank, over a real socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence_json import decode, encode
from holdfast.hang.thresholds import Tuning
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner, Limits

pytestmark = pytest.mark.anyio


async def test_nccl_is_asked_before_the_looks_and_after_them(tmp_path: Path) -> None:
    asked = 0

    async def status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readline()
        writer.write(f"7 ranks have launched up to operation {64 + asked}\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(status, "127.77.3.4", 0)
    address = f"127.77.3.4:{server.sockets[0].getsockname()[1]}"
    rank = await asyncio.create_subprocess_exec("/bin/sleep", "60", env={"RANK": "0", "NCCL_RAS_ADDR": address})
    try:
        facts = HostFacts("host-0", str(tmp_path), str(tmp_path), WorkerUser("ada", "/", "/bin/sh"), 2)
        worker = Worker(WorkerId("job-1", "workerpool0-0"), Running(1), pids={0: rank.pid})
        examiner = Examiner(lambda: facts, SimulatedSource("h", 0), limits=Limits(0.3))
        found = await examiner.diagnose(worker, 1, [], native=False)
    finally:
        rank.kill()
        await rank.wait()
        server.close()
    first, second = (f"7 ranks have launched up to operation {at}\n" for at in (65, 66))
    assert (found.ras, found.ras_after) == (first, second)
    told = decode(encode(found))
    assert (told.ras, told.ras_after) == (first, second)


def test_evidence_is_on_its_way_before_the_controller_acts() -> None:
    on_the_way_s = 5.0
    assert Limits().budget_s + on_the_way_s <= Tuning().diagnose_s
