"""Commands of ``holdfast-controller`` beside the daemon: their option for the settings, and how they fail."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.errors import HoldfastError

_USUAL = Path("/etc/holdfast/controller.toml")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds --config, the controller's file."""
    parser.add_argument("--config", type=Path, default=_USUAL, metavar="FILE", help=f"[default: {_USUAL}]")


def command(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """Has a command end with 1, and a sentence on stderr, where it raises a deliberate error."""

    @functools.wraps(main)
    def run(argv: Sequence[str]) -> int:
        try:
            return main(argv)
        except HoldfastError as error:
            print(f"holdfast-controller: {error}", file=sys.stderr)  # noqa: T201
            return 1

    return run
