"""Bytes to lines; which files are checkpoints."""

from __future__ import annotations

import pytest

from holdfast_agent.core.proc.open_files import FileKind, file_kind
from holdfast_agent.core.proc.output_lines import LINE_MAX_BYTES, LineCutter


def test_lines_end_at_either_end_and_come_whole() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"one\ntw") == ["one"]
    assert cutter.feed(b"o\r\n\n 50%\r 60%\r") == ["two", " 50%", " 60%"]
    assert cutter.feed(b"\xff\xfe\n") == ["��"]
    assert cutter.feed(b"") == []


def test_line_without_an_end_is_bounded() -> None:
    cutter = LineCutter()
    for _ in range(100):
        assert cutter.feed(b"x" * 1000) == []
    assert cutter.feed(b"\ny\n") == ["x" * LINE_MAX_BYTES, "y"]


def test_after_a_gap_the_rest_of_a_line_is_no_line() -> None:
    cutter = LineCutter()
    cutter.feed(b"begun")
    cutter.skip()
    assert cutter.feed(b"no end yet") == []
    assert cutter.feed(b" tail\nwhole\n") == ["whole"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/model.pt", FileKind.CHECKPOINT),
        ("/data/model.pt.tmp", FileKind.CHECKPOINT),
        ("/data/.model.safetensors.1f3a9c", FileKind.CHECKPOINT),
        ("/data/model.pt-0123abcd.tmp0a0a", FileKind.CHECKPOINT),
        ("/data/model.pt" + "ab" * 32, FileKind.CHECKPOINT),
        ("/data/model.pt.part.incomplete", FileKind.CHECKPOINT),
        # Its name can be cut into numbers in more ways than there is time to try.
        ("/data/model.pt" + "a" * 240 + "z", FileKind.OTHER),
        ("/data/model.pt" + ".aaaa" * 45 + "z", FileKind.OTHER),
        ("/data/checkpoint-500/trainer_state.json", FileKind.CHECKPOINT),
        ("/data/ckpt/step3/__0_0.distcp", FileKind.CHECKPOINT),
        ("/data/global_step100/mp_rank_00_model_states", FileKind.CHECKPOINT),
        ("/data/last.ckpt", FileKind.CHECKPOINT),
        ("/data/runs/events.out.tfevents.1700000000.host.1.0", FileKind.EVENTS),
        ("/data/metrics.jsonl", FileKind.OTHER),
        ("/checkpoints/home/me/project/run/metrics.jsonl", FileKind.OTHER),
        ("/data/inspect.ptx", FileKind.OTHER),
        ("/logs/job-1/g1/workerpool0-0.r0.out", None),
        ("/logs-of-others/x", FileKind.OTHER),
        ("/dev/shm/torch_1_2", None),
        ("/dev/null", None),
        ("/memfd:x (deleted)", None),
        ("/data/model.pt (deleted)", None),
        ("socket:[123]", None),
        ("pipe:[4]", None),
    ],
)
def test_kinds_of_open_files(path: str, kind: FileKind | None) -> None:
    assert file_kind(path, "/logs") is kind
