"""Tables of agent.toml: checks, hooks and labels, and what is refused of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast_agent.core.launch.preflight import Minimums
from holdfast_agent.shell import config
from holdfast_agent.shell.config import Hooks

BASE = """
controller = "c:1"
name = "host-0"
state_dir = "state"
log_dir = "logs"
ca = "ca.pem"
cert = "host.pem"
key = "host.key"
"""


def load(tmp_path: Path, more: str) -> config.Config:
    path = tmp_path / "agent.toml"
    path.write_text(BASE + more)
    return config.load(path)


def test_without_tables_there_are_modest_checks_no_hooks_and_no_labels(tmp_path: Path) -> None:
    loaded = load(tmp_path, "")
    assert (loaded.checks, loaded.hooks, loaded.labels) == (Minimums(), Hooks(), {})


def test_paths_of_a_file_that_is_named_from_here_hold_for_who_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    loaded = config.load(Path("agent.toml"))
    assert (loaded.state_dir, loaded.log_dir) == (tmp_path / "state", tmp_path / "logs")


def test_tables_are_read(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """
        [checks]
        disk_free_mb = 5000
        gpus_free = false
        [hooks]
        prolog = ["/etc/holdfast/prolog.sh", "--quick"]
        timeout = "2m"
        [labels]
        rack = "a"
        "example.org/zone" = "z-1"
        """,
    )
    assert loaded.checks == Minimums(disk_free_mb=5000, gpus_free=False)
    assert loaded.hooks == Hooks(prolog=("/etc/holdfast/prolog.sh", "--quick"), timeout=120.0)
    assert loaded.labels == {"rack": "a", "example.org/zone": "z-1"}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("[checks]\nmemory = 1", "unknown key 'checks.memory'"),
        ("[checks]\nnofile = -1", r"\[checks\] nofile must be at least 0"),
        ('[checks]\nnofile = "many"', "checks.nofile must be a whole number"),
        ("checks = 1", "checks must be a table"),
        ('[hooks]\nprologue = ["/x"]', "unknown key 'hooks.prologue'"),
        ('[hooks]\nprolog = ["check.sh"]', "absolute path"),
        ('[hooks]\nprolog = "/bin/true"', "prolog must be a list"),
        ("[hooks]\ntimeout = 0", "timeout must be above 0"),
        ('[labels]\nrack = ""', "is no label"),
        ("[labels]\nrack = 1", r"labels.rack must be text in quotes"),
        ('[labels]\n"a b" = "c"', "is no label"),
        ('labels = "rack=a"', "labels must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_its_table(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, table)
