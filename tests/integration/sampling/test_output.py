"""Output, growing files and the opt-in progress of real processes; reads that block."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.integration.sampling.conftest import Stage

from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import WorkerSample
from holdfast.training.rank_progress import RankProgress
from holdfast_agent.core.launch.environment import log_paths
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.output.log_index import make_directories
from holdfast_agent.shell.sampling import sampler, worker
from holdfast_agent.shell.sampling.output import BYTES_MOST, LINES_MOST
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.worker import Watched, WorkerSampling


@pytest.fixture(autouse=True)
def _look_at_files_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "FILES_EVERY_S", 0.0)


async def test_new_lines_come_once_with_their_rank_and_stream(stage: Stage) -> None:
    stage.start("os.write(2, b'half'); signal.pause()")
    await stage.up()
    sample = await stage.tick()
    assert [(line.rank, line.stream, line.text) for line in sample.lines] == [(0, "out", "up")]
    with stage.output().with_suffix(".err").open("ab") as err:
        err.write(b" a line\nnext")
    sample = await stage.tick()
    assert [(line.stream, line.text) for line in sample.lines] == [("err", "half a line")]
    assert (await stage.tick()).lines == ()


async def test_output_that_was_cut_short_is_read_from_its_new_beginning(stage: Stage) -> None:
    stage.start("signal.pause()")
    await stage.up()
    stage.output().write_bytes(b"a line\n" * 100 + b"half")
    await stage.tick()
    stage.output().write_bytes(b"saved\n")  # as `echo saved > /dev/stdout` does
    assert [line.text for line in (await stage.tick()).lines] == ["saved"]
    with stage.output().open("ab") as out:
        out.write(b"step 5\n")
    assert [line.text for line in (await stage.tick()).lines] == ["step 5"]


async def test_flood_is_read_in_part_and_the_rest_is_told(stage: Stage) -> None:
    stage.start("signal.pause()")
    await stage.up()
    await stage.tick()
    with stage.output().open("ab") as out:
        out.write(b"x" * 999 + b"\n")
        for number in range(1_000):
            out.write(b"%0999d\n" % number)
    sample = await stage.tick()
    assert sample.skipped_bytes == 1_001 * 1_000 - BYTES_MOST
    assert int(sample.lines[-1].text) == 999
    assert all(len(line.text) == 999 for line in sample.lines)


async def test_of_a_flood_of_short_lines_the_newest_are_read_in_equal_parts_of_each_stream(stage: Stage) -> None:
    stage.start("signal.pause()")
    await stage.up()
    await stage.tick()
    for name in (".out", ".err"):
        with stage.output().with_suffix(name).open("ab") as file:
            file.write(b"".join(b"%06d\n" % number for number in range(30_000)))
    sample = await stage.tick()
    assert len(sample.lines) == LINES_MOST
    assert [line.text for line in sample.lines if line.stream == "err"][-1] == "029999"
    assert len([line for line in sample.lines if line.stream == "out"]) == LINES_MOST // 2
    assert sample.skipped_bytes == 7 * (2 * 30_000 - LINES_MOST)


async def test_growing_checkpoint_is_seen_and_one_that_rests_is_only_open(stage: Stage, tmp_path: Path) -> None:
    stage.start(
        f"file = open({str(tmp_path / 'model.ckpt')!r}, 'wb', buffering=0)\n"
        "signal.signal(10, lambda *_: file.write(bytes(100_000)))\n"
        "while True: signal.pause()"
    )
    await stage.up()
    first = await stage.sampled(lambda s: s.files.checkpoint_open, "an open checkpoint")
    assert first.files.checkpoint_grew_s is None
    os.kill(stage.ranks[0].pid, 10)
    grown = await stage.sampled(lambda s: s.files.checkpoint_grew_s is not None, "growth")
    assert (grown.files.path, grown.files.bytes) == (str(tmp_path / "model.ckpt"), 100_000)
    later = await stage.tick()
    assert later.files == grown.files


async def test_growing_events_and_other_files_are_told_apart(stage: Stage, tmp_path: Path) -> None:
    stage.start(
        f"files = [open({str(tmp_path)!r} + '/' + name, 'wb', buffering=0)\n"
        "         for name in ('events.out.tfevents.1.h', 'metrics.jsonl')]\n"
        "while True:\n    [file.write(b'x') for file in files]; time.sleep(0.05)"
    )
    await stage.up()
    sample = await stage.sampled(lambda s: None not in (s.files.events_grew_s, s.files.other_grew_s), "growth")
    assert not sample.files.checkpoint_open
    assert sample.files.checkpoint_grew_s is None


async def test_checkpoint_among_very_many_descriptors_is_found(stage: Stage, tmp_path: Path) -> None:
    stage.start(
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
        "held = [open('/dev/null') for _ in range(2000)]\n"
        f"file = open({str(tmp_path / 'model.pt')!r}, 'wb', buffering=0); os.write(1, b'ready\\n')\n"
        "while True: file.write(bytes(10_000)); time.sleep(0.02)"
    )
    await stage.sampled(lambda s: s.files.checkpoint_grew_s is not None, "the checkpoint")


async def test_progress_and_declared_pauses_are_read(stage: Stage) -> None:
    stage.start(
        "from holdfast.training.progress_calls import idle, progress\nprogress(step=41)\nprogress(step=42)\n"
        "with idle('waits for data'): signal.pause()"
    )
    await stage.up()
    sample = await stage.sampled(lambda s: bool(s.idle_reason), "a declared pause")
    (said,) = sample.progress
    assert (said.rank, said.reports, said.step, said.idle_reason) == (0, 2, 42, "waits for data")
    assert time.monotonic() - 60 < said.at_s <= sample.at_s


async def test_nonsense_in_the_progress_folder_is_passed_over(stage: Stage) -> None:
    stage.start("signal.pause()")
    folder = Path(stage.progress_dir)
    (folder / "r1.progress").write_bytes(b"nonsense")
    (folder / "rx.progress").write_bytes(b"")
    (folder / "r².progress").write_bytes(b"")
    (folder / "r2.progress").symlink_to("/dev/zero")
    (folder / "r4.progress").mkdir()
    os.mkfifo(folder / "r3.progress")
    await stage.up()
    assert (await stage.tick()).progress == ()


async def test_read_that_blocks_blinds_its_rank_alone_until_it_comes_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start("signal.pause()", rank=0)
    stage.start("signal.pause()", rank=1)
    await stage.up(0)
    await stage.up(1)
    assert all(rank.process for rank in (await stage.tick()).ranks)
    blocked, release = stage.ranks[0].pid, threading.Event()
    member = stage.sampler._workers[next(iter(stage.sampler._workers))]._trees[0].members[blocked]
    handle = member._handles["io"]
    real = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if descriptor == handle:
            release.wait(30)
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    stage.sampler._deadline_s = 0.5
    try:
        for _ in range(2):
            sample = await stage.tick()
            assert [rank.process is not None for rank in sample.ranks] == [False, True]
            assert sample.ranks[0].exit_code is None
    finally:
        release.set()
    monkeypatch.undo()
    stage.sampler._deadline_s = 5.0
    await stage.sampled(lambda s: s.ranks[0].process is not None, "the rank again")


async def test_everything_stuck_is_no_sample_and_no_wait(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.start("signal.pause()")
    await stage.up()
    await stage.tick()
    release = threading.Event()

    def read(*_: Any) -> Any:
        release.wait(30)

    monkeypatch.setattr(
        WorkerSampling, "_read_progress", lambda self, turn, now: turn.call(self._progress, read) or ()
    )
    stage.sampler._deadline_s = 0.2
    try:
        began = time.monotonic()
        for _ in range(3):
            await stage.sampler.tick()
        assert time.monotonic() - began < 20
        assert len(stage.samples) == 1
    finally:
        release.set()


def test_unset_fields_of_progress_have_honest_defaults() -> None:
    assert RankProgress(3) == RankProgress(3, 0, None, 0.0, None)


async def test_a_last_look_reads_what_came_since_the_last_tick_and_no_process(stage: Stage) -> None:
    stage.start("signal.pause()")
    await stage.up()
    await stage.tick()
    with stage.output().open("ab") as out:
        out.write(b"step 1\nstep 2")
    stage.ended[0] = 1
    (watched,) = stage.watched()
    await stage.sampler.last_look(watched)
    last = stage.samples[-1]
    assert [line.text for line in last.lines] == ["step 1", "step 2"], "an end ends its line too"
    assert last.ranks == ()
    assert [rank.exit_code for rank in (await stage.tick()).ranks] == [1]
    assert stage.samples[-1].lines == ()


async def test_a_rank_that_ends_before_the_first_tick_is_looked_at_all_the_same(stage: Stage) -> None:
    code = "from holdfast.training.progress_calls import progress; progress(7)"
    stage.start(code)
    stage.ranks[0].wait()
    stage.ended[0] = 1
    (watched,) = stage.watched()
    await stage.sampler.last_look(watched)
    (last,) = stage.samples
    assert [line.text for line in last.lines] == ["up"]
    assert [(said.rank, said.step) for said in last.progress] == [(0, 7)]


async def test_a_last_look_waits_for_no_file_that_blocks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = threading.Event()
    monkeypatch.setattr(sampler, "LAST_LOOK_S", 0.05)
    monkeypatch.setattr(WorkerSampling, "read_words", lambda self, turn: turn.call(self._names, blocked.wait))
    stage.start("signal.pause()")
    (watched,) = stage.watched()
    try:
        await stage.sampler.last_look(watched)
        assert stage.samples == []
    finally:
        blocked.set()
    assert (await stage.tick()).generation == 1


async def test_a_last_look_during_a_tick_comes_behind_the_ticks_own_sample(stage: Stage) -> None:
    """What the tick has read is passed on a worker at a time, and others have a turn between."""
    pid = stage.start("signal.pause()")
    await stage.up()
    keys = [WorkerId("job-1", f"workerpool1-{number}") for number in range(16)]
    watched = [Watched(key, 1, os.getpid(), {0: pid}, {}, ()) for key in keys]
    samples: list[WorkerSample] = []
    for key in keys:
        make_directories(stage.facts, key, 1)

    async with anyio.create_task_group() as tasks:

        def on_sample(sample: WorkerSample) -> None:
            samples.append(sample)
            if len(samples) == 1:
                for one in watched:
                    with open(log_paths(stage.facts, one.key, 1, 0)[0], "ab") as out:
                        out.write(b"newer\n")
                    tasks.start_soon(made.last_look, one)
            time.sleep(0.02)  # as a flood of lines holds the loop, while last looks read in a thread

        made = Sampler(stage.facts, SimulatedSource("h", 0), lambda: watched, on_sample)
        await made.tick()
    made.close()
    for key in keys:
        its = [sample for sample in samples if sample.worker == key.worker]
        assert [[line.text for line in sample.lines] for sample in its] == [[], ["newer"]]


async def test_a_sample_that_can_not_be_taken_in_is_said_once_and_the_agent_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.start("import time; time.sleep(60)")
    await stage.up()
    taken: list[int] = []

    def fails(_: object) -> None:
        taken.append(1)
        raise ValueError("a line that no reader expects")

    monkeypatch.setattr(stage.sampler, "_on_sample", fails)
    for _ in range(3):
        await stage.sampler.tick()
    assert len(taken) == 3
    assert [record.message for record in caplog.records].count("sample.failed") == 1
