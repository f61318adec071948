"""Words of the command line, and of stdin, that are no text or none at all."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.kit import stdin
from holdfast.errors import InvalidSpec


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--label", "a=\udcff", "--", "true"], "--label: b'a=\\xff' is not UTF-8"),
        (["run", "--project=x\udcff", "--", "true"], "--project: b'--project=x\\xff' is not UTF-8"),
        (["run", "--on-host", "\udcff", "--", "true"], "--on-host: b'\\xff' is not UTF-8"),
    ],
)
def test_a_word_that_is_no_utf_8_is_refused_with_its_option(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", *words])
    assert CliRunner().invoke(root, words).exit_code == 2
    assert said in capfd.readouterr().err


def test_an_empty_or_closed_stdin_is_an_empty_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert (stdin.is_terminal(), stdin.read(9), stdin.job_text()) == (False, b"", "")


def test_a_job_file_on_stdin_is_read_as_one_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/zero").open() as zeros:
        monkeypatch.setattr(sys, "stdin", zeros)
        with pytest.raises(InvalidSpec, match="stdin has 1 problem:\n  is larger than 1,048,576 bytes"):
            stdin.job_text()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa: 1\n")))
    assert stdin.job_text() == "a: 1\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: \xff")))
    with pytest.raises(InvalidSpec, match="is not UTF-8 text: byte 3 is 0xff"):
        stdin.job_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/bash\n#SBATCH -N2\nsrun true\n", "submit a script of Slurm with: holdfast submit job.sh"),
        ("#SBATCH -N2\nsrun true\n", "begin a script of Slurm with #!/bin/bash, and holdfast submit takes it"),
        ("#!/bin/bash\npython train.py\n", "run it with: holdfast run -- bash job.sh"),
    ],
)
@pytest.mark.parametrize("command", [["template", "create", "t"], ["schedule", "create", "s", "--cron", "@daily"]])
def test_a_program_is_no_job_file_for_a_template_or_a_schedule(
    command: list[str],
    text: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sh").write_text(text)
    assert CliRunner().invoke(root, [*command, "job.sh"]).exit_code == 2
    assert f"is a program, not a job file ({said})" in capfd.readouterr().err
