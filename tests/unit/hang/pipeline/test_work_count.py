"""When a program's lines say that it has begun its work, and what a start prints that says no such thing."""

from __future__ import annotations

import json

import pytest

from holdfast.hang.pipeline.log_progress import WorkCount
from holdfast.hang.pipeline.samples import GpuSample, RankSample
from holdfast.hang.records.recording import LogLine, SavedFiles, WorkerSample
from holdfast.hang.worker_watch import GPU_READINGS, WorkerWatch
from holdfast.training.rank_progress import RankProgress


def begins(lines: list[str], *, apart_s: float = 0.0) -> bool:
    """Whether a program that prints these has begun its work after the last of them."""
    count = WorkCount()
    for number, line in enumerate(lines):
        count.take(0, line, number * apart_s)
    return count.began


NCCL = [f"host:4711:4711 [0] NCCL INFO Channel {channel:02}/16 :    0   1   2   3" for channel in range(16)]
JAX = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "E0000 00:00:1732314721.123456   12345 cuda_dnn.cc:8310] Unable to register cuDNN factory",
    "E0000 00:00:1732314721.223456   12345 cuda_blas.cc:1418] Unable to register cuBLAS factory",
    "W1123 00:12:01.123456   12345 gpu_device.cc:2344] Cannot dlopen some GPU libraries",
    "/venv/lib/python3.11/site-packages/jax/_src/xla_bridge.py:87: UserWarning: fork in process 12345",
]


@pytest.mark.parametrize(
    "lines",
    [
        JAX,
        NCCL,
        ["rank 0 is ready", "rank 1 is ready", "rank 2 is ready"],
        ["DataLoader worker (pid 4711) started", "DataLoader worker (pid 4712) started"],
        ["using 3 of 8 GPUs", "using 4 of 8 GPUs", "using 5 of 8 GPUs", "using 6 of 8 GPUs"],
        [f"Loading checkpoint shards:  {n * 12}%|{'█' * n}| {n}/8 [00:0{n}<00:08,  1.00s/it]" for n in range(9)],
        [f"Map:  {n * 10}%|{'#' * n}| {n * 100}/1000 [00:0{n}<00:10, 980.1 examples/s]" for n in range(9)],
        ["loading step 100 of run a", "loading step 200 of run b"],
        ["[rank 0] loading step 100 of run a", "[rank 0] loading step 200 of run b"],
        [f"rank 0: Loading shards:  {n * 12}%|{'█' * n}| {n}/8 [00:0{n}<00:08,  1.00s/it]" for n in range(9)],
        ["step 0: 1000 bytes allocated", "step 0: 2000 bytes allocated", "step 0: 3.5 GiB allocated"],
        ["step 0"],
        ["epochs = 3", "batch size = 32", "max steps = 500", "0:12 started", "0:13 started"],
    ],
)
def test_what_a_start_prints_is_no_work(lines: list[str]) -> None:
    assert not begins(lines, apart_s=2.0)


@pytest.mark.parametrize(
    "lines",
    [
        ["step 1 loss 2.50", "step 2 loss 2.41"],
        ["Step: 100/5000, loss: 2.5", "Step: 200/5000, loss: 2.6"],
        ["{'loss': 2.3, 'epoch': 0.01}", "{'loss': 2.2, 'epoch': 0.02}"],
        ["Train Epoch: 1 [0/60000 (0%)] Loss: 2.3", "Train Epoch: 1 [640/60000 (1%)] Loss: 2.4"],
        [" iteration   10/  500 | lm loss: 9.1", " iteration   20/  500 | lm loss: 8.1"],
        ["global_step=5 reward 3", "global_step=6 reward 3"],
        ["Epoch 1/3", "Epoch 2/3"],
        ["rank 1 step=1 loss=2.5", "rank 1 step=2 loss=2.4"],
        ["[rank0] step 10 loss 2.5", "[rank0] step 20 loss 2.4"],
        ["Rank 3 | Epoch 1 | loss 0.5", "Rank 3 | Epoch 2 | loss 0.4"],
        ["[Process 0/8] iter 1", "[Process 0/8] iter 2"],
        ["(pid=4711) local_rank=1, batch 5", "(pid=4711) local_rank=1, batch 6"],
        ["rank 1:  1%|▏   | 5/500 [00:05<08:00,  1.02it/s]", "rank 1:  1%|▏   | 6/500 [00:06<08:00,  1.02it/s]"],
        ["iter 0: loss 4.2, time 31.2ms", "iter 10: loss 4.0, time 30.1ms"],
        ["  1%|▏         | 5/500 [00:05<08:00,  1.02it/s]", "  1%|▏         | 6/500 [00:06<08:00,  1.02it/s]"],
        ["Epoch 0:  12%|█▏ | 5/40 [00:01<00:07, 4.81it/s]", "Epoch 0:  15%|█▌ | 6/40 [00:01<00:07, 4.81it/s]"],
    ],
)
def test_a_count_of_training_is_work_once_it_grows(lines: list[str]) -> None:
    assert begins(lines)
    assert not begins([lines[0], lines[0]])


def test_another_number_is_work_once_it_has_grown_for_a_minute() -> None:
    lines = [f"seen {1000 * n} of them" for n in range(1, 8)]
    assert not begins(lines, apart_s=5.0)
    assert begins(lines, apart_s=11.0)
    assert not begins([f"pid {4711 + n} forked" for n in range(8)], apart_s=60.0)
    wanders = [f"{40 + n % 3} degrees" for n in range(30)]
    assert not begins(wanders, apart_s=30.0), "a gauge"


@pytest.mark.parametrize(
    "line",
    [
        "model-00001-of-00030.safetensors:   3%|3         | {}M/4.95G [00:20<10:00, 8.12MB/s]",
        "model-00001-of-00030.safetensors:   3%|3         | {}000000/4950000000 [00:20<10:00, 8123123.45B/s]",
        "pytorch_model.bin:   3%|3         | {}M/4.95G [1:00:20<10:00, 812kB/s]",
        "100%|##########| {}/4950 [00:20<10:00, 8.12MiB/s]",
        "   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ {}.0/495.0 MB 8.2 MB/s eta 0:00:10",
    ],
)
def test_bytes_that_are_fetched_are_no_work_however_long_it_takes(line: str) -> None:
    assert not begins([line.format(20 * n) for n in range(1, 30)], apart_s=10.0)


def test_a_rate_of_bytes_beside_a_step_takes_nothing_from_it() -> None:
    assert begins(["step 1 busbw 12.5GB/s", "step 2 busbw 12.4GB/s"])


def test_ranks_that_print_different_numbers_are_no_count() -> None:
    count = WorkCount()
    for rank in range(8):
        count.take(rank, f"step {rank} of the set-up", 0.0)
    assert not count.began


# The worker's watch


def sample(
    at_s: float, *lines: str, said: RankProgress | None = None, events_s: float | None = None
) -> WorkerSample:
    return WorkerSample(
        "job",
        "workerpool0-0",
        1,
        at_s,
        lines=tuple(LogLine(0, "out", line) for line in lines),
        progress=(said,) if said else (),
        files=SavedFiles(events_grew_s=events_s),
    )


def began(watch: WorkerWatch, *samples: WorkerSample) -> bool | None:
    return [watch.take(one) for one in samples][-1].output.began_work


@pytest.mark.parametrize(
    ("said", "works"),
    [
        (RankProgress(0, reports=1, step=0), False),
        (RankProgress(0, reports=1, step=1), True),
        (RankProgress(0, reports=1), True),
        (RankProgress(0, idle_reason="waits for data"), False),
        (RankProgress(0, resumed=500, resumes=1), False),
        (RankProgress(0, resumed=500, resumes=1, saved=500), False),
        (RankProgress(0, saved=500), True),
        (RankProgress(0, saves=True), True),
        (RankProgress(0, evaluates=True), True),
    ],
)
def test_what_a_program_reports_is_work_beyond_its_start(said: RankProgress, works: bool) -> None:
    assert began(WorkerWatch("host-0", 1), sample(10.0, said=said)) is works


def test_a_step_by_the_jobs_own_pattern_is_work_from_the_first() -> None:
    watch = WorkerWatch("host-0", 1, step_pattern=r"at (\d+)")
    assert not began(watch, sample(10.0, "at 0"))
    assert began(watch, sample(12.0, "at 1"))


def test_event_files_that_grow_for_a_minute_are_work() -> None:
    watch = WorkerWatch("host-0", 1)
    assert not began(watch, sample(10.0, events_s=9.0), sample(20.0, events_s=19.0))
    assert began(watch, sample(72.0, events_s=70.0))


def test_gpus_that_work_for_a_minute_are_work() -> None:
    watch = WorkerWatch("host-0", 1)
    seen = []
    for number in range(GPU_READINGS + 3):
        at_s = 5.0 * number
        gpu = GpuSample(at_s, util_pct=60.0, memory_util_pct=40.0)
        vector = watch.take(WorkerSample("job", "workerpool0-0", 1, at_s, (RankSample(at_s, 0, gpu=gpu),)))
        seen.append(vector.output.began_work)
    assert (seen[2], seen[-1]) == (False, True)


def test_work_that_was_seen_survives_a_restart_of_the_agent() -> None:
    before = WorkerWatch("host-0", 1)
    assert began(before, sample(10.0, "step 1", "step 2"))
    after = WorkerWatch("host-0", 1)
    after.restore(json.loads(json.dumps(before.journal())))
    assert began(after, sample(12.0))
