"""Runs a daemon as if it were of another release: ``other_release.py VERSION PROTOCOL SHIM_PROTOCOL MODULE ARGS…``.

The three are what it says of itself; a protocol given as ``+1`` or ``-1`` counts from this release's own.
"""

from __future__ import annotations

import runpy
import sys

import holdfast
import holdfast._base.version
from holdfast._session import protocol
from holdfast_agent.shim import shim


def _number(text: str, ours: int) -> int:
    return ours + int(text) if text[0] in "+-" else int(text)


def command(version: str, spoken: str, shims: str, module: str, *args: str) -> list[str]:
    """What to start."""
    return [sys.executable, __file__, version, spoken, shims, module, *args]


if __name__ == "__main__":
    version, spoken, shims, module = sys.argv[1:5]
    holdfast.__version__ = holdfast._base.version.__version__ = version
    protocol.PROTOCOL = _number(spoken, protocol.PROTOCOL)
    shim.VERSION = _number(shims, shim.VERSION)
    sys.argv[1:5] = []
    runpy.run_module(module, run_name="__main__", alter_sys=True)
