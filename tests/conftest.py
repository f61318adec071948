"""What all tests share: the event loop, the markers ``require``, ``races`` and ``cold``, the scripted NVML."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVarTuple

import pytest
from hypothesis import HealthCheck, settings
from tests.support import machine_parts
from tests.support.fake_nvml.library import FakeNvml, build
from tests.support.warm_start import starts
from tests.support.whole_run import leftovers, reruns, sharing, stalls
from xdist.remote import Producer

pytest_plugins = ["pytester"]

# A daemon that compiles itself at each start takes twice the processor time, and tests start a thousand.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    try:
        machine_parts.demanded()
    except machine_parts.UnknownPart as error:
        raise pytest.UsageError(f"HOLDFAST_REQUIRE: {error}") from error
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if (
            signal.getsignal(number) is signal.SIG_IGN
        ):  # below nohup or in a script's background; children inherit it
            signal.signal(number, handler)
    config.pluginmanager.register(reruns.Reruns())
    config.pluginmanager.register(leftovers.Leftovers())
    config.pluginmanager.register(stalls.Stalls())
    sharing.yield_to_others()
    starts.install()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> sharing.Sharing | None:
    return sharing.Sharing(config, log) if config.getoption("dist") == "loadfile" else None


settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")  # a busy machine is no finding

RACING = {
    "e2e": "several commands of half a second each have to fit into a grace, a lease or a back-off on busy cores",
    "faults": "whole clusters are frozen, cut off and flooded beside other tests on the same cores",
    "integration/agent": "ranks and shims have to start within limits of the agent on busy cores",
}
"""Folders whose tests race with the machine, and how; a narrower mark is better."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is collected ever becomes garbage: to look for cycles in it costs each process seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("races") is None and (reason := _races(item.path)):
            item.add_marker(pytest.mark.races(reason=reason))
    reruns.allow(items)


@functools.cache
def _races(path: Path) -> str | None:
    """Why the tests of a file race with the machine, if they do by their folder."""
    here = Path(__file__).parent
    return next((reason for folder, reason in RACING.items() if path.is_relative_to(here / folder)), None)


WARM = (
    *("e2e/cluster", "e2e/guard", "e2e/hangs", "e2e/hosts", "e2e/jobs", "e2e/pages", "e2e/web", "faults"),
    *("integration/agent", "integration/client", "integration/controller", "integration/daemon"),
    *("integration/dev", "integration/examples", "security/rights"),
)
"""Folders whose tests start daemons and commands warm, but for those marked ``cold``, whose subject is the start."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    here = Path(__file__).parent
    starts.on = item.get_closest_marker("cold") is None and any(item.path.is_relative_to(here / it) for it in WARM)
    parts = [part for marker in item.iter_markers("require") for part in marker.args]
    try:
        missing = machine_parts.missing(parts)
    except machine_parts.UnknownPart as error:
        pytest.fail(str(error), pytrace=False)
    if not missing:
        return
    lacks = f"needs {', '.join(missing)}, which this machine lacks"
    if machine_parts.demanded() & set(missing):
        pytest.fail(f"{lacks}, though HOLDFAST_REQUIRE names it", pytrace=False)
    pytest.skip(lacks)


_Args = TypeVarTuple("_Args")


class _Loop(asyncio.SelectorEventLoop):
    """The event loop of one test; what comes for it once it is closed is dropped.

    The ends of gRPC's calls reach the loop that made them by way of whichever loop runs, a moment after their channel
    was closed. An error there would be the next test's, and what stands behind it in the line would be lost.
    """

    def call_soon_threadsafe(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        if self.is_closed():
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon_threadsafe(callback, *args, context=context)


def _current_loop() -> _Loop:
    """A new loop, which channels that a synchronous fixture makes find, too."""
    loop = _Loop()
    asyncio.set_event_loop(loop)
    return loop


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": _current_loop}


@pytest.fixture(scope="session")
def _fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fake-nvml"))


@pytest.fixture
def fake_nvml(_fake_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A driver without GPUs, for this process's children. Mark the test ``require("cc")``."""
    fake = FakeNvml(_fake_nvml_library, tmp_path / "nvml.script")
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    return fake
