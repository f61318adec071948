"""What ``holdfast dev stop`` says that it did."""

from __future__ import annotations

import pytest

from holdfast.dev.stopping import summary


@pytest.mark.parametrize(
    ("daemons", "workers", "says"),
    [
        (3, 1, "Stopped in c: 3 daemons and 1 process of workers. Nothing is left."),
        (1, 2, "Stopped in c: 1 daemon and 2 processes of workers. Nothing is left."),
        (3, 0, "Stopped in c: 3 daemons. Nothing is left."),
        (0, 0, "The dev cluster in c is not running."),
    ],
)
def test_what_was_stopped_is_counted(daemons: int, workers: int, says: str) -> None:
    assert summary("c", daemons, workers) == says
