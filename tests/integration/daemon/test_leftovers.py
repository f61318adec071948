"""What a run of tests leaves behind is seen, and fails it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support import leftovers

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
        assert any(f"process {process.pid}:" in line for line in found)
    finally:
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)
        process.wait()
    assert leftovers.left(base) == []


def test_a_run_that_leaves_a_process_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "WITHIN_S", 0.1)
    pytester.makepyfile(RUN)
    pytester.makeconftest("from tests.support.leftovers import Leftovers\npytest_plugins = []\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Leftovers())\n")  # fmt: skip
    base = pytester.path / "base"
    result = pytester.runpytest_inprocess("--basetemp", str(base), "-p", "no:cacheprovider")
    try:
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(["*left behind by this run*", "process *: sleep 613*"])
    finally:
        for line in leftovers.processes(f"{base}/"):
            subprocess.run(["kill", "-9", line.split()[1].rstrip(":")], check=True)
