"""Stays with a live job and keeps what its agents sample."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncGenerator

import anyio
import anyio.abc

from holdfast._sdk.reconnect import Outage, is_away
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.durations import span
from holdfast.client import TERMINAL, Client
from holdfast.errors import HoldfastError, Unavailable
from holdfast.hang.records.reader import unpacked
from holdfast.hang.records.recorder import JobRecording
from holdfast.v1 import hang_pb2


async def keep(client: Client, recording: JobRecording, length_s: float) -> None:
    """Record until the time is over, the job has ended, or the user presses Ctrl-C."""
    console = Console()
    console.note(f"recording job {recording.job} for {span(length_s)} into {recording.folder}; Ctrl-C ends it")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_interrupt, tasks.cancel_scope)
        with anyio.move_on_after(length_s):
            answers = _samples(client, recording.job, Outage(console.on_link()))
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    problem = recording.take(answer.worker, answer.host, answer.data) or answer.problem
                    if problem:
                        console.note(f"{answer.worker}: {problem}")
        tasks.cancel_scope.cancel()


async def keep_of_hang(client: Client, recording: JobRecording, number: int) -> None:
    """Record what was kept with a hang of the job; dumps of flight recorders get names that torch's analyzer knows."""
    async for found in client.hang_evidence(recording.job, number, samples=True):
        if found.problem:
            Console().note(f"{found.worker}: {found.problem}")
        for rank, dump in found.dumps.items():
            recording.keep_file(f"nccl_trace_rank_{rank}", dump)
        for lines in unpacked(found.samples):
            recording.take(found.worker, found.host, lines)


async def _samples(client: Client, job_id: str, outage: Outage) -> AsyncGenerator[hang_pb2.RecordSamplesResponse]:
    """Yield samples until the job has ended. What is taken during an outage of the controller comes after it."""
    while True:
        try:
            if outage.ongoing and (await client.get_job(job_id)).state in TERMINAL:
                return
            async with contextlib.aclosing(client.record_samples(job_id)) as answers:
                async for answer in answers:
                    outage.settled()
                    yield answer
            if (await client.get_job(job_id)).state in TERMINAL:
                return
            await anyio.sleep(
                outage.failed(Unavailable("The controller ended the stream before the job had ended."))
            )
        except HoldfastError as error:
            if not is_away(error):
                raise
            await anyio.sleep(outage.failed(error))


async def _cancel_on_interrupt(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return
