"""The manifest of a backup, its first part."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from holdfast._base.version import __version__
from holdfast.errors import StoreError, WrongVersion
from holdfast_controller.shell.store.migrate import newest_revision

FORMAT = 1
NAME = "manifest.json"
STORE = "store/holdfast.db"
SETTINGS = "settings/controller.toml"
CA, OWN, BUNDLES, AUDIT = "ca/", "own/", "bundles/", "audit/"
"""Folders within a backup."""
SECRETS_KEY = f"{OWN}secrets.key"
"""The file of keys that decrypt the store's secrets; without it they have to be set again."""


@dataclass(frozen=True)
class Member:
    """A file of a backup."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Layout:
    """Original paths of the files."""

    settings: str
    state_dir: str
    ca: str
    cert: str
    key: str
    ca_directory: str = ""


@dataclass(frozen=True)
class Manifest:
    """``taken_at`` is epoch seconds, ``schema`` the store's revision; ``keys``: the CA's key is in it."""

    version: str
    schema: str
    cluster: str
    taken_at: float
    epoch: int
    sequence: int
    keys: bool
    bundles: bool
    layout: Layout
    members: tuple[Member, ...]
    format: int = FORMAT

    def dump(self) -> bytes:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=1).encode()


def load(content: bytes) -> Manifest:
    """Parse a manifest. Raises ``StoreError`` for other content, ``WrongVersion`` for one of a newer Holdfast."""
    try:
        found: dict[str, Any] = json.loads(content)
        written, made_by = int(found["format"]), str(found["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError("The file has no manifest of a backup.", fix=_FIX) from error
    if written > FORMAT or _parts(made_by) > _parts(__version__) or str(found.get("schema")) > newest_revision():
        raise WrongVersion(
            f"The backup was made by Holdfast {made_by} (schema {found.get('schema')}); this is {__version__}"
            f" (schema {newest_revision()}).",
            fix="Install that version here, or a newer one.",
        )
    try:
        members = tuple(Member(**member) for member in found.pop("members"))
        manifest = Manifest(**found | {"layout": Layout(**found["layout"]), "members": members})
    except (TypeError, KeyError) as error:
        raise StoreError(f"The manifest of the backup can't be read: {error}.", fix=_FIX) from error
    for member in members:
        if member.name.startswith("/") or ".." in member.name.split("/"):
            raise StoreError(f"The backup names a file outside of it: {member.name!r}.", fix=_FIX)
    return manifest


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:3] if part.isdecimal()]


_FIX = "Take a file that `holdfast-controller backup` has made."
