"""A recording tells the same story each time: noticed when, acted on when, over when."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.hang.pipeline.samples import ProcessSample, RankSample, State
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.records.recording import LogLine, WorkerSample, encode
from holdfast.hang.replay import Moment, Turn, replay
from holdfast.hang.thresholds import HangSettings


def recorded(
    worker: str,
    seconds: int,
    *,
    still: Iterable[range] = (),
    generation: int = 1,
    boot_s: float = 0.0,
    stored_bytes: int = 0,
) -> Iterator[WorkerSample]:
    """A worker of one rank that prints a step each 2 s, but neither moves nor prints within ``still``.

    It stores ``stored_bytes`` with each step, which is evidence of work.
    """
    cpu_s, switches, step = 0.0, 0, 0
    rank = int(worker[-1])
    for at in range(0, seconds, 2):
        moves = not any(at in each for each in still)
        if moves:
            cpu_s, switches, step = cpu_s + 0.4, switches + 20, step + 1
        wchan, stored = "" if moves else "futex_wait", step * stored_bytes
        process = ProcessSample(State.SLEEPING, cpu_s, switches, stored, wchan=wchan)
        wait = None if moves else Wait(WaitKind.PEER, "all_reduce")
        yield WorkerSample(
            "job-1",
            worker,
            generation,
            boot_s + at,
            ranks=(RankSample(boot_s + at, rank, process, wait=wait),),
            lines=(LogLine(rank, "out", f"step={step} loss=0.5"),) if moves else (),
        )


def turns(moments: Iterable[Moment]) -> list[Turn]:
    return [moment.turn for moment in moments]


def test_a_healthy_recording_has_a_beginning_and_an_end() -> None:
    assert turns(replay([recorded("w0", 1200)], HangSettings())) == [Turn.BEGAN, Turn.END]


def test_a_hang_is_noticed_then_confirmed() -> None:
    stop = 900
    moments = list(replay([recorded("w0", 2400, still=[range(stop, 2400)])], HangSettings()))
    assert turns(moments) == [Turn.BEGAN, Turn.SUSPECT, Turn.NOTICED, Turn.CONFIRMED, Turn.END]
    noticed, confirmed = moments[2], moments[3]
    assert stop + 20 < noticed.at_s < stop + 60
    assert noticed.at_s < confirmed.at_s < stop + 240
    assert noticed.rule == "GPUS_IDLE"
    assert "its only rank has not moved" in noticed.sentence


def test_a_silence_that_ends_is_over() -> None:
    moments = list(replay([recorded("w0", 1800, still=[range(900, 1300)])], HangSettings()))
    assert turns(moments)[-3:] == [Turn.CONFIRMED, Turn.OVER, Turn.END]
    assert 1298 <= moments[-2].at_s <= 1330


def test_settings_move_the_verdict() -> None:
    def noticed_s(settings: HangSettings) -> float:
        moments = replay([recorded("w0", 2400, still=[range(900, 2400)])], settings)
        return next(moment.at_s for moment in moments if moment.turn is Turn.NOTICED)

    assert noticed_s(HangSettings(floor_s=300.0)) > noticed_s(HangSettings()) + 200


@pytest.mark.parametrize(("timeout_s", "most_s"), [(5.0, 10), (20.0, 14), (None, 60)])
def test_a_short_timeout_counts_from_the_last_work_too(timeout_s: float | None, most_s: int) -> None:
    stop, settings = 900, HangSettings(timeout_s=timeout_s)
    works = recorded("w0", 1200, still=[range(stop, 1200)], stored_bytes=1_000_000)

    noticed = next(moment for moment in replay([works], settings) if moment.turn is Turn.NOTICED)

    assert stop + (timeout_s or 30) / 2 - 2 <= noticed.at_s <= stop + most_s


def test_workers_whose_clocks_differ_are_judged_together() -> None:
    one = recorded("w0", 2400, still=[range(900, 2400)], boot_s=50_000.0)
    other = recorded("w1", 2400, still=[range(902, 2400)], boot_s=7.0)
    moments = list(replay([one, other], HangSettings()))
    [noticed] = [moment for moment in moments if moment.turn is Turn.NOTICED]
    assert "no rank of 2 has moved" in noticed.sentence
    assert noticed.at_s < 1000


def test_a_worker_that_still_works_vetoes() -> None:
    moments = replay([recorded("w0", 1200, still=[range(900, 1200)]), recorded("w1", 1200)], HangSettings())
    assert Turn.CONFIRMED not in turns(moments)


def test_a_new_generation_starts_from_nothing() -> None:
    def both() -> Iterator[WorkerSample]:
        yield from recorded("w0", 600)
        yield from recorded("w0", 600, generation=2, boot_s=600.0)
        yield from recorded("w0", 10, generation=1, boot_s=1200.0)

    moments = list(replay([both()], HangSettings()))
    assert [(moment.turn, moment.generation) for moment in moments] == [
        (Turn.BEGAN, 1),
        (Turn.BEGAN, 2),
        (Turn.END, 2),
    ]


def test_workers_never_heard_of_together_are_not_judged() -> None:
    [_, end] = replay([recorded("w0", 600), iter(())], HangSettings())
    assert end.sentence == "the workers were never heard of together"
    assert list(replay([iter(())], HangSettings())) == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = (encode(sample) + "\n" for sample in recorded("w0", 2400, still=[range(900, 2400)]))
    path = tmp_path / "samples.jsonl.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def test_the_command_prints_the_story(file: Path) -> None:
    result = CliRunner().invoke(root, ["hang", "replay", str(file)])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split()[:2] == ["0ms", "generation"]
    assert "noticed    GPUS_IDLE: its only rank has not moved" in result.stdout


def test_the_command_prints_json(file: Path) -> None:
    found = json.loads(CliRunner().invoke(root, ["hang", "replay", str(file), "-o", "json"]).stdout)
    assert [each["turn"] for each in found] == ["BEGAN", "SUSPECT", "NOTICED", "CONFIRMED", "END"]
    assert set(found[2]) == {"atSeconds", "generation", "turn", "rule", "sentence", "suspects"}


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b'{"v":99}\n', b"\xff\n", b'{"v":1,"job":"j"'])
def test_what_is_no_recording_is_a_sentence(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    assert CliRunner().invoke(root, ["hang", "replay", str(path)]).exit_code == 125
    assert capfd.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("bad", ["step", "step=("])
def test_a_pattern_without_a_group_is_a_usage_error(file: Path, bad: str) -> None:
    result = CliRunner().invoke(root, ["hang", "replay", str(file), "--step-pattern", bad])
    assert result.exit_code == 2
