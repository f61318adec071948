"""A run whose tests all passed fails by what it left behind or by a loop that was held, and says so last."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.whole_run import leftovers

RUN = """
import subprocess
def test_passes(tmp_path):
    subprocess.Popen(["sleep", "613"], cwd=tmp_path, start_new_session=True)
"""


@pytest.mark.parametrize("how", ["arguments", "environment", "folder", "file"])
def test_a_process_is_seen_by_what_it_has_of_the_run(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    base = f"{folder}/"
    with (folder / "out").open("w") as out:
        process = subprocess.Popen(
            ["sh", "-c", "sleep 614 & wait", f"{folder}/x"] if how == "arguments" else ["sleep", "614"],
            cwd=f"{folder}/." if how == "folder" else "/",
            env={"X": f"{folder}/x"} if how == "environment" else {},
            stdout=out if how == "file" else None,
            start_new_session=True,
        )
    try:
        found = leftovers.processes(str(folder) if how == "folder" else base)
        assert any(line.startswith(f"process {process.pid}: ") and f", of {folder}" in line for line in found)
    finally:
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)
        process.wait()
    for _ in range(1000):  # a child of it is not ours to wait for
        if not leftovers.left(base):
            break
        time.sleep(0.01)
    assert leftovers.left(base) == []


def test_a_run_that_leaves_a_process_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "WITHIN_S", 0.1)
    pytester.makepyfile(RUN)
    pytester.makeconftest("from tests.support.whole_run.leftovers import Leftovers\npytest_plugins = []\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Leftovers())\n")  # fmt: skip
    base = pytester.path / "base"
    result = pytester.runpytest_inprocess("--basetemp", str(base), "-p", "no:cacheprovider")
    try:
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert "it left something behind" in result.outlines[-2]  # below pytest's own last line
        assert fnmatch.fnmatch(result.outlines[-1], "process *: sleep 613*")
    finally:
        for line in leftovers.processes(f"{base}/"):
            subprocess.run(["kill", "-9", line.split()[1].rstrip(":")], check=True)


def test_a_run_with_a_daemon_that_held_its_loop_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STALLS", "")  # the plugin sets another, and puts nothing back
    stall = {"seconds": 0.4, "cpu_s": 0.35, "gc_s": 0.0, "cause": "code", "stack": ["x.py:1 compute"]}
    pytester.makepyfile(f"""
import os, pathlib
def test_passes():
    pathlib.Path(os.environ["HOLDFAST_STALLS"], "7").write_text({json.dumps(stall)!r})
""")
    pytester.makeconftest("from tests.support.whole_run.stalls import Stalls\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Stalls())\n")  # fmt: skip
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.outlines[-2].endswith("::test_passes: 0.350 s of CPU, 0.400 s")
    assert result.outlines[-1] == "    x.py:1 compute"


def test_what_a_process_of_the_run_finds_is_said_by_the_one_that_collects(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    stall = {"seconds": 0.4, "cpu_s": 0.35, "gc_s": 0.0, "cause": "code", "stack": ["x.py:1 compute"]}
    pytester.makepyfile(f"""
import os, pathlib
def test_passes():
    pathlib.Path(os.environ["HOLDFAST_STALLS"], "7").write_text({json.dumps(stall)!r})
""")
    pytester.makeconftest("from tests.support.whole_run.stalls import Stalls\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Stalls())\n")  # fmt: skip
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.outlines[-2].endswith("::test_passes: 0.350 s of CPU, 0.400 s")
    assert not any("INTERNALERROR" in line for line in (*result.outlines, *result.errlines))
