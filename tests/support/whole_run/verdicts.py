"""A run that fails although each of its tests passed says why as the last thing that it prints: where only the end of
a log is kept, the reason is in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def fail(session: pytest.Session, why: str, lines: Iterable[str]) -> None:
    """Fail a run that is over. Call it in a wrapper of ``pytest_sessionfinish``, tried first, behind its ``yield``.

    Of a process that takes a part of the run's tests nothing is said: the one that collects hears of them all.
    """
    if hasattr(session.config, "workerinput"):
        return
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    writer = session.config.get_terminal_writer()
    writer.sep("=", f"the run fails: {why}", red=True)
    for line in lines:
        writer.line(line)
