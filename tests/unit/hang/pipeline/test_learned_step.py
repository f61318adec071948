"""A step count learned from the lines of a program that reports none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

from holdfast.hang.pipeline.features import OutputFeatures
from holdfast.hang.pipeline.learned_step import SHAPES_MOST, LearnedStep
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.worker_watch import WorkerWatch
from holdfast.training.rank_progress import RankProgress


def learned(lines: Iterable[str], every_s: float = 5.0) -> float | None:
    watch = LearnedStep()
    for number, line in enumerate(lines):
        watch.take(0, line, number * every_s)
    return watch.step


@pytest.mark.parametrize(
    "line",
    [
        lambda n: f"step {10 * n} | loss {2.5 - n / 50:.4f} | lr 1.00e-04 | 812.5 ms",
        lambda n: (
            f"{{'loss': {2.5 - n / 50:.4f}, 'grad_norm': 0.71, 'epoch': {n / 90:.2f}, 'global_step': {10 * n}}}"
        ),
        lambda n: (
            f"2026-11-23 03:{n:02}:11 INFO rank=0 port=29500 iter: {10 * n} samples: {2560 * n} loss: 2.{n:03}"
        ),
        lambda n: (
            f" iteration  {10 * n} | consumed samples: {10240 * n} | learning rate: 6.0E-05 | loss scale: 1.0"
        ),
        lambda n: f"{10 * n} loss={2.5 - n / 50:.4f} acc={0.1 + n / 70:.3f}",
        lambda n: f"Training epoch 0, iteration {10 * n}/99999 | lr: 1.2e-05 | global_step: {10 * n} | loss: 5.1",
        lambda n: f"step:{10 * n} - actor/entropy:0.3 - training/global_step:{10 * n}.000 - training/epoch:0.000",
        lambda n: (
            f"| epoch 001:  {10 * n} / 1200 loss=8.{n}, ppl=300, wps=3000, ups=1.2, wpb=3000, bsz=100,"
            f" num_updates={10 * n}, lr=0.0001"
        ),
        lambda n: f"[Step {10 * n}] micro_step {40 * n} loss 2.5",
    ],
    ids=["plain", "transformers", "several", "megatron", "no-word", "nemo", "verl", "fairseq", "micro"],
)
def test_a_number_that_rises_evenly_in_lines_of_a_training_is_its_step(line: Callable[[int], str]) -> None:
    assert learned(line(n) for n in range(1, 20)) == 190.0


def test_the_first_of_its_lines_is_kept_with_its_time_and_over_a_restart_of_the_agent() -> None:
    watch = WorkerWatch("h1", 1)
    for number in range(30):
        watch.take(
            WorkerSample("job", "w", 1, 3.0 + number, lines=(LogLine(0, "out", f"step {10 + number} loss 2.5"),))
        )
    for known in (watch, WorkerWatch("h1", 1)):
        known.restore(json.loads(json.dumps(watch.journal())))
        vector = known.take(WorkerSample("job", "w", 1, 40.0))
        assert (vector.output.bar_step, vector.output.first_step, vector.output.first_step_s) == (39.0, 10.0, 3.0)


@pytest.mark.parametrize(
    "line",
    [
        lambda n: f"epoch {n} loss {2.5 - n / 50:.4f}",
        lambda n: f"served {n} requests",
        lambda n: f"heartbeat {n}, loss is fine",
        lambda n: f"attempt {n}: step is not reached",
        lambda n: f"loss {n * n}",
        lambda n: f"step {n % 4} loss 2.5",
        lambda n: f"steps left: {900 - n}",
        lambda n: f"loading batch {n}",
        lambda n: f"val step {n} loss 0.3",
        lambda n: f"loss 2.5 at 2026-11-{n:02}",
        lambda n: "step 5 port 29500 loss 2.5",
        lambda n: f"step {7 * n + n % 3} loss 2.5",
        lambda n: f"batch loss of {n} and of {2 * n}",
        lambda n: f"step {'9' * (n * 4)} loss 1",
        lambda n: f"{n}%|#         | {n / 10:.2f}k/10.0k [00:10<01:40, 95.1it/s]",
        lambda n: f"Epoch 3 | batch {10 * n}/500 | loss 2.5",
        lambda n: f"Epoch 3, batch {10 * n} out of 500, loss 2.5",
    ],
)
def test_other_numbers_are_no_steps(line: Callable[[int], str]) -> None:
    assert learned(line(n) for n in range(1, 20)) is None


def test_too_few_lines_or_all_at_once_teach_nothing() -> None:
    lines = [f"step {n} loss 2.5" for n in range(1, 40)]
    assert learned(lines[:5]) is None
    assert learned(lines, every_s=0.1) is None
    assert learned(lines) == 39.0


def test_a_step_that_falls_is_unknown_from_then_on() -> None:
    assert learned(f"step {n} loss 2.5" for n in (*range(1, 20), *range(3, 20))) is None


def test_ever_new_shapes_take_no_more_memory() -> None:
    watch = LearnedStep()
    for number in range(500):
        watch.take(0, f"loss {'x' * number} {number}", float(number))
        assert len(watch.shapes) <= SHAPES_MOST
    for number in range(500):
        watch.take(0, f"step {number} loss 2.5", 500.0 + number)
    assert watch.step == 499.0
    for number in range(500):
        watch.take(0, f"loss {'x' * number} {number}", 1_000.0 + number)
        assert len(watch.shapes) <= SHAPES_MOST


def test_thousands_that_are_set_apart_change_no_line() -> None:
    assert learned(f"Step {90 * n:,} | {30_000 * n:,} tokens | loss 2.5" for n in range(1, 40)) == 3510.0
    assert learned(f"step {n} | {300 * n:,} tokens | loss 2.5" for n in range(1, 40)) == 39.0


def test_a_step_goes_on_in_lines_that_come_to_look_otherwise() -> None:
    left = ("1 day, 3:12:11", "23:59:59")
    assert learned(f"eta: {left[n >= 20]}  iter: {20 * n}  total_loss: 1.{n}" for n in range(1, 40)) == 780.0
    assert learned(f"step {n} loss {'nan' if n >= 20 else 2.5}" for n in range(1, 40)) == 39.0


@pytest.mark.parametrize(
    "other",
    [
        lambda n: f"batch {n} loss 2.5",
        lambda n: f"batch {100 + 10 * n} loss 2.5",
        lambda n: f"step {n % 4} of the check, loss 2.5",
    ],
)
def test_another_count_does_not_go_on_from_a_step(other: Callable[[int], str]) -> None:
    lines = [f"step {n} loss 2.5" for n in range(1, 20)]
    assert learned([*lines, *(other(n) for n in range(1, 20))]) == 19.0
    assert learned([*lines, *(other(n) for n in range(1, 20)), "step 20 loss 2.5"]) == 20.0


def test_colours_of_a_line_hide_no_step() -> None:
    watch = WorkerWatch("host-0", 1)
    for number in range(1, 10):
        line = f"\x1b[31mstep: {number:2d}  \x1b[32mloss:  7.{number:04d}\x1b[39m"
        output = watch.take(WorkerSample("job", "w", 1, 5.0 * number, lines=(LogLine(0, "out", line),))).output
    assert (output.bar_step, output.began_work) == (9.0, True)


def test_a_step_that_was_learned_does_not_stand_still_beside_a_count() -> None:
    watch, shown = WorkerWatch("host-0", 1), []
    for number in range(40):
        text = f"Epoch {number // 20}/9 | batch {number % 20} | loss 2.5"
        output = watch.take(WorkerSample("job", "w", 1, 5.0 * number, lines=(LogLine(0, "out", text),))).output
        shown.append((output.bar_step, output.step_total))
    assert shown[19] == (19.0, None)
    assert shown[39] == (1.0, 9.0)


def told(watch: WorkerWatch, number: int, *said: RankProgress) -> OutputFeatures:
    line = LogLine(0, "out", f"step {number} loss {1 / number:.4f}")
    return watch.take(WorkerSample("job", "w", 1, 5.0 * number, lines=(line,), progress=said)).output


def test_a_learned_step_is_shown_and_is_none_to_judge_by() -> None:
    watch = WorkerWatch("host-0", 1)
    for number in range(1, 10):
        output = told(watch, number)
    assert (output.bar_step, output.step, output.step_total) == (9.0, None, None)
    reported = told(watch, 10, RankProgress(0, 1, 4, total=8))
    assert (reported.bar_step, reported.step, reported.step_total) == (None, 4.0, 8.0)


def test_what_was_learned_and_counted_survives_a_restart_of_the_agent() -> None:
    watch, after = WorkerWatch("host-0", 1), WorkerWatch("host-0", 1)
    for number in range(1, 10):
        told(watch, number)
    after.restore(json.loads(json.dumps(watch.journal())))
    assert told(after, 10).bar_step == 10.0

    counting, restarted = WorkerWatch("host-0", 1), WorkerWatch("host-0", 1)
    counting.take(WorkerSample("job", "w", 1, 5.0, lines=(LogLine(0, "out", "Epoch 2/3, step 7/9"),)))
    restarted.restore(json.loads(json.dumps(counting.journal())))
    output = restarted.take(WorkerSample("job", "w", 1, 9.0, lines=(LogLine(0, "out", "step 8/9"),))).output
    assert (output.bar_step, output.step_total) == (2.0, 3.0)


def test_no_step_is_learned_beside_a_pattern_of_the_job() -> None:
    watch = WorkerWatch("host-0", 1, r"nothing (\d+)")
    assert [told(watch, number).bar_step for number in range(1, 10)] == [None] * 9


def test_numbers_that_can_be_no_steps_are_not_learned() -> None:
    assert learned(f"step {n}e300 loss 0.{n}" for n in range(1, 40)) is None
