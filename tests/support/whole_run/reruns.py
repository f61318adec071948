"""Tests that race with the machine: ``@pytest.mark.races(reason="…")`` runs one again when it fails, twice at most.

Every other test fails the run by its first failure. What passed only on a rerun is listed at the end, each with its
reason and how it failed at first; more than ``BOUND`` of them fail the run: either the machine is too slow, or a race
is worth mending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from tests.support.whole_run import verdicts

RERUNS = 2
DELAY_S = 1.0
BOUND = 3
"""So many tests may pass only on a rerun."""
MOST_WORDS = 300
"""Characters of each one's first failure beside its name at the end, where the rest of a long log may not be kept."""


def allow(items: Iterable[pytest.Item]) -> None:
    """Let marked tests be run again. Raises ``UsageError`` for a mark that gives no reason."""
    for item in items:
        if (marker := item.get_closest_marker("races")) is None:
            continue
        reason = marker.kwargs.get("reason")
        if marker.args or set(marker.kwargs) != {"reason"} or not (isinstance(reason, str) and reason.strip()):
            raise pytest.UsageError(f'{item.nodeid}: say what it races with: @pytest.mark.races(reason="…")')
        item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=DELAY_S))
        item.user_properties.append(("races", reason))


def runs_again(item: pytest.Item) -> bool:
    """Whether a test whose teardown is over is run again: what it shares with others is kept until then."""
    return bool(getattr(item, "_finalizers_suspended", False))  # of pytest-rerunfailures


class Reruns:
    """A plugin: counts what passed only on a rerun. Under xdist it counts for all workers."""

    def __init__(self) -> None:
        self._again: dict[str, str] = {}
        """How tests failed that are run again."""
        self._passed: dict[str, str] = {}
        """Reasons by test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome  # one more than pytest's own three
        if outcome == "rerun":
            self._again[report.nodeid] = report.longreprtext
        elif report.failed:
            self._again.pop(report.nodeid, None)
            self._passed.pop(report.nodeid, None)
        elif report.when == "call" and report.passed and report.nodeid in self._again:
            self._passed[report.nodeid] = str(dict(report.user_properties)["races"])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        if len(self._passed) > BOUND:
            why = f"{len(self._passed)} tests passed only on a rerun, and {BOUND} may"
            verdicts.fail(
                session, why, [f"{test}: {_last_words(self._again[test])}" for test in sorted(self._passed)]
            )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._passed:
            return
        terminalreporter.section("passed only on a rerun")
        for test, reason in sorted(self._passed.items()):
            terminalreporter.line(f"{test}: {reason}")
            terminalreporter.line(self._again[test])


def _last_words(failure: str) -> str:
    """The lines of a failure that pytest marks as the error, on one line."""
    errors = [line.removeprefix("E").strip() for line in failure.splitlines() if line.startswith("E ")]
    return " | ".join(errors)[:MOST_WORDS] or failure.strip().rpartition("\n")[2]
