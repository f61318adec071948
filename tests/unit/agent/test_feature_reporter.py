"""A worker's watch over a restart of its agent, whichever comes first: its samples or its controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tests.unit.agent.desired import KEY, LAUNCH, desired

from holdfast._session.assignment import Phase
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.v1 import agent_pb2
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.shell.hangs.feature_reporter import FeatureReporter


class _Silent:
    """What a reporter hands samples on to."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Host:
    """One agent with one running worker, of which no controller has said anything yet."""

    def __init__(self, folder: Path) -> None:
        self.worker = Worker(KEY, Running(1))
        self.sent: list[agent_pb2.SessionRequest] = []
        (folder / KEY.job / KEY.worker).mkdir(parents=True, exist_ok=True)
        silent = cast("Any", _Silent())
        self.reporter = FeatureReporter("host-0", folder, silent, silent, silent, lambda _: self.worker, self._send)

    def _send(self, message: agent_pb2.SessionRequest) -> bool:
        self.sent.append(message)
        return True

    def is_assigned(self) -> None:
        """The controller says what it wants of the worker."""
        launch = replace(LAUNCH, step_pattern=r"done=(\d+)")
        self.worker.desired = replace(desired(Phase.RUN), launch=launch)

    def prints(self, at_s: float, line: str) -> float:
        """When the worker last progressed, by what is sent upon a line."""
        lines = (LogLine(0, "out", line),)
        self.reporter.on_sample(WorkerSample(KEY.job, KEY.worker, 1, at_s, lines=lines))
        return self.sent[-1].features.last_progress_s


def test_a_step_pattern_that_comes_after_the_first_samples_counts_from_then_on(
    tmp_path: Path,
) -> None:
    first = Host(tmp_path)
    first.is_assigned()
    assert first.prints(100.0, "done=7") == 100.0
    assert first.prints(120.0, "lap 1") == 100.0
    later = Host(tmp_path)
    later.prints(200.0, "lap 2")
    later.is_assigned()
    known = later.prints(220.0, "lap 3")
    assert known < 220.0
    assert later.prints(230.0, "lap 4") == known
    assert later.prints(240.0, "done=8") == 240.0


def test_a_step_that_is_printed_again_after_a_restart_of_the_agent_is_no_progress(tmp_path: Path) -> None:
    first = Host(tmp_path)
    first.is_assigned()
    assert first.prints(100.0, "done=7") == 100.0
    later = Host(tmp_path)
    later.is_assigned()
    assert later.prints(200.0, "done=7") == 100.0
    assert later.prints(210.0, "done=8") == 210.0
