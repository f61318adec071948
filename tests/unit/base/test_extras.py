"""``pip install holdfast`` is a client; a daemon that lacks its extra says what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast._base import extras
from holdfast.errors import MissingPackages

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
HIDING = """
import runpy, sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *rest):
        return None if name in {hidden!r} else self.finder.find_spec(name, *rest)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
sys.argv = {argv!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
HIDDEN = {module for modules in extras.MODULES.values() for module in modules.values()}


def started(module: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command where no package of an extra can be imported."""
    code = HIDING.format(hidden=HIDDEN, argv=[module, *args], module=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("extra", extras.MODULES)
def test_every_package_of_an_extra_is_looked_for(extra: str) -> None:
    declared = {text.split(">=")[0].partition("[")[0] for text in PROJECT["optional-dependencies"][extra]}
    assert extras.MODULES[extra].keys() == declared - {"py-spy", "pystack"}


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "agent", {"psutil": "psutil", "uv": "no_such_module"})
    extras.require("holdfast-controller", "controller")
    with pytest.raises(MissingPackages) as caught:
        extras.require("A dev cluster", "controller", "agent")
    assert str(caught.value) == (
        "A dev cluster needs packages that are not installed: uv. "
        "Install them: pip install 'holdfast[controller,agent]'"
    )


@pytest.mark.parametrize("args", [["--help"], ["submit", "--help"], ["dev", "--help"]], ids=" ".join)
def test_a_client_needs_no_extra(args: list[str]) -> None:
    done = started("holdfast", *args)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_dev_cluster_names_both_extras_and_makes_nothing(tmp_path: Path) -> None:
    done = started("holdfast", "dev", "start", "--dir", str(tmp_path / "dev"))
    assert done.returncode == 125
    assert "pip install 'holdfast[controller,agent]'" in " ".join(done.stderr.split())
    assert not (tmp_path / "dev").exists()


@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("holdfast_controller", ["--config", "controller.toml"]),
        ("holdfast_controller", ["init", "/nowhere"]),
        ("holdfast_agent", ["--config", "agent.toml"]),
        ("holdfast_agent", ["join", "controller:7443"]),
        ("holdfast_agent", ["doctor"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_daemon_names_its_extra(module: str, args: list[str]) -> None:
    done = started(module, *args)
    part = module.removeprefix("holdfast_")
    assert done.returncode == 1
    assert done.stderr.startswith(f"holdfast-{part} needs packages that are not installed: ")
    assert done.stderr.endswith(f"pip install 'holdfast[{part}]'\n")


@pytest.mark.parametrize("module", ["holdfast_controller", "holdfast_agent"])
def test_a_daemons_help_needs_no_extra(module: str) -> None:
    assert started(module, "--help").returncode == 0
