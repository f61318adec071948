"""The host's files that a worker's container sees: those that its ranks need, and those that the site allows."""

from __future__ import annotations

import os

from holdfast._base.dataclass import dataclass
from holdfast._session.assignment import Launch
from holdfast._session.reports import WorkerId
from holdfast.errors import ConfigError
from holdfast_agent.core.launch.environment import HostFacts, output_directory, scratch_directory


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the host's, ``source``, under the path ``target``."""

    source: str
    target: str
    read_only: bool = False

    def option(self) -> str:
        """The value for podman's or docker's ``--mount``, which is one line of CSV."""
        fields = ["type=bind", f"source={self.source}", f"destination={self.target}"]
        if self.read_only:
            fields.append("readonly")
        return ",".join(map(_quoted, fields))


def site_mount(text: str) -> Mount:
    """The mount that ``/path`` or ``/path:/path/inside``, with or without ``:ro``, asks for. Raises ``ConfigError``."""
    bare, _, last = text.rpartition(":")
    read_only = last == "ro"
    source, _, target = (bare if read_only else text).partition(":")
    mount = Mount(source, target or source, read_only)
    if not (os.path.isabs(mount.source) and os.path.isabs(mount.target)) or ":" in mount.target:
        fix = 'For example "/data", "/data:/mnt/data" or "/data:/mnt/data:ro".'
        raise ConfigError(f"[containers] mounts: {text!r} is no mount.", fix=fix)
    return mount


def for_worker(facts: HostFacts, key: WorkerId, launch: Launch) -> list[Mount]:
    """The job's scratch directory, its output on this host, and where its results go if that is a path."""
    paths = [scratch_directory(facts, key), f"{facts.log_dir}/{key.job}"]
    output = output_directory(launch.output_uri)
    if os.path.isabs(output):
        paths.append(output)
    return [Mount(path, path) for path in paths]


def _quoted(field: str) -> str:
    if not any(c in field for c in ',"\n'):
        return field
    return '"' + field.replace('"', '""') + '"'
