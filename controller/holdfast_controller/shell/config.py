"""The controller's configuration: one frozen object, read once from ``controller.toml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.tls import TlsFiles
from holdfast_controller.core.quotas import Quota


@dataclass(frozen=True)
class QuotaConfig:
    """Keys of ``[quotas.PROJECT]``: what the project's jobs may hold at once. Without a key there is no limit."""

    gpus: int | None = None
    running_jobs: int | None = None


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
    quotas: dict[str, QuotaConfig] = field(default_factory=dict)
    """A table for each project; the one named "*" is for projects that have none."""
    log_level: str = "info"

    @property
    def tls(self) -> TlsFiles:
        """The three PEM files."""
        return TlsFiles(self.ca, self.cert, self.key)

    @property
    def limits(self) -> dict[str, Quota]:
        """The quotas as the core takes them. Raises ``ConfigError`` for one that is below 0."""
        for project, quota in self.quotas.items():
            for name, value in (("gpus", quota.gpus), ("running_jobs", quota.running_jobs)):
                if value is not None and value < 0:
                    raise ConfigError(
                        f"quotas.{project}.{name} is {value}.", fix="Write 0 or more, or leave it out."
                    )
        return {project: Quota(quota.gpus, quota.running_jobs) for project, quota in self.quotas.items()}

    @property
    def database(self) -> Path:
        """The embedded store."""
        return self.state_dir / "holdfast.db"
