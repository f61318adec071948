"""A whole cluster on one machine, for trying things out: a controller, and as many agents as you like.

There is no supervisor. ``start`` starts whatever is dead, with the ports and identities of the first time;
``stop`` ends daemons and workers alike and proves that nothing is left. ``status`` looks, and changes nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.dev.starting import start
    from holdfast.dev.stopping import stop
    from holdfast.dev.survey import Status, status

__all__ = ["Status", "start", "status", "stop"]

_LAZY = {"start": "starting", "stop": "stopping", "status": "survey", "Status": "survey"}
"""Loaded when they are first asked for: a guard needs its ports from here, and no more."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
