"""Which file of settings counts, and what is said where it can't be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.errors import ConfigError, HoldfastError


def as_another_account(work: Callable[[], None]) -> int:
    """The exit status of a child that runs ``work`` without root's rights."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    (made / ".config/holdfast").mkdir(parents=True)
    (made / ".config/holdfast/client.toml").write_text("")
    made.chmod(0o700)
    return made


@pytest.mark.require("root")
def test_a_home_of_another_account_is_passed_over(closed: Path) -> None:
    def look() -> None:
        assert settings.find({"HOME": str(closed)}, Path("/proc/version")) == Path("/proc/version")

    assert as_another_account(look) == 0


@pytest.mark.require("root")
def test_a_named_file_that_one_may_not_see_is_told_of(closed: Path) -> None:
    def look() -> None:
        with pytest.raises(ConfigError, match="you may not look there"):
            settings.find({"HOME": "/", settings.VARIABLE: f"{closed}/client.toml"})

    assert as_another_account(look) == 0


@pytest.mark.parametrize("named", ["x" * 300, "~nobody-of-that-name/client.toml", "/no/client.toml", "\0"])
def test_a_named_file_that_is_none_is_told_of(named: str) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        settings.find({"HOME": "x" * 300, settings.VARIABLE: named})


def test_the_cluster_of_a_folder_is_named_as_a_shell_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "my work"
    (here / ".holdfast-dev").mkdir(parents=True)
    (here / ".holdfast-dev/client.toml").write_text("")
    monkeypatch.chdir(here)
    with pytest.raises(HoldfastError, match=f"export HOLDFAST_CONFIG='{here}/.holdfast-dev/client.toml'"):
        settings.find({"HOME": str(tmp_path)}, tmp_path / "none")
