"""Whatever gives GPU readings: the simulated source and NVML, by way of the real helper process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from holdfast_agent.core.model.gpus import ChangeKind, Gpu, GpuUsage, Reading, merge
from holdfast_agent.gpu.reader import GpuSource, NvmlSource, SimulatedSource

COUNT = 4


@pytest.fixture(params=["simulated", pytest.param("nvml", marks=pytest.mark.require("cc"))])
async def source(request: pytest.FixtureRequest) -> AsyncIterator[GpuSource]:
    if request.param == "simulated":
        made: GpuSource = SimulatedSource("host-0", COUNT)
    else:
        request.getfixturevalue("fake_nvml").gpus(COUNT)
        made = NvmlSource()
    yield made
    await made.aclose()


async def read(source: GpuSource) -> Reading:
    reading = await source.inventory()
    assert isinstance(reading, Reading), reading
    return reading


async def usage_of(source: GpuSource) -> tuple[GpuUsage, ...]:
    usage = await source.usage()
    assert isinstance(usage, tuple), usage
    return usage


async def test_gpus_are_distinct_healthy_and_in_index_order(source: GpuSource) -> None:
    gpus = (await read(source)).gpus
    assert [gpu.index for gpu in gpus] == list(range(COUNT))
    assert len({gpu.uuid for gpu in gpus}) == COUNT
    assert all(gpu.model and gpu.memory_bytes >= 1 << 30 and not gpu.problem for gpu in gpus)


async def test_reading_twice_gives_the_same(source: GpuSource) -> None:
    assert await read(source) == await read(source)


async def test_merging_a_reading_into_nothing_finds_every_gpu(source: GpuSource) -> None:
    reading = await read(source)
    inventory, changes = merge((), reading)
    assert inventory == reading.gpus
    assert {change.kind for change in changes} == {ChangeKind.FOUND}
    assert merge(inventory, await read(source)) == (inventory, ())


async def test_every_healthy_gpu_counts_as_answering(source: GpuSource) -> None:
    reading = await read(source)
    assert reading.physical == {gpu.uuid for gpu in reading.gpus}
    assert (reading.unidentified, reading.note) == ((), "")


async def test_usage_names_the_same_gpus_and_an_idle_one_is_empty(source: GpuSource) -> None:
    gpus = (await read(source)).gpus
    assert await usage_of(source) == tuple(GpuUsage(gpu.uuid, 0, ()) for gpu in gpus)


async def test_overlapping_calls_are_all_answered(source: GpuSource) -> None:
    answers: list[object] = []

    async def one(call: int) -> None:
        answers.append(await (source.usage() if call % 2 else source.inventory()))

    async with anyio.create_task_group() as group:
        for call in range(6):
            group.start_soon(one, call)
    assert [type(answer) for answer in answers].count(Reading) == 3
    assert [type(answer) for answer in answers].count(tuple) == 3


async def test_cancelled_call_leaves_the_source_usable(source: GpuSource) -> None:
    before = await read(source)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await source.usage()
    assert await read(source) == before


async def test_closed_source_can_be_read_again(source: GpuSource) -> None:
    before = await read(source)
    await source.aclose()
    await source.aclose()
    assert await read(source) == before


async def test_simulated_gpus_are_named_after_host_and_index() -> None:
    gpus = (await read(SimulatedSource("host-1", 2))).gpus
    assert gpus[1] == Gpu("GPU-sim-host-1-1", 1, "Simulated GPU", 16 << 30, bus_id="0000ffff:02:00.0")


async def test_simulated_host_may_have_no_gpus() -> None:
    assert await read(SimulatedSource("host-1", 0)) == Reading()
