"""``holdfast-agent --check``: reads the settings and everything that they name, and starts nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast._base import config as settings_file
from holdfast._security.server_tls import server_context
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError
from holdfast_agent.shell import config
from holdfast_agent.shell.base import inventory
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.users import trusted_dirs


def main(file: Path) -> int:
    """0 where an agent could start with ``file``; 2 with each problem on a line of stderr where not."""
    found = problems(file)
    for problem in found:
        print(f"holdfast-agent: {problem}", file=sys.stderr)  # noqa: T201
    if found:
        return ConfigError.exit_status
    print(f"{file}: no problem found.")  # noqa: T201
    return 0


def problems(file: Path) -> list[str]:
    """Everything wrong with a file of settings or with what it names, in sentences."""
    try:
        settings = config.load(file)
    except ConfigError as error:
        return [str(error)]
    checks: tuple[Callable[[Config], object], ...] = (
        config.worker_user,
        _check_address,
        _check_env_file,
        _check_certificates,
        _check_folders,
        _check_hooks,
    )
    found = []
    for check in checks:
        try:
            check(settings)
        except ConfigError as error:
            found.append(str(settings_file.placed(error, file)))
    return found


def _check_address(settings: Config) -> None:
    if settings.data_interface or not settings.address:
        inventory.host_address(settings.data_interface)


def _check_env_file(settings: Config) -> None:
    config.read_env_file(settings.env_file)


def _check_certificates(settings: Config) -> None:
    server_context(TlsFiles(settings.ca, settings.cert, settings.key))
    config.check_certificate(settings)


def _check_folders(settings: Config) -> None:
    folders = {"state_dir": settings.state_dir, "log_dir": settings.log_dir}
    if settings.packages.cache_dir is not None:
        folders["[packages] cache_dir"] = settings.packages.cache_dir
    for key, folder in folders.items():
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir():
            raise ConfigError(f"{key}: {there} is no directory.", fix="Name another one.")
        if os.geteuid() == 0 and not settings.allow_root_workers:
            trusted_dirs.check(key, there)


def _check_hooks(settings: Config) -> None:
    for name, command in (("prolog", settings.hooks.prolog), ("epilog", settings.hooks.epilog)):
        if command and not (os.path.isfile(command[0]) and os.access(command[0], os.X_OK)):
            raise ConfigError(
                f"[hooks] {name}: {command[0]} is no program that can be run.", fix="Correct the path."
            )
