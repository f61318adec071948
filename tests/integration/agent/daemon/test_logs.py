"""Output of ranks, read through the transfer stream."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import launch

from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import decode
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.shell.output import log_index
from holdfast_agent.shell.output.log_index import written_by

PYTHON = sys.executable
TEN_LINES = [PYTHON, "-c", "for i in range(10): print(f'line {i}')"]


async def finished(controller: Controller, command: list[str]) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    await launch(controller, command)
    await controller.state("EMPTY")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, "".join(f"line {i}\n" for i in range(10))),
        ({"offset": 63}, "line 9\n"),
        ({"tail_lines": 2}, "line 8\nline 9\n"),
        ({"tail_lines": 0}, ""),
        ({"tail_lines": 99, "offset": 56}, "line 8\nline 9\n"),
        ({"offset": 1000}, ""),
        ({"follow": True, "tail_lines": 1}, "line 9\n"),
        ({"end_offset": 14}, "line 0\nline 1\n"),
        ({"end_offset": 14, "tail_lines": 1}, "line 1\n"),
        ({"offset": 7, "end_offset": 21}, "line 1\nline 2\n"),
        ({"contains": "e 8"}, "line 8\n"),
        ({"contains": "LINE 7", "ignore_case": True, "follow": True}, "line 7\n"),
        ({"contains": "LINE 7"}, ""),
        ({"contains": "line", "offset": 30, "end_offset": 49}, "line 5\nline 6\n"),
    ],
)
async def test_finished_output_is_read_as_asked(
    agent: Agent, controller: Controller, how: dict[str, Any], expected: str
) -> None:
    await finished(controller, TEN_LINES)
    text, problem = await controller.read(1, **how)
    assert text == expected
    assert not problem


async def test_output_is_followed_until_the_rank_has_ended(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    fifo = agent.root / "go"
    os.mkfifo(fifo)
    await controller.open(1, follow=True)  # before there is anything
    code = f"print('first', flush=True); open({str(fifo)!r}).read(); print('second')"
    await launch(controller, [PYTHON, "-c", code])
    await controller.until(lambda: controller.text(1) == "first\n", "the first line")
    assert 1 not in controller.ends
    fifo.write_text("x")
    await controller.until(lambda: 1 in controller.ends, "the end")
    assert controller.text(1) == "first\nsecond\n"


async def test_nothing_is_sent_beyond_the_credit(agent: Agent, controller: Controller) -> None:
    await finished(controller, TEN_LINES)
    await controller.open(1, credit_bytes=10)
    await controller.until(lambda: len(controller.text(1)) == 10, "ten bytes")
    await controller.heartbeats(2)
    assert len(controller.text(1)) == 10
    await controller.transfer_say(credit=agent_pb2.Credit(id=1, bytes=15))
    await controller.until(lambda: len(controller.text(1)) == 25, "fifteen more")
    await controller.transfer_say(credit=agent_pb2.Credit(id=1, bytes=1000))
    await controller.until(lambda: 1 in controller.ends, "the end")
    assert controller.text(1).endswith("line 9\n")


async def test_closed_reading_sends_nothing_more(agent: Agent, controller: Controller) -> None:
    await finished(controller, TEN_LINES)
    await controller.open(1, credit_bytes=10)
    await controller.until(lambda: len(controller.text(1)) == 10, "ten bytes")
    await controller.transfer_say(close=agent_pb2.CloseLog(id=1))
    await controller.transfer_say(credit=agent_pb2.Credit(id=1, bytes=1000))
    text, _ = await controller.read(2)
    assert len(text) == 70
    assert len(controller.text(1)) == 10


async def test_reading_is_closed_in_the_middle_of_a_write_and_others_go_on(
    agent: Agent, controller: Controller
) -> None:
    """gRPC ends a call whose write is cancelled; with it would go every other reading, or the agent."""
    await finished(
        controller, [PYTHON, "-c", "print('x' * 63 + '\\n', end='', flush=True); print('y' * (16 << 20))"]
    )
    stream = controller.transfer
    await controller.open(1, end_offset=64, credit_bytes=10)
    await controller.until(lambda: controller.chunks.get(1), "the first reading")
    controller.takes_output.clear()
    await controller.open(2)
    await controller.heartbeats(4)  # two seconds: the connection's windows are full
    await controller.transfer_say(close=agent_pb2.CloseLog(id=2))
    await controller.heartbeats(2)
    controller.takes_output.set()
    await controller.transfer_say(credit=agent_pb2.Credit(id=1, bytes=1000))
    await controller.until(lambda: 1 in controller.ends, "the end of the first")
    assert controller.text(1) == "x" * 63 + "\n"
    assert len(controller.text(2)) < 16 << 20, "its write never waited"
    assert controller.transfer is stream
    assert agent.process and agent.process.poll() is None


async def test_since_skips_what_was_written_before(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    fifo = agent.root / "go"
    os.mkfifo(fifo)
    code = f"print('old', flush=True); open({str(fifo)!r}).read(); print('new')"
    await launch(controller, [PYTHON, "-c", code])
    await agent.output("job-1/g1/workerpool0-0.r0.out", "old")
    await agent.appeared(agent.logs / "job-1/g1/workerpool0-0.r0.out.idx")
    between = time.time()
    fifo.write_text("x")
    await controller.state("EMPTY")
    assert await controller.read(1, since=between) == ("new\n", "")
    assert await controller.read(2, since=between - 3600) == ("old\nnew\n", "")
    assert await controller.read(3, since=between + 3600) == ("", "")


def test_a_file_s_own_time_tells_what_its_index_does_not_know_yet(tmp_path: Path) -> None:
    stream = tmp_path / "r0.out"
    stream.write_text("old\n")
    os.utime(stream, (1000, 1000))
    assert written_by(str(stream), 1_002_000) == 4
    assert written_by(str(stream), 1_000_500) == 0, "within the clocks' margin nobody knows"


async def test_stderr_is_a_stream_of_its_own(agent: Agent, controller: Controller) -> None:
    await finished(controller, [PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr)"])
    assert await controller.read(1, stream=job_pb2.LOG_STREAM_STDERR) == ("err\n", "")


async def test_output_that_does_not_exist_is_said(agent: Agent, controller: Controller) -> None:
    await finished(controller, TEN_LINES)
    assert "no output of rank 5" in (await controller.read(1, rank=5))[1]
    assert "names no worker" in (await controller.read(2, job_id="../../etc"))[1]
    assert "no output" in (await controller.read(3, generation=9, job_id="other", follow=True))[1]


@pytest.mark.parametrize("settings", [{"log_limit_mb": 1}])
async def test_oldest_output_is_cut_and_offsets_stay(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    code = "for i in range(400_000): print(f'{i:09}')\nsys.stdout.flush(); time.sleep(600)"
    await launch(controller, [PYTHON, "-c", "import sys, time; sys.stdout = open(1, 'w', 65536)\n" + code])
    out = agent.logs / "job-1/g1/workerpool0-0.r0.out"
    await agent.size(out, 4_000_000)
    await agent.until(lambda: out.stat().st_blocks * 512 <= 1 << 20, "a cut")
    await controller.read(1)
    first = controller.chunks[1][0]
    assert first.offset > 2_000_000
    start = -first.offset % 10  # the cut is at a block's border, anywhere in a line
    assert first.data[start : start + 10] == b"%09d\n" % ((first.offset + start) // 10)
    assert b"\0" not in b"".join(chunk.data for chunk in controller.chunks[1])
    assert await controller.read(2, tail_lines=1) == ("000399999\n", "")
    await controller.assign(assignment("STOP", grace_s=0.1))
    await controller.state("EMPTY")


def test_output_is_cut_on_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(log_index, "note", full)
    facts = HostFacts("host-0", str(tmp_path), str(tmp_path), WorkerUser("root", "/", "/bin/sh"), 1)
    key = WorkerId("job-1", "workerpool0-0")
    log_index.make_directories(facts, key, 1)
    out = tmp_path / "job-1/g1/workerpool0-0.r0.out"
    out.write_bytes(b"x" * (2 << 20))
    sampler = log_index.LogSampler(facts, 1 << 20)
    sampler.watch(key, 1, [0])
    sampler.drop(key)
    assert out.stat().st_blocks * 512 <= 1 << 20


async def test_reading_goes_on_with_a_new_stream_after_the_controllers_restart(
    agent: Agent, controller: Controller
) -> None:
    await finished(controller, TEN_LINES)
    await controller.stop()
    controller.transfer = None
    await controller.start()
    await controller.until(lambda: controller.transfer, "a second transfer stream")
    assert (await controller.read(1, tail_lines=1))[0] == "line 9\n"


async def test_samples_of_a_running_worker_are_sent_by_credit_until_nobody_wants_them(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    await launch(controller, [PYTHON, "-c", "import time; print('hello', flush=True); time.sleep(600)"])
    order = agent_pb2.OpenSamples(id=5, job_id="job-1", worker="workerpool0-0", credit_bytes=1)
    await controller.transfer_say(open_samples=order)
    await controller.until(lambda: controller.chunks.get(5), "a sample")
    # The first one overdraws the credit, so that no other comes before there is more.
    await asyncio.sleep(5)
    (first,) = controller.chunks[5]
    await controller.transfer_say(credit=agent_pb2.Credit(id=5, bytes=1 << 20))
    await controller.until(lambda: len(controller.chunks[5]) >= 3, "more samples")
    samples = [decode(line) for line in controller.text(5).splitlines()]
    assert {(s.job, s.worker, s.generation) for s in samples} == {("job-1", "workerpool0-0", 1)}
    assert [rank.rank for rank in samples[-1].ranks] == [0]
    assert samples[-1].ranks[0].process is not None
    assert controller.chunks[5][1].offset == len(first.data)
    await controller.transfer_say(close=agent_pb2.CloseLog(id=5))
    await controller.read(6)
    assert 5 not in controller.ends


async def test_samples_from_before_they_were_asked_for_come_first_also_after_the_agents_restart(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", "import time; print('hello', flush=True); time.sleep(600)"])
    await asyncio.sleep(6)
    agent.kill(signal.SIGTERM)
    controller.transfer = None
    agent.start()
    await controller.until(lambda: controller.transfer, "a second transfer stream")
    asked_s = time.monotonic()
    order = agent_pb2.OpenSamples(id=5, job_id="job-1", worker="workerpool0-0", credit_bytes=1 << 20)
    await controller.transfer_say(open_samples=order)

    def times() -> list[float]:
        lines = controller.text(5).splitlines() if 5 in controller.chunks else []
        return [decode(line).at_s for line in lines]

    await controller.until(lambda: times() and times()[-1] > asked_s, "a new sample")
    assert times() == sorted(set(times()))
    assert times()[0] < asked_s - 4
    assert "hello" in controller.text(5)


async def test_samples_of_what_is_no_worker_are_refused(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    order = agent_pb2.OpenSamples(id=5, job_id="../..", worker="workerpool0-0", credit_bytes=1)
    await controller.transfer_say(open_samples=order)
    await controller.until(lambda: 5 in controller.ends, "the end")
    assert "names no worker" in controller.ends[5]


async def test_orders_of_a_controller_of_the_past_end_the_stream_that_they_come_on(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    await launch(controller, TEN_LINES, epoch=7)
    await controller.state("EMPTY")
    past = controller.transfer
    asked = agent_pb2.OpenLog(
        id=1,
        job_id="job-1",
        generation=1,
        worker="workerpool0-0",
        stream=job_pb2.LOG_STREAM_STDOUT,
        credit_bytes=1 << 20,
    )
    await controller.transfer_say(epoch=6, open=asked)
    await controller.until(lambda: controller.transfer is not past, "another stream")
    assert controller.text(1) == ""
    await controller.transfer_say(epoch=7, open=asked)
    await controller.until(lambda: 1 in controller.ends, "the end of the reading")
    assert controller.text(1).endswith("line 9\n")
