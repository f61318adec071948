"""One RecordSamples call: the samples of every worker of a live job, on whatever hosts it comes to run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from holdfast.v1 import agent_pb2, hang_pb2
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.calls.closable_queue import EndingQueue
from holdfast_controller.shell.calls.rpc import beside
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services.streams.reading import End, Reading
from holdfast_controller.shell.services.streams.transfers import Transfers

Item = tuple[hang_pb2.RecordSamplesResponse, Reading | None]
"""A chunk of samples, and the reader to be given credit for it."""


class SampleReading:
    """Merges the workers' samples; bounded, so that a slow reader slows only its own."""

    def __init__(self, driver: Driver, transfers: Transfers, job: Job, reader: str) -> None:
        self._driver = driver
        self._reader = reader
        self._transfers = transfers
        self._job = job
        self._queue: EndingQueue[Item] = EndingQueue()

    async def answers(self) -> AsyncGenerator[hang_pb2.RecordSamplesResponse, None]:
        """Lines as they come, until the job has ended."""
        async with beside(self._lead(), self._queue.end):
            while (item := await self._queue.get()) is not None:
                answer, reading = item
                yield answer
                if reading is not None:
                    # Only now has the reader taken it, so only now may more come.
                    self._transfers.credit(reading, len(answer.data))

    async def _lead(self) -> None:
        """Read every worker where it is placed, attempt after attempt, until the job has ended."""
        entity = f"job/{self._job.id}"
        bell = self._driver.watch(entity)
        readers: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                attempt = 0
                while not self._job.terminal:
                    bell.clear()
                    if self._job.places and self._job.attempt != attempt:
                        attempt = self._job.attempt
                        for reader in readers:
                            reader.cancel()
                        readers = [
                            tasks.create_task(self._read(member, self._job.places[member.index].host))
                            for member in self._job.gang.members
                        ]
                    await bell.wait()
                for reader in readers:
                    reader.cancel()
        finally:
            self._driver.unwatch(entity, bell)

    async def _read(self, member: Member, host: str) -> None:
        """One worker's samples; when its host goes away, those that come once it is back."""
        told_away = False
        while True:
            if not self._transfers.connected(host):
                if not told_away:
                    await self._say(member, host, f"{host} is not connected; its samples come once it is back")
                    told_away = True
                await self._transfers.changed()
                continue
            told_away = False
            order = agent_pb2.OpenSamples(job_id=self._job.id, worker=member.name)
            reading = self._transfers.open_samples(host, order, self._reader)
            if reading is None:
                await self._say(member, host, f"{host} cannot be read from at present")
                return
            try:
                while not isinstance(item := await reading.items.get(), End):
                    await self._queue.put((_answer(member, host, item.data), reading))
            finally:
                self._transfers.close(reading)
            if not item.lost:
                await self._say(member, host, item.problem)
                return

    async def _say(self, member: Member, host: str, problem: str) -> None:
        answer = _answer(member, host, b"")
        answer.problem = problem
        await self._queue.put((answer, None))


def _answer(member: Member, host: str, data: bytes) -> hang_pb2.RecordSamplesResponse:
    return hang_pb2.RecordSamplesResponse(worker=member.name, host=host, data=data)
