"""``[packages]`` of agent.toml, and how a preparation of code fails."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast.bundles.archive import Limits


@dataclass(frozen=True)
class Packages:
    """Settings for code and environments: location, size bounds, package indexes, installer."""

    cache_dir: Path | None = None
    """Without it, ``packages`` in the agent's state_dir. On the same file system as that, best."""
    bundles_mb: int = 2048
    """MiB of fetched bundles that are kept; the longest unused go first."""
    environments_mb: int = 40_960
    """MiB of installed environments that are kept; those of jobs on this host stay."""
    downloads_mb: int = 20_480
    """MiB that uv may keep of what it has downloaded."""
    unpacked_mb: int = 4096
    """MiB that one bundle may unpack to."""
    unpacked_files: int = 50_000
    """Files, folders and links that one bundle may have."""
    fetch_timeout: float = 600.0
    """Seconds that fetching one bundle may take."""
    install_timeout: float = 1800.0
    """Seconds that installing one environment may take."""
    python: str = "python3"
    """Interpreter of the environments: a path, or a name on the workers' PATH."""
    system_site_packages: bool = True
    """Environments see what that interpreter has installed; what requirements name is installed all the same."""
    index_url: str = field(default="", repr=False)
    """Package index; PyPI when empty. With any of these four set, pip's configuration names no sources."""
    extra_index_urls: tuple[str, ...] = field(default=(), repr=False)
    """Further ones."""
    find_links: tuple[str, ...] = field(default=(), repr=False)
    """Folders or pages with wheels."""
    no_index: bool = False
    """Only ``find_links``."""
    offline: bool = False
    """Nothing is fetched from anywhere."""

    @property
    def limits(self) -> Limits:
        """Size limits for a bundle on this host."""
        return Limits(files=self.unpacked_files, bytes=self.unpacked_mb << 20)


class CodeProblem(Exception):
    """Why code can't be made ready, as a sentence without its full stop. ``log`` is all that the installer said."""

    def __init__(self, message: str, *, host_fault: bool = False, log: bytes = b"") -> None:
        super().__init__(message)
        self.message, self.host_fault, self.log = message, host_fault, log
