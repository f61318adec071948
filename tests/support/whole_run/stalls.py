"""A daemon under test whose code holds its event loop for more than a tenth of a second fails the run.

What counts is CPU time of the loop's thread, so a busy machine makes no stall. Each daemon reports its own stalls
(``holdfast._daemon.loop_watch``); those of a daemon that a test left running count for the test after it. A test that
holds a loop on purpose unsets ``HOLDFAST_STALLS`` for the daemons that it starts.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.whole_run import verdicts

from holdfast._daemon.loop_watch import REPORT, STALL_S

OURS = ("/holdfast_controller/", "/holdfast_agent/")


class Stalls:
    """A plugin. Under xdist each worker tells what its tests' daemons did, and the first process fails the run."""

    def __init__(self) -> None:
        self._folder = os.environ[REPORT] = tempfile.mkdtemp(prefix="holdfast-stalls-")
        self._read: dict[str, int] = {}
        self._found: list[tuple[str, dict[str, Any]]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:  # pytest's own type is a generator with a result
        report: pytest.TestReport = yield  # type: ignore[assignment]
        if call.when == "teardown":
            report.user_properties += [("stall", stall) for stall in self._news()]
        return report  # type: ignore[return-value]

    def _news(self) -> list[dict[str, Any]]:
        """Stalls since the last call that count."""
        found = []
        for path in sorted(Path(self._folder).glob("*")):
            lines = path.read_text().splitlines()
            fresh = [json.loads(line) for line in lines[self._read.get(path.name, 0) :]]
            self._read[path.name] = len(lines)
            # A daemon served in this process shares its loop, and what is searched for cycles, with all tests.
            if path.name == str(os.getpid()):
                fresh = [each for each in fresh if each["cpu_s"] - each["gc_s"] > STALL_S and _is_ours(each)]
            found += [each for each in fresh if each["cpu_s"] > STALL_S]
        return found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._found += [(report.nodeid, stall) for name, stall in report.user_properties if name == "stall"]  # type: ignore[misc]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._found:
            verdicts.fail(session, "event loops were held", self._lines())

    def _lines(self) -> Iterator[str]:
        for test, stall in self._found:
            yield f"{test}: {stall['cpu_s']:.3f} s of CPU, {stall['seconds']:.3f} s"
            for frame in stall["stack"]:
                yield f"    {frame}"


def _is_ours(stall: dict[str, Any]) -> bool:
    """Whether it was a daemon's code, and not the test's: the innermost frame of either decides."""
    for frame in stall["stack"]:
        if "/tests/" in frame:
            return False
        if any(part in frame for part in OURS):
            return True
    return False
