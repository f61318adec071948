"""Scoring a policy on recorded runs."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import pytest

from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.records.corpus import CorpusError, Run, parsed, read
from holdfast.hang.records.evaluate import Learned, rate_interval, score, share_interval
from holdfast.hang.thresholds import Tuning

SAMPLE = Path(__file__).parents[3] / "fixtures" / "mlperf-progress-sample.jsonl.gz"


class Fixed:
    shortest_s = 0.0

    def __init__(self, notice_s: float, act_s: float) -> None:
        self.notice_s, self.act_s = notice_s, act_s

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        return rate._replace(last_s=at_s)

    def notice_after_s(self, _rhythm: ProgressRate) -> float:
        return self.notice_s

    def act_after_s(self, _rhythm: ProgressRate) -> float:
        return self.act_s


def run(*gaps_s: float) -> Run:
    return Run("r", "s", "b", gaps_s)


def test_each_silence_gives_one_notice_and_the_first_kill_ends_the_run() -> None:
    found = score([run(50, 150, 120, 400, 900)], Fixed(100, 300), random.Random(0).random)
    assert (found.notices, found.kills, found.runs_with_notice, found.runs_with_kill) == (3, 1, 1, 1)
    assert found.hours == pytest.approx((50 + 150 + 120 + 300) / 3600)


def test_time_to_notice_counts_from_the_stop() -> None:
    # All stops at the middle of the one gap: 30 s of silence have passed.
    found = score([run(60)], Fixed(100, 300), lambda: 0.5)
    assert (found.notice_s.p50, found.kill_s.p99) == (70, 270)


def test_a_stop_in_a_silence_already_noticed_takes_no_time() -> None:
    assert score([run(200)], Fixed(50, 1000), lambda: 0.5).notice_s.p50 == 0


def test_stops_behind_a_false_kill_do_not_count() -> None:
    found = score([run(100, 100)], Fixed(10, 20), lambda: 0.9)
    assert math.isnan(found.notice_s.p50)
    assert found.record()["notice_s"] == {"p50": None, "p90": None, "p99": None}


def test_the_same_seed_gives_the_same_score() -> None:
    runs = list(read(SAMPLE))
    first, second = (score(runs, Learned(Tuning()), random.Random(7).random) for _ in range(2))
    assert first == second


def test_on_the_sample_ours_has_fewer_false_alarms_than_the_fixed_rules() -> None:
    runs = list(read(SAMPLE))
    ours = score(runs, Learned(Tuning()), random.Random(1).random)
    fixed = score(runs, Fixed(300, 1800), random.Random(1).random)
    assert ours.runs_with_notice < fixed.runs_with_notice / 3
    assert ours.kills <= fixed.kills
    assert ours.notice_s.p50 < 300


def test_the_record_has_what_the_interface_asks_for() -> None:
    record = score([run(10, 20)], Learned(Tuning()), random.Random(1).random).record()
    assert {"runs", "hours", "notices", "runs_with_notice", "kills", "runs_with_kill"} <= record.keys()
    assert record["kills_per_24h"].keys() == {"estimate", "low", "high"}
    assert record["notice_s"].keys() == record["kill_s"].keys() == {"p50", "p90", "p99"}
    json.dumps(record, allow_nan=False)


def test_no_runs_give_a_score_without_times() -> None:
    found = score([], Learned(Tuning()), random.Random(1).random)
    assert (found.runs, found.kills_per_24h.estimate) == (0, 0.0)


def test_wilson_bounds() -> None:
    found = share_interval(10, 100)
    assert found.low == pytest.approx(0.0552, abs=1e-4)
    assert found.high == pytest.approx(0.1744, abs=1e-4)
    assert share_interval(0, 10).low == 0.0
    assert rate_interval(0, 10.0).low == 0.0
    assert rate_interval(30, 10.0).low < 3.0 < rate_interval(30, 10.0).high


def test_absurd_gaps_are_dropped_with_their_time() -> None:
    lines = ['{"run":"a","gaps_ms":[1000, 64871507, 2000]}', "", '{"gaps_ms":[]}']
    assert [one.gaps_s for one in parsed(lines)] == [(1.0, 2.0), ()]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"run":"a"}', '{"gaps_ms":["x"]}', '{"gaps_ms":[-5]}', '{"gaps_ms":3}']
)
def test_a_line_that_is_no_run_is_named(line: str) -> None:
    with pytest.raises(CorpusError, match="line 2"):
        list(parsed(['{"gaps_ms":[1]}', line]))


def test_a_truncated_or_foreign_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"gaps_ms":[1,2,3]}\n' * 999)
    for name, content in {"cut.gz": whole[: len(whole) // 2], "plain.gz": b"not gzip"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorpusError, match=name):
            list(read(tmp_path / name))


def test_plain_json_lines_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"gaps_ms":[1000]}\n')
    assert [one.gaps_s for one in read(tmp_path / "c.jsonl")] == [(1.0,)]
