"""Starts the agent's parts and ends them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import anyio
from holdfast import __version__
from holdfast.errors import ConfigError
from holdfast.tls import TlsFiles

from holdfast_agent.shell import log
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.driver import Driver


def run(settings: Config) -> int:
    """Run until SIGTERM or SIGINT. Workers are left alone. Raises ``ConfigError`` for what can't work."""
    try:
        log.start(settings.log_level)
    except ValueError as error:
        raise ConfigError(f"log_level: {settings.log_level!r} is unknown.") from error
    for directory, mode in (
        (settings.state_dir, 0o711),
        (settings.state_dir / "workers", 0o700),
        (settings.log_dir, 0o755),
    ):
        try:
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"Cannot create {directory}: {error.strerror}.") from error
    anyio.run(_main, settings, backend="asyncio", backend_options={"use_uvloop": _has_uvloop()})
    return 0


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


async def _main(settings: Config) -> None:
    log.info("agent.started", version=__version__, host=settings.name, pid=os.getpid())
    driver = Driver(settings, TlsFiles(settings.ca, settings.cert, settings.key))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, tasks.cancel_scope)
        tasks.start_soon(driver.run)
    driver.close()
    log.info("agent.ended")


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("agent.stopping", signal=signal.Signals(number).name)
            scope.cancel()
            return
