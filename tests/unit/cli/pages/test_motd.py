"""The message of the day on a user's terminal: once for each message and cluster, and never as a line of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.kit.console import Console
from holdfast.cli.kit.motd import lines, show_once
from holdfast.v1.access_pb2 import Motd


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def motd(text: str, at: int = 1_790_000_000) -> Motd:
    made = Motd(text=text, by="ann")
    made.time.FromSeconds(at)
    return made


def shown(message: Motd, capfd: pytest.CaptureFixture[str], controller: str = "ctl:7443") -> list[str]:
    show_once(message, controller, Console())
    said = capfd.readouterr()
    assert not said.out
    return said.err.splitlines()


def test_a_message_is_shown_once_and_again_when_it_changes(capfd: pytest.CaptureFixture[str]) -> None:
    head, *rest = shown(motd("no work\non Friday"), capfd)
    assert head.startswith("holdfast: message of the day, from ann, ") and head.endswith(" ago:")
    assert rest == ["holdfast:   no work", "holdfast:   on Friday"]
    assert shown(motd("no work\non Friday"), capfd) == []
    assert shown(motd("no work\non Friday", 1_790_000_100), capfd) != []


def test_each_cluster_has_its_own_message(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(motd("here"), capfd, "a:1") != []
    assert shown(motd("there"), capfd, "b:1") != []
    assert shown(motd("here"), capfd, "a:1") == []


def test_one_that_cannot_be_noted_is_shown_each_time(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "state").write_text("a file where the folder would be")
    assert shown(motd("hello"), capfd) == shown(motd("hello"), capfd) != []


def test_words_of_a_hostile_controller_are_words(capfd: pytest.CaptureFixture[str]) -> None:
    message = motd("\x1b[2J\u202e\nerror: forged\n" * 100)
    message.by = "ann\nerror: forged"
    found = shown(message, capfd)
    assert len(found) <= 25
    assert all(line.startswith("holdfast: ") and line.isprintable() for line in found)


def test_age_is_that_of_the_message() -> None:
    assert next(lines(motd("x"), 1_790_000_000 + 7200)) == "message of the day, from ann, 2h ago:"
