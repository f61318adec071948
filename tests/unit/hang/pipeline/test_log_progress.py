"""Which log lines are progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.hang.pipeline.learned_step import LearnedStep
from holdfast.hang.pipeline.log_progress import MAX_SHAPES, LineReader, WorkCount, normalised
from holdfast.hang.pipeline.step_count import LineCounts


def progress(lines: list[str], pattern: str = "") -> list[bool]:
    reader = LineReader(pattern)
    return [reader.is_progress(line) for line in lines]


def test_a_new_shape_is_progress_once() -> None:
    assert progress(["loading data", "loading data", "building model"]) == [True, False, True]


def test_a_growing_step_count_is_progress() -> None:
    assert progress(["step 1 loss 2.50", "step 2 loss 2.41", "step 3 loss 2.45"]) == [True, True, True]


def test_the_same_numbers_again_are_not_progress() -> None:
    assert progress(["queue 4 of 8", "queue 4 of 8"]) == [True, False]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("PULSE 2026-11-21 03:00:00", "PULSE 2026-11-21 04:00:00"),
        ("[03:00:01] still alive", "[04:00:01] still alive"),
        ("watchdog ok at 1763700000.12", "watchdog ok at 1763703600.12"),
        ("heartbeat, uptime 3600", "heartbeat, uptime 7200"),
        ("waited 30 s for peers", "waited 60 s for peers"),
        ("connection refused, retry #1", "connection refused, retry #2"),
        ("reconnecting (attempt 3/10)", "reconnecting (attempt 4/10)"),
        ("PULSE 17", "PULSE 18"),
        ("heartbeat: 5", "heartbeat: 6"),
        ("waiting after 1200 seconds", "waiting after 1800 seconds"),
        ("I1121 03:00:00.123456 watchdog.cc: tick", "I1122 04:10:00.123456 watchdog.cc: tick"),
        ("session 7f9c2ba4-e88f-4d3a-9f3b-1a2b3c4d5e6f", "session 8f9c2ba4-e88f-4d3a-9f3b-1a2b3c4d5e6f"),
        ("ptr 0x7f001234", "ptr 0x7f991234"),
        ("at commit 3f2a9bc1d", "at commit 9e2a9bc1f"),
        ("20261129-095823 still waiting", "20261129-101813 still waiting"),
        ("20261129T095823Z still waiting", "20261129T101813Z still waiting"),
        ("20261129095823.125 still waiting", "20261129101813.250 still waiting"),
        ("09.58.23 still waiting", "10.18.33 still waiting"),
        ('{"event": "alive", "elapsed_s": 10}', '{"event": "alive", "elapsed_s": 20}'),
        ("uptime_s: 10", "uptime_s: 20"),
        ("time_elapsed 10", "time_elapsed 20"),
        ("all_reduce ran for 601000 milliseconds", "all_reduce ran for 602000 milliseconds"),
        ("blocked: 1000 msec", "blocked: 2000 msec"),
        ("450/1000 [==>..] 1020us/step", "450/1000 [==>..] 1040us/step"),
        ("eta 1.00 hrs", "eta 1.25 hrs"),
        ("still waiting 0h01m10s", "still waiting 1h02m20s"),
        ("blocked for 1h 2m 3s", "blocked for 2h 3m 4s"),
        ("blocked for 1m03s", "blocked for 2m04s"),
        ("no answer yet, polled 3 times", "no answer yet, polled 4 times"),
        ("not connected after 3 attempts", "not connected after 4 attempts"),
        ("4th attempt failed", "5th attempt failed"),
        ("time since last step: 30 s", "time since last step: 60 s"),
        ("still waiting after step 451 for 30s", "still waiting after step 451 for 60s"),
    ],
)
def test_clocks_and_identifiers_are_no_progress(first: str, second: str) -> None:
    assert progress([first, second]) == [True, False]


@pytest.mark.parametrize(
    "line",
    [
        "Loss after epoch {}: 0.25",
        "Cost after iteration {}: 0.25",
        "Loss after mini-batch {}: 0.25",
        "After {} steps: loss=0.25",
        "Error after {} iterations 0.25",
        "after {} images: 0.25",
        "Generation {} min 0.532 max 3.9",
        "Step {}  Min reward 0.257",
        "step {} min_loss 0.257",
        "iter {} H 0.722 KL 0.9",
        "{} s=0.25",
        "E{:04d} loss 0.25",
    ],
)
def test_a_count_of_work_is_no_clock_whatever_stands_beside_it(line: str) -> None:
    assert all(progress([line.format(10 * step) for step in range(1, 9)]))


@pytest.mark.parametrize(
    "line", ["step {}", "[rank {who}] step {}", "Worker-{who}: episode {}", "(Actor pid={who}) iter {}"]
)
def test_those_who_count_on_their_own_are_each_seen_to_go_on(line: str) -> None:
    """Their numbers fall as often as they rise, together."""
    reader = LineReader()
    told = [
        reader.is_progress(line.format(start + step, who=who), who)
        for step in range(20)
        for who, start in enumerate((500, 300, 10))
    ]
    assert all(told[6:])
    assert not any(reader.is_progress(line.format(start + 19, who=who), who) for who, start in ((0, 500), (1, 300)))


def test_memory_of_those_who_print_is_bounded() -> None:
    reader = LineReader()
    pids = [pid for each in range(1, 2 * MAX_SHAPES) for pid in (each + 4 * MAX_SHAPES, 4 * MAX_SHAPES - each)]
    assert not any([reader.is_progress(f"pid {pid} of step 7", pid) for pid in pids][5:])
    assert len(reader._of_each) == MAX_SHAPES


def test_a_reading_that_wanders_stops_being_progress() -> None:
    lines = [f"gpu temperature {t}" for t in (61, 63, 62, 63, 61, 62, 60, 63)]
    assert progress(lines) == [True, True, False, False, False, False, False, False]


def test_a_gauge_that_climbs_again_is_no_progress() -> None:
    used = (40, 42, 41, 43, 40, 42, 41, 44, 43, 45, 41, 46, 44, 47)
    assert not any(progress([f"memory in use {n} MiB" for n in used])[5:])


def test_a_count_that_starts_over_every_four_lines_is_no_gauge() -> None:
    lines = [f"batch {n}" for n in (1, 2, 3, 4) * 5]
    assert all(any(progress(lines)[start : start + 4]) for start in range(0, 20, 4))


def test_a_step_count_that_starts_over_is_progress_again_after_a_few_lines() -> None:
    lines = [f"batch {n}" for n in (*range(1, 9), *range(1, 9))]
    assert progress(lines)[8:] == [False, False, False, True, True, True, True, True]


def test_blank_lines_are_no_progress() -> None:
    assert progress(["", "   "]) == [False, False]


def test_memory_is_bounded() -> None:
    reader = LineReader()
    words = [f"word{'x' * (n % 50)}{'y' * (n // 50)}" for n in range(2 * MAX_SHAPES)]
    assert sum(reader.is_progress(word) for word in words) == MAX_SHAPES


def test_with_a_step_pattern_only_the_step_counts() -> None:
    lines = ["new shape", "it=10 t=1.0", "it=10 t=2.0", "it=20 t=2.0", "it=5 t=9.0"]
    assert progress(lines, r"it=(\d+)") == [False, True, False, True, True]


def test_ranks_that_repeat_the_steps_they_are_at_make_no_progress() -> None:
    """Such as a watchdog's lines in each rank: where a gang hangs, its ranks are a step apart."""
    reader = LineReader(r"step=(\d+)")
    told = [reader.is_progress(f"no progress, last step={451 - rank}", rank) for _ in range(3) for rank in (0, 1)]
    assert told == [True, True, False, False, False, False]
    assert reader.is_progress("step=451", 1)


def test_a_step_pattern_without_a_group_takes_the_number_it_matches() -> None:
    reader = LineReader(r"Step \d+")
    assert reader.is_progress("Step 7 of 9")
    assert reader.step == 7.0


def test_a_pattern_that_finds_no_number_is_no_progress() -> None:
    assert progress(["epoch done"], r"epoch (\w+)") == [False]


def test_normalising_keeps_what_is_no_clock() -> None:
    assert normalised("[2026-01-01 10:00:11] step 40 loss 1.25") == ("[<t>] step # loss #", (40.0, 1.25))


@pytest.mark.parametrize("number", ["1e300", "9007199254740994", "1e999"])
def test_a_number_that_is_no_step_is_progress_without_one(number: str) -> None:
    """Such as a clock in nanoseconds: the job is no less alive for it."""
    reader = LineReader(r"step=(\S+)/(\S+)")
    assert [reader.is_progress(line) for line in ("step=1/9", f"step={number}/{number}")] == [True, True]
    assert (reader.step, reader.total, reader.steps_read) == (None, None, 2)
    assert not reader.is_progress(f"step={number}/{number}")
    assert reader.is_progress("step=2/9")
    assert (reader.step, reader.total) == (2.0, 9.0)


PIECES = ("#", "7", " ", "a", "step ", "bar ", ": 3/40 [00:01", "%|")


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), max_size=12))
def test_no_lines_of_any_kind_make_an_error(lines: list[str]) -> None:
    reader, work, counts, learned = LineReader(), WorkCount(), LineCounts(), LearnedStep()
    for at, line in enumerate(("bar step 1", *lines, *(f"step {line}" for line in lines))):
        reader.is_progress(line)
        work.take(0, line, float(at))
        counts.take(0, line)
        learned.take(0, line, float(at))


@pytest.mark.parametrize("label", ["", "train: ", "step #3: "])
def test_a_bar_that_is_drawn_in_number_signs_is_progress_at_each_step(label: str) -> None:
    reader, work = LineReader(), WorkCount()
    moved = []
    for done in range(1, 41):
        eighths = done * 80 // 40
        bar = "#" * (eighths // 8) + (str(eighths % 8) if eighths % 8 else "")
        line = f"{label}{done * 100 // 40:3d}%|{bar:<10}| {done}/40 [00:{done:02d}<00:{40 - done:02d},  1.00it/s]"
        moved.append(reader.is_progress(line))
        work.take(0, line, float(done))
    assert all(moved)
    assert work.began


@pytest.mark.parametrize(
    ("before", "after"),
    [("issue #", "issue 4"), ("rank # 0 step 5", "rank 1 0 step 5"), ("bar a 1 b:", "bar a # b:")],
)
def test_a_number_sign_of_the_line_is_no_number(before: str, after: str) -> None:
    assert normalised(before)[0] != normalised(after)[0]


@pytest.mark.parametrize(
    "line",
    ["loss {0:.5f}", "{1} batches to go", "remaining={1}", "perplexity {0:.4f} lr 0.001", "epoch 1 error {0:.4f}"],
)
def test_a_number_that_falls_all_the_time_is_progress(line: str) -> None:
    assert all(progress([line.format(2 / (1 + step), 500 - step) for step in range(40)]))


def test_a_countdown_that_starts_over_is_progress_again_after_a_few_lines() -> None:
    lines = [f"{left} left" for left in (*range(8, 0, -1), *range(8, 0, -1))]
    assert progress(lines)[8:] == [False, False, False, True, True, True, True, True]


@pytest.mark.parametrize("line", ["wall {:.1f}", "t={:.3f}", "cpu_time={:.2f} queue 0"])
def test_a_number_with_a_point_that_grows_by_one_a_second_is_a_clock(line: str) -> None:
    reader = LineReader()
    told = [reader.is_progress(line.format(7 + 10.004 * turn), at_s=1000 + 10 * turn) for turn in range(60)]
    assert not any(told[4:])


@pytest.mark.parametrize(("line", "rate"), [("step {:.0f}", 1.0), ("epoch {:.3f}", 0.5), ("tokens {:.1f}", 3.0)])
def test_counts_that_grow_otherwise_are_no_clocks(line: str, rate: float) -> None:
    reader = LineReader()
    assert all(reader.is_progress(line.format(rate * 10 * turn), at_s=10.0 * turn) for turn in range(60))


def test_a_loss_that_wanders_is_progress_of_a_rank_at_work_unless_a_count_stands_still_beside_it() -> None:
    reader = LineReader()
    losses = [0.4 + 0.01 * (37 * step % 101) / 101 for step in range(60)]
    assert sum(reader.is_progress(f"loss {loss:.4f}", works=True) for loss in losses) > 54
    assert sum(reader.is_progress(f"loss {loss:.4f}") for loss in losses) == 0
    told = [reader.is_progress(f"step {step} loss {losses[step]:.4f}", works=True) for step in range(40)]
    assert all(told)
    assert not any([reader.is_progress(f"step 39 loss {loss:.4f}", works=True) for loss in losses][1:])
