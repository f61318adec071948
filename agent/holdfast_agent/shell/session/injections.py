"""Faults that users put into ranks of their jobs: passed to the worker's shim, and undone when this connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast._daemon import log
from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.session.assignment_checks import is_worker
from holdfast_agent.shell.session.keepers import STARTED_WITHIN_S, keeper
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shim import terminal

Answers = Callable[[agent_pb2.FaultAnswer], Awaitable[None]]


class Injections:
    """The faults that are injected on this host."""

    def __init__(self, workers: Path, shims: Shims) -> None:
        self._workers = workers
        self._shims = shims

    async def run(self, order: agent_pb2.InjectFault, answers: Answers) -> None:
        """Inject a fault, answer once it is there, and return once it is undone; cancelled, it is undone at once."""
        key = WorkerId(order.job_id, order.worker)
        answer = agent_pb2.FaultAnswer(id=order.id)
        if problem := self._refusal(key, order.fault):
            answer.problem = problem
            await answers(answer)
            return
        message = {
            "op": "inject",
            "generation": order.generation,
            "rank": order.rank,
            "fault": order.fault,
            "for_s": order.for_s,
            "speed": order.speed,
        }
        fields = {"worker": str(key), "generation": order.generation, "rank": order.rank, "fault": order.fault}
        try:
            async with keeper(self._workers, self._shims, key, message) as (reader, _):
                answer.problem = await _outcome(reader)
                await answers(answer)
                if answer.problem:
                    return
                log.warning("fault.injected", **fields, for_s=order.for_s)
                try:
                    await reader.read(1)
                finally:
                    log.info("fault.undone", **fields)
        except TimeoutError:
            answer.problem = f"its worker's shim did not begin it within {STARTED_WITHIN_S:g} s"
            await answers(answer)
        except OSError as error:
            answer.problem = f"it can't be injected: {error.strerror or error}"
            await answers(answer)

    def _refusal(self, key: WorkerId, fault: str) -> str:
        if not is_worker(key) or not self._shims.pid(key):
            return "nothing of the job runs on its host"
        if fault not in (known := self._shims.faults(key)):
            older = "the worker was started by an older release; a restart of the job allows it"
            return f"its shim injects no {fault}, but {', '.join(known)}" if known else older
        return ""


async def _outcome(reader: asyncio.StreamReader) -> str:
    """Why the fault is not there; empty once it is. Raises ``TimeoutError``."""
    try:
        async with asyncio.timeout(STARTED_WITHIN_S):
            head = await reader.readexactly(terminal.HEAD)
            rest = await reader.readexactly(int.from_bytes(head[1:], "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return "the rank has ended"
    return "" if head[:1] == b"b" else rest.decode("utf-8", "replace")
