"""The environments of all users of a host: each has its own, and its own downloads; bounds hold for them all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from holdfast._daemon import log
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.packages.environments import Common, Environments
from holdfast_agent.shell.packages.installer import Installer, end_left_over
from holdfast_agent.shell.packages.interpreter import Interpreter
from holdfast_agent.shell.packages.settings import Packages
from holdfast_agent.shell.users import safe_paths


class EnvironmentsByUser:
    """Environments of each user, in ``directory``: ``environments/UID``, ``downloads/UID``, and ``work`` for builds."""

    def __init__(
        self, directory: Path, settings: Packages, environment: Mapping[str, str], search_path: str
    ) -> None:
        """``environment``: the host's variables for installations, see ``pip_config.settings_of``."""
        self._directory, self._settings = directory, settings
        self._environment, self._search_path = environment, search_path
        self._common = Common()
        self._of: dict[WorkerUser, Environments] = {}

    def of(self, user: WorkerUser) -> Environments:
        """Environments of one user."""
        found = self._of.get(user)
        if found is None:
            installer = Installer(user)
            interpreter = Interpreter(self._settings, installer, self._search_path, self._environment)
            found = Environments(self._directory, self._settings, installer, interpreter, self._common)
            self._of[user] = found
        return found

    def clean(self, jobs: Collection[str]) -> None:
        """Remove half-done builds of earlier runs and the marks of jobs that are gone; once, at the agent's start."""
        left = sum(end_left_over(cache) for cache in self._directory.glob("downloads/*"))
        if left:
            log.info("installation.leftover_killed", processes=left)
        safe_paths.try_to_remove(self._directory / "work")
        for entry in self._directory.glob("environments/*/*"):
            if entry.suffix == ".jobs":
                for name in entry.iterdir():
                    if name.name not in jobs:
                        name.unlink(missing_ok=True)
            elif not entry.suffix and not entry.with_suffix(".ready").exists():
                safe_paths.try_to_remove(entry)

    def release(self, job: str) -> None:
        """The job has left this host."""
        for users in self._directory.glob("environments/*/*.jobs"):
            (users / job).unlink(missing_ok=True)
