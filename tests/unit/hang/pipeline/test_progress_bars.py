"""A count's total is shown where it is the job's, and left out where it is one epoch's."""

from __future__ import annotations

import pytest

from holdfast.hang.pipeline.step_count import COUNTS_MOST, LineCounts


def bar(done: int, total: int, label: str = "") -> str:
    return f"{label}{100 * done // total}%|###   | {done}/{total} [00:05<01:40,  9.48it/s]"


def shown(*lines: str) -> tuple[float, float] | None:
    bars = LineCounts()
    for line in lines:
        bars.take(0, line)
    found = bars.shown()
    return (found.done or 0.0, found.total or 0.0) if found is not None else None


def test_the_newest_state_of_a_bar_is_shown_until_after_its_end() -> None:
    assert shown(bar(1, 9), bar(5, 9)) == (5.0, 9.0)
    assert shown(bar(1, 9), bar(9, 9)) == (9.0, 9.0)


def test_the_bar_that_began_first_goes_before_an_inner_one() -> None:
    assert shown(bar(1, 10, "Run: "), bar(30, 100, "Eval: ")) == (1.0, 10.0)


@pytest.mark.parametrize("who", ["rank 1: ", "[rank0] Training: ", "Process 3 "])
def test_a_bar_that_says_whose_it_is_counts_as_one_that_does_not(who: str) -> None:
    assert shown(bar(1, 10, who), bar(5, 10, who)) == (5.0, 10.0)
    assert shown(bar(1, 10, f"{who}Loading ")) is None


def test_a_full_bar_goes_behind_one_that_moves() -> None:
    assert shown(bar(1, 90_000, "Map: "), bar(90_000, 90_000, "Map: "), bar(3, 500)) == (3.0, 500.0)


def test_a_bar_of_each_epoch_is_none_of_the_job() -> None:
    assert shown(bar(1, 100), bar(100, 100), bar(1, 100)) is None
    assert shown(bar(10, 100, "Epoch 0: ")) is None


@pytest.mark.parametrize(
    "line",
    [
        "45.2M/500M [00:10<01:40, 4.5MB/s]",
        "model.safetensors:   9%|9    | 45200000/500000000 [00:10<01:40, 4500000.00B/s]",
        "12it [00:05, 2.4it/s]",
        "loss 3/10 [x]",
        "date 3/10 [2026]",
        "11/10 [00:05<00:00]",
        "0/10 [00:00<?, ?it/s]",
        f"{'9' * 400}/{'9' * 400} [00:01<00:02]",
    ],
)
def test_a_line_that_tells_no_steps_of_a_whole_is_no_bar(line: str) -> None:
    assert shown(line) is None


def test_ranks_have_bars_of_their_own() -> None:
    bars = LineCounts()
    for rank, done in ((0, 5), (1, 4), (0, 6), (1, 5)):
        bars.take(rank, bar(done, 10))
    assert bars.shown() == (6.0, 10.0, False)


def test_ever_new_bars_take_no_more_memory() -> None:
    bars = LineCounts()
    for total in range(2, 500):
        bars.take(0, bar(1, total))
    assert len(bars.counts) == COUNTS_MOST


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("step 120/5000 loss 2.31", (120.0, 5000.0)),
        ("2026-11-23 03:04:05,120 INFO train.py:88 step: 120/5000, loss: 2.31", (120.0, 5000.0)),
        ("[rank0]: iteration      120/    5000 | elapsed time per iteration (ms): 812.3", (120.0, 5000.0)),
        ("Step 120 of 5000: loss=2.31", (120.0, 5000.0)),
        ("update 120 out of 5000", (120.0, 5000.0)),
        ("Step 1,120/5,000 | loss 2.31", (1120.0, 5000.0)),
        ("Step 1,120 of 1,000,000 | loss 2.31", (1120.0, 1_000_000.0)),
        ("Epoch 3/10", (3.0, 10.0)),
        ("Epoch [3/10] loss 0.2", (3.0, 10.0)),
        ("train loss: 2.301  [  120/ 5000]", (120.0, 5000.0)),
        ("rank 3 [120/5000] train loss 2.3", (120.0, 5000.0)),
        ("gpu 3: [120/5000] train loss 2.3", (120.0, 5000.0)),
        ("2026-11-23 03:04:05,120 [120/5000] train loss 2.3", (120.0, 5000.0)),
        ("[2026-11-23 03:04:05,120] INFO train.py:88 [120/5000] train", (120.0, 5000.0)),
        ("iter 120 [120/5000] loss 2.3", (120.0, 5000.0)),
        ("epoch 1/90 step 50/2502", (1.0, 90.0)),
        ("Train: [1/300][50/1251]  eta 0:10:01", (1.0, 300.0)),
        ("120/5000 ━━━━━━━━━━━━━━━━━━━━ 3s 2ms/step - loss: 0.4", (120.0, 5000.0)),
        ("120/5000 [======>.......] - ETA: 3s - loss: 0.4", (120.0, 5000.0)),
        ("Training ━━━━━╸━━━━━━ 120/5000 0:00:12", (120.0, 5000.0)),
        ("Training:   2%|2         | 120/5000 [00:05<03:20,  9.48it/s]", (120.0, 5000.0)),
        ("Epoch 2/3, step 120/5000", (2.0, 3.0)),
    ],
)
def test_counts_of_steps_and_epochs_are_read(line: str, count: tuple[float, float]) -> None:
    assert shown(line) == count


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([f"step={44 * epoch} epoch={epoch}/200 loss=0.14" for epoch in (20, 40)], (1760.0, 8800.0, True)),
        ([f"Epoch [{epoch}/10], global_step: {50 * epoch}" for epoch in (1, 2, 2, 3)], (150.0, 500.0, True)),
        (["step=880 epoch=20/200"], None),
        ([f"step={10 * n} epoch={1 + n // 5}/3" for n in range(1, 8)], (2.0, 3.0, False)),
        (
            [f"step={step} epoch={epoch}/3" for step, epoch in ((0, 0), (44, 1), (88, 2), (90, 2))],
            (2.0, 3.0, False),
        ),
        (["epoch=20/200", "epoch=40/200"], (40.0, 200.0, False)),
        (["epoch=20/200 loss=2", "epoch=40/200 step=7"], (40.0, 200.0, False)),
        (["step 120/5000"], (120.0, 5000.0, True)),
        ([bar(50, 1000)], (50.0, 1000.0, False)),
        ([bar(50, 1000, "Steps: ")], (50.0, 1000.0, True)),
    ],
)
def test_a_step_beside_an_epoch_goes_before_it_and_no_epoch_is_called_a_step(
    lines: list[str], found: tuple[float, float, bool] | None
) -> None:
    bars = LineCounts()
    for line in lines:
        bars.take(0, line)
    assert bars.shown() == found


@pytest.mark.parametrize(
    "line",
    [
        "Train Epoch: 3 [25600/60000 (43%)]\tLoss: 0.41",
        "Epoch 3, step 120/5000",
        "Epoch(train) [3][ 120/5000]  lr: 2.0e-02  loss: 1.2",
        "Train: 0 [  50/2502 (  2%)]  Loss: 6.93 (6.94)  Time: 0.412s, 2485.43/s",
        "Train 0: [ 50/2502] loss 6.93",
        "[train][0][50/2502] loss 6.93",
        "Fit (0) [50/2502]",
        "Train: [0/300][50/1251]  eta 0:10:01 lr 0.000001",
        "Epoch: [0]  [  50/1251]  eta: 0:10:01  lr: 0.1",
        "rank 3 | Train: 7 [  50/2502 (  2%)]",
        "Loading checkpoint shards:  50%|5    | 2/4 [00:01<00:01]",
        "Adding EOS to train dataset:  50%|5    | 4500/9000 [00:01<00:01, 3000.1 examples/s]",
        "Map (num_proc=4):  50%|5    | 4500/9000 [00:01<00:01]",
        "Evaluating:  50%|5    | 20/40 [00:01<00:01]",
        "val step 20/40",
        "loading batch 20/40",
        "[3/9] c++ -MMD -MF kernel.o",
        "listening on 10.0.0.1/24, step 1.5/9",
        "it is 23/11/2026",
        "step 23/11/2026",
        "step 3/1",
        "rank 3/8 is ready",
        "accuracy 40/50",
    ],
)
def test_other_counts_are_none_of_the_job(line: str) -> None:
    assert shown(line) is None


def test_a_count_that_starts_over_beside_one_of_epochs_leaves_that_of_the_epochs() -> None:
    epoch = [f"Epoch {{0}}/3, step {step}/50" for step in (10, 30, 50)]
    lines = [line.format(number) for number in (1, 2) for line in epoch]
    assert shown(*lines) == (2.0, 3.0)
    bare = [f"step {step}/50" for step in (10, 30, 50, 10, 30)]
    assert shown(*bare) is None


def test_an_outer_bar_goes_before_an_inner_one_from_its_first_state_on() -> None:
    assert shown(bar(0, 10), bar(37, 500), bar(400, 500)) is None
    assert shown(bar(0, 10), bar(37, 500), bar(500, 500), bar(1, 10)) == (1.0, 10.0)


def test_a_total_that_goes_on_changing_is_unknown() -> None:
    assert shown(*(f"step {step}/{step + 10}" for step in range(1, 20))) is None


def test_counts_that_are_over_make_space_for_the_training() -> None:
    files = [bar(100 + n, 100 + n, f"f{chr(97 + n % 26)}{chr(97 + n // 26)} ") for n in range(2 * COUNTS_MOST)]
    assert shown(*files, bar(3, 500)) == (3.0, 500.0)
