"""The controller's configuration: one frozen object, read once from ``controller.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.tls import TlsFiles

LOST_TO_LEASE = 1.2
"""At the lease's end a shim says TERM, and KILL a twelfth of it later; the rest is for the kernel."""


@dataclass(frozen=True)
class ControllerConfig:
    """Keys of ``controller.toml``. Durations in seconds, or as "90s", "15m"."""

    listen: str
    """HOST:PORT; port 0 takes any free one."""
    state_dir: Path
    ca: Path
    cert: Path
    key: Path
    cluster: str
    heartbeat_interval: float = 5.0
    suspect_after: float = 15.0
    lease: float = 60.0
    lost_after: float = 75.0
    max_jobs: int = 100_000
    hang_action: str = "NOTIFY"
    """What a confirmed hang leads to where the job doesn't say: NOTIFY, RESTART or OFF."""
    log_level: str = "info"

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for times by which work could run twice, or every host be silent."""
        if not 0 < self.heartbeat_interval < self.suspect_after < self.lost_after:
            names = "heartbeat_interval, suspect_after and lost_after"
            raise ConfigError(f"{names} must be above 0, each longer than the one before.")
        longest = self.lost_after / LOST_TO_LEASE
        if not 0 < self.lease <= longest:
            problem = f"lease is {self.lease:g} s; with lost_after at {self.lost_after:g} s"
            raise ConfigError(
                f"{problem} it must be above 0 and at most {longest:g} s.",
                fix="A host that is cut off has to have stopped its work before that is started elsewhere.",
            )

    @property
    def tls(self) -> TlsFiles:
        """The three PEM files."""
        return TlsFiles(self.ca, self.cert, self.key)

    @property
    def database(self) -> Path:
        """The embedded store."""
        return self.state_dir / "holdfast.db"
