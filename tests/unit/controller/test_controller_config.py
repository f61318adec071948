"""Times of the lease that could make work run twice are refused, and words that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast_controller.shell.base.config import ControllerConfig


def made(**changes: Any) -> ControllerConfig:
    values: dict[str, Any] = {"listen": ":1", "cluster": "c"}
    values |= dict.fromkeys(("state_dir", "ca", "cert", "key"), Path("x"))
    return ControllerConfig(**values, **changes)


def test_defaults_are_good() -> None:
    assert (made().lease, made().lost_after) == (60.0, 66.0)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({"lease": 70.0}, "lease is 70 s; with lost_after at 66 s it must be above 0 and at most 60 s"),
        ({"lease": 0.0}, "lease is 0 s"),
        ({"lost_after": 55.0}, "at most 50 s"),
        ({"suspect_after": 4.0}, "each longer than the one before"),
        ({"heartbeat_interval": 0.0}, "must be above 0"),
        ({"suspect_after": 80.0}, "each longer than the one before"),
    ],
)
def test_times_that_do_not_fit_are_refused(times: dict[str, float], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(**times)


def test_run_as_is_one_of_two_words() -> None:
    assert (made().run_as, made(run_as="same-name").run_as) == ("service", "same-name")
    with pytest.raises(ConfigError, match=r"run_as is 'root'. Write \"service\" .*, or \"same-name\""):
        made(run_as="root")
