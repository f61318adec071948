"""Runs training jobs on bare-metal GPU hosts and keeps them running.

From outside the cluster, ``with holdfast.Client() as client`` submits jobs, waits for them and reads what they print;
``holdfast.AsyncClient`` is the same for asyncio. Inside a training program ``holdfast.progress(step, total=…)``,
``idle``, ``saving``, ``saved``, ``phase`` and ``resumed`` say how far it is; ``restartable`` lets a function go on in
its own process when its gang is restarted. Importing this pulls in neither grpc nor protobuf.
Programs may also import these, and the names in their ``__all__``:

- ``holdfast.client``: every call of the API with its messages, for asyncio;
- ``holdfast.settings``: where the cluster is and who the caller is;
- ``holdfast.spec``: job files, read and checked;
- ``holdfast.errors``: what all of them raise;
- ``holdfast.v1``: the messages, generated from the proto files.

All else serves Holdfast's own programs and may change with any release: names with an underscore, and the packages
``bundles``, ``cli``, ``dev``, ``doctor``, ``guard``, ``hang`` and ``training``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._base.version import __version__
from holdfast.training.progress_calls import idle, phase, progress, resumed, saved, saving

if TYPE_CHECKING:
    from holdfast import errors
    from holdfast._api.aio import AsyncClient, AsyncJob
    from holdfast._api.results import Event, Failure, Host, LogLine, RankExit, Result
    from holdfast._api.sync import Client, Job
    from holdfast.training.restartable import Unwound, restartable

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Event",
    "Failure",
    "Host",
    "Job",
    "LogLine",
    "RankExit",
    "Result",
    "Unwound",
    "__version__",
    "errors",
    "idle",
    "phase",
    "progress",
    "restartable",
    "resumed",
    "saved",
    "saving",
]

_LAZY = {
    **dict.fromkeys(("AsyncClient", "AsyncJob"), "holdfast._api.aio"),
    **dict.fromkeys(("Client", "Job"), "holdfast._api.sync"),
    **dict.fromkeys(("Event", "Failure", "Host", "LogLine", "RankExit", "Result"), "holdfast._api.results"),
    **dict.fromkeys(("Unwound", "restartable"), "holdfast.training.restartable"),
}
"""Loaded when they are first asked for: a training program needs none of them."""


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("holdfast.errors")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
