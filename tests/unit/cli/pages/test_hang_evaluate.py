"""``holdfast hang evaluate`` on small corpora of its own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root


def corpus(path: Path, *gaps_ms: list[int]) -> Path:
    lines = (json.dumps({"run": f"r{n}", "gaps_ms": gaps}) + "\n" for n, gaps in enumerate(gaps_ms))
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def evaluated(*words: str) -> Result:
    return CliRunner().invoke(root, ["hang", "evaluate", *words])


def test_the_json_has_what_others_build_on(tmp_path: Path) -> None:
    file = corpus(tmp_path / "c.jsonl.gz", [2_000] * 600, [2_000] * 600 + [7_300_000])
    result = evaluated(str(file), "-o", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(found)[:7] == [
        "runs",
        "hours",
        "notices",
        "runs_with_notice",
        "kills",
        "runs_with_kill",
        "kills_per_24h",
    ]
    assert (found["runs"], found["runs_with_notice"], found["runs_with_kill"]) == (2, 1, 1)
    assert set(found["kills_per_24h"]) == {"estimate", "low", "high"}
    assert set(found["notice_s"]) == set(found["kill_s"]) == {"p50", "p90", "p99"}


def test_the_same_corpus_gives_the_same_score(tmp_path: Path) -> None:
    file = corpus(tmp_path / "c.jsonl.gz", *([1_000 * n] * 200 for n in range(1, 6)))
    assert evaluated(str(file), "-o", "json").stdout == evaluated(str(file), "-o", "json").stdout


def test_the_table_says_the_same_in_words(tmp_path: Path) -> None:
    file = corpus(tmp_path / "c.jsonl.gz", [2_000] * 600)
    text = evaluated(str(file)).stdout
    assert text.startswith("1 healthy run, 0.3 h, log lines only\n")
    for word in ("false notices", "false kills", "noticed", "killed", "per 24 h (95 %)"):
        assert word in text


def test_a_corpus_of_no_length_is_no_infinity(tmp_path: Path) -> None:
    result = evaluated(str(corpus(tmp_path / "c.jsonl.gz", [])), "-o", "json")
    assert json.loads(result.stdout, parse_constant=pytest.fail)["kills_per_24h"]["high"] is None
    assert evaluated(str(tmp_path / "c.jsonl.gz")).exit_code == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no run"),
        (b"nonsense\n", "line 1 is no run"),
        (b'{"gaps_ms": [1]}\n{"gaps_ms": [-1]}\n', "line 2 is no run"),
        (b'{"gaps_ms": "x"}\n', "line 1 is no run"),
        (b'{"gaps": [1]}\n', "line 1 is no run: it has no gaps_ms"),
        (b"\xff\xfe\n", "can't decode"),
    ],
)
def test_what_is_no_corpus_is_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    file = tmp_path / "c.jsonl"
    file.write_bytes(content)
    result = evaluated(str(file))
    assert result.exit_code == 125
    assert result.stdout == ""
    assert problem in capfd.readouterr().err


def test_a_cut_off_file_is_a_sentence(tmp_path: Path) -> None:
    file = corpus(tmp_path / "c.jsonl.gz", list(range(5_000)))
    file.write_bytes(file.read_bytes()[:200])
    assert evaluated(str(file)).exit_code == 125


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert evaluated(str(tmp_path / "none")).exit_code == 2
