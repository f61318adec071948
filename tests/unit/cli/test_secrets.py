"""Where ``holdfast secret set`` takes a value from: never from its arguments; and what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast._base.secret import Secret
from holdfast.cli.app import root
from holdfast.cli.cluster import secrets


class Calls:
    """Takes the place of the client: what would have been sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Secret, str]] = []
        self.secrets = self

    async def set(self, name: str, value: Secret, *, project: str) -> None:
        self.sent.append((name, value, project))

    def run(self, work: Any) -> None:
        with pytest.raises(StopIteration):
            work(self).send(None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(secrets, "with_client", made.run)
    return made


def run(*args: str, input: str = "") -> Result:
    return CliRunner().invoke(root, ["secret", "set", *args], input=input)


def test_a_value_comes_from_stdin_or_a_file_and_is_not_repeated(
    calls: Calls, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"canary-2\n")
    run("wandb", input="canary-1\n")
    run("hf", "--project", "vision", "--from-file", str(file))
    assert calls.sent == [("wandb", Secret(b"canary-1"), ""), ("hf", Secret(b"canary-2"), "vision")]
    assert capfd.readouterr().err.splitlines() == [
        "holdfast: your secret wandb is set; launches from now on get it",
        "holdfast: the secret hf of project vision is set; launches from now on get it",
    ]


def test_there_is_no_way_to_write_a_value_as_an_argument(calls: Calls) -> None:
    refused = run("wandb", "canary")
    assert refused.exit_code == 2
    assert calls.sent == []


@pytest.mark.parametrize(
    ("args", "input", "said"),
    [
        (("wandb",), "", "stdin: is empty"),
        (("wandb", "--from-file", "/nowhere"), "", "--from-file: /nowhere: No such file or directory"),
        (("wandb",), "x" * 70_000, "at most 65,536 are allowed"),
    ],
)
def test_what_is_no_value_is_refused_in_a_sentence(
    calls: Calls, args: tuple[str, ...], input: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(*args, input=input).exit_code == 2
    assert said in capfd.readouterr().err
    assert calls.sent == []
