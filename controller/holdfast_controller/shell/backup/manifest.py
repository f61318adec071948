"""The manifest of a backup, its first part."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast._base.dataclass import dataclass
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
    """Absolute paths of a controller's files: in the manifest the original ones."""

    settings: Path
    state_dir: Path
    ca: Path
    cert: Path
    key: Path
    ca_directory: Path | None = None

    def below(self, root: Path) -> Layout:
        """The same files in another place."""
        state = root.absolute() / "state"
        ca_directory = state / "ca" if self.ca_directory else None
        return Layout(
            settings=root.absolute() / "controller.toml",
            state_dir=state,
            ca=state / "ca.pem" if ca_directory is None else ca_directory / self.ca.name,
            cert=state / "controller.pem",
            key=state / "controller.key",
            ca_directory=ca_directory,
        )


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
        written = asdict(self)
        written["layout"] = {name: str(path or "") for name, path in written["layout"].items()}
        return json.dumps(written, indent=1).encode()


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
        layout = {name: Path(path) for name, path in found["layout"].items() if path}
        manifest = Manifest(**found | {"layout": Layout(**layout), "members": members})
    except (TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"The manifest of the backup can't be read: {error}.", fix=_FIX) from error
    for member in members:
        if member.name.startswith("/") or ".." in member.name.split("/"):
            raise StoreError(f"The backup names a file outside of it: {member.name!r}.", fix=_FIX)
    return manifest


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:3] if part.isdecimal()]


_FIX = "Take a file that `holdfast-controller backup` has made."
