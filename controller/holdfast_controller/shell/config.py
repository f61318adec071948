"""The controller's configuration: one frozen object, read once from ``controller.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.tls import TlsFiles


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

    @property
    def tls(self) -> TlsFiles:
        """The three PEM files."""
        return TlsFiles(self.ca, self.cert, self.key)

    @property
    def database(self) -> Path:
        """The embedded store."""
        return self.state_dir / "holdfast.db"
