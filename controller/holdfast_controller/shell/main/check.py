"""``holdfast-controller --check``: reads the settings and everything that they name, and starts nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast._base import config as settings_file
from holdfast._base.identity import Kind
from holdfast._security import certificate, pki, server_names
from holdfast._security.server_tls import server_context
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, HoldfastError
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.bundles.shared_place import SharedPlace
from holdfast_controller.shell.enrolment.port import names_of
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.secrets.secret_keys import load as read_keys


def main(file: Path) -> int:
    """0 where a controller could start with ``file``; 2 with each problem on a line of stderr where not."""
    found = problems(file)
    for problem in found:
        print(f"holdfast-controller: {problem}", file=sys.stderr)  # noqa: T201
    if found:
        return ConfigError.exit_status
    print(f"{file}: no problem found.")  # noqa: T201
    return 0


def problems(file: Path) -> list[str]:
    """Everything wrong with a file of settings or with what it names, in sentences."""
    try:
        settings = settings_file.load(ControllerConfig, file)
    except ConfigError as error:
        return [str(error)]
    checks: tuple[Callable[[ControllerConfig], object], ...] = (
        Channels.of,
        _check_own_certificate,
        _check_web_certificate,
        _check_ca,
        _check_provider,
        _check_folders,
        _check_secrets_key,
        _check_fence,
        _check_database,
        _check_shared_place,
    )
    found = []
    for check in checks:
        try:
            check(settings)
        except ConfigError as error:
            found.append(str(settings_file.placed(error, file)))
        except HoldfastError as error:
            found.append(str(error))
    return found


def _check_own_certificate(settings: ControllerConfig) -> None:
    server_context(settings.tls)
    own = certificate.read(settings.cert)
    if own.identity.kind is not Kind.CONTROLLER or own.identity.cluster != settings.cluster:
        problem = (
            f"cert: {settings.cert} is that of {own.identity}, and not of a controller of {settings.cluster!r}."
        )
        raise ConfigError(problem, fix="Correct cert or cluster.")
    if settings.ca_directory is None and own.ends_at < time.time():
        fix = "Have another one issued: without ca_directory the controller can't renew it."
        raise ConfigError(f"cert: {settings.cert} has ended.", fix=fix)


def _check_web_certificate(settings: ControllerConfig) -> None:
    if settings.web.cert is not None and settings.web.key is not None:
        files = TlsFiles(settings.ca, settings.web.cert, settings.web.key)
        server_context(files, anyone=True)
        server_names.named(files.cert)


def _check_ca(settings: ControllerConfig) -> None:
    if settings.ca_directory is not None:
        pki.check_ca(settings.ca_directory)
        names_of(settings)


def _check_provider(settings: ControllerConfig) -> None:
    if settings.oidc.issuer:
        from holdfast_controller.shell.enrolment import id_tokens

        id_tokens.ca_of(settings.oidc)


def _check_folders(settings: ControllerConfig) -> None:
    folders = {"state_dir": settings.state_dir}
    if settings.log_file is not None:
        folders["log_file"] = settings.log_file.parent
    for key, folder in folders.items():
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir():
            raise ConfigError(f"{key}: {there} is no directory.", fix="Name another one.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{key}: {there} can't be written by this user.", fix="Run it as the controller's user."
            )


def _check_secrets_key(settings: ControllerConfig) -> None:
    if settings.secrets_key.exists():
        read_keys(settings.secrets_key)


def _check_fence(settings: ControllerConfig) -> None:
    for program in settings.fence.command[:1]:
        if not os.path.isfile(program) or not os.access(program, os.X_OK):
            problem = f"fence.command: {program} is no program that can be started."
            raise ConfigError(problem, fix=f"Correct the path, or: chmod 755 {program}")


def _check_database(settings: ControllerConfig) -> None:
    if settings.database_url:
        # The driver is a package of its own.
        from holdfast_controller.shell.store.databases.postgresql.address import dial

        dial(settings.database_url)


def _check_shared_place(settings: ControllerConfig) -> None:
    if settings.bundles.shared:
        SharedPlace(settings.bundles.shared).check()
