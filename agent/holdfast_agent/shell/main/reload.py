"""Settings that change while the agent runs, upon SIGHUP. A file with anything wrong in it changes nothing."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast._daemon import log
from holdfast.errors import ConfigError
from holdfast_agent.shell import config
from holdfast_agent.shell.config import Config

LIVE = frozenset({"checks", "hooks", "log_level", "metrics_readers", "shell_idle", "shells"})
"""Keys of agent.toml that a reload applies; all others need a restart of the agent, which ends no worker. So do hooks
that begin or cease to have an epilog."""


async def run(
    file: Path,
    settings: Config,
    change: Callable[[Config], None],
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Read ``file`` again upon each SIGHUP, until cancelled. ``change`` applies what is in ``LIVE``."""
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            settings = await _reload(file, settings, change)


async def _reload(file: Path, old: Config, change: Callable[[Config], None]) -> Config:
    """The settings in effect afterwards."""
    try:
        written = await anyio.to_thread.run_sync(config.load, file)
    except ConfigError as error:
        log.warning("settings.refused", error=str(error), fix="the settings before are still in effect")
        return old
    names = [field.name for field in dataclasses.fields(Config)]
    differing = [name for name in names if getattr(written, name) != getattr(old, name)]
    live = LIVE if bool(written.hooks.epilog) == bool(old.hooks.epilog) else LIVE - {"hooks"}
    changed = [name for name in differing if name in live]
    new = dataclasses.replace(old, **{name: getattr(written, name) for name in changed})
    change(new)
    log.info("settings.reloaded", changed=changed, needs_restart=[name for name in differing if name not in live])
    return new
