"""A client's settings, the controller's address and our certificate: ``client.toml``, found once, read once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast._base import addresses, config
from holdfast.errors import ConfigError

__all__ = ["ClientSettings", "find", "load"]

VARIABLE = "HOLDFAST_CONFIG"
SYSTEM_WIDE = Path("/etc/holdfast/client.toml")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a client reaches its cluster. ``controller`` is ``HOST:PORT``; the rest are PEM files."""

    controller: str
    """Several addresses, with commas between, where there are several controllers: whichever leads is found."""
    ca: Path
    cert: Path
    key: Path
    enrolment: str = ""
    """``HOST:PORT`` where the certificate is renewed; empty: not by itself."""
    oidc: bool = False
    """The site's identity provider vouches for the user, at each renewal too."""


def find(environ: Mapping[str, str] = os.environ, system_wide: Path = SYSTEM_WIDE) -> Path:
    """The file that counts: ``HOLDFAST_CONFIG``, else the user's own, else the system's.

    Raises ``ConfigError`` that names the places where it looked and what to do.
    """
    if named := environ.get(VARIABLE):
        path = Path(os.path.expanduser(named))
        if not os.path.exists(path):
            own = own_directory(environ) / "client.toml"
            moved = f"To use {own}: unset {VARIABLE}" if os.path.isfile(own) else "Correct it, or unset it."
            raise ConfigError(f"{VARIABLE} names {path}, and {_lack(path)}.", fix=moved)
        return path
    places = (own_directory(environ) / "client.toml", system_wide)
    for path in places:
        if os.path.isfile(path):
            return path
    here = Path(".holdfast-dev/client.toml").absolute()
    raise ConfigError(
        "No cluster is configured: there is neither " + " nor ".join(str(p) for p in places) + ".",
        fix=f"Use the dev cluster of this folder: export {VARIABLE}={shlex.quote(str(here))}"
        if os.path.isfile(here)
        else "Log in with the line `holdfast login …` that your cluster's admin gives you"
        " (holdfast user token NAME), or start a cluster on this machine: holdfast dev start",
    )


def own_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the user's own settings."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "~"), ".config")
    return Path(os.path.expanduser(home)) / "holdfast"


def _lack(path: Path) -> str:
    """Why there seems to be no file."""
    try:
        os.stat(path)
    except PermissionError:
        return "you may not look there"
    except (OSError, ValueError):
        pass
    return "there is no such file"


def load(path: Path | None = None) -> ClientSettings:
    """Read the settings from ``path``, or from where ``find`` says. Raises ``ConfigError``."""
    path = path or find()
    settings = config.load(ClientSettings, path)
    addresses.parse(settings.controller, f"{path}: controller")
    return settings
