"""Settings that change while the controller runs, upon SIGHUP and ``holdfast-controller reload``.

A file with anything wrong in it changes nothing. Of a right one, what is in ``LIVE`` counts at once; what else differs
is named, and counts from the next start on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast._base import config as settings_file
from holdfast._daemon import log
from holdfast.errors import ConfigError
from holdfast_controller.core.model.accounts.users import RunAs
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.step.commands import PoliciesChanged
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.base.machine_types_config import machine_types_of
from holdfast_controller.shell.base.spares_config import rules_of
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.convert.job_defaults import JobDefaults
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.main.shared_settings import digests
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.services.job_service import JobService
from holdfast_controller.shell.store.stored_bytes import MIB

LIVE = frozenset(
    {
        "admins",
        "advertise",
        "backfill",
        "backup_within",
        "certificates",
        "disconnect_policy",
        "hang_action",
        "health_cordons",
        "host_checks",
        "injection_projects",
        "log_level",
        "machine_types",
        "max_jobs",
        "names",
        "notification_hosts",
        "notification_retry_for",
        "notifications",
        "quotas",
        "retention",
        "run_as",
        "spares",
        "topology",
        "underuse",
        "usage_half_life",
        "user_quotas",
        "waiting_jobs_per_user",
    }
)
"""Keys of controller.toml that a reload applies; all others need a restart."""

Change = Callable[[ControllerConfig], Callable[[], object]]
"""Prepares new settings for one part, and returns what makes them count. Preparing raises ``ConfigError``."""


def policies_of(config: ControllerConfig, secret_key: bytes) -> Policies:
    """The settings of the core."""
    return Policies(
        leases=LeasePolicy(
            config.heartbeat_interval,
            config.suspect_after,
            config.lease,
            config.lost_after,
            fence_call_s=config.fence.after if config.fence.command else 0.0,
        ),
        secret_key=secret_key,
        max_jobs=config.max_jobs,
        waiting_jobs_per_user=config.waiting_jobs_per_user,
        health_cordons_pct=config.health_cordons,
        cluster_name=config.cluster,
        quotas=config.limits,
        backfill=Backfill(config.backfill),
        spares=rules_of(config.spares, config.topology),
        machine_types=machine_types_of(config.machine_types),
        usage_half_life_s=config.usage_half_life,
        admins=frozenset(config.admins),
        injection_projects=frozenset(config.injection_projects),
        run_as=RunAs(config.run_as),
        keep_jobs_s=config.retention.jobs,
        keep_jobs=config.retention.jobs_most,
        host_checks=config.host_checks.policy,
        sign_in=config.oidc.policy,
    )


class Settings:
    """The settings in effect, and what changes them. Without a ``file`` they stay as they are.

    ``changes`` are of the running parts, in the order in which they count.
    """

    def __init__(self, config: ControllerConfig, file: Path | None, changes: Sequence[Change]) -> None:
        self.config = config
        """What needs a restart is in it as it was at the start."""
        self._file, self._changes = file, changes
        self._lock = asyncio.Lock()
        self._asked = asyncio.Event()
        if file is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def run(self) -> None:
        """Reload upon each SIGHUP, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload()

    async def reload(self) -> dict[str, Any]:
        """Read the file again: ``{"changed": [...], "restart": [...]}``, names of keys; or ``{"refused": WHY}``."""
        file = self._file
        if file is None:
            return {"refused": "it was started without a file of settings"}
        async with self._lock:
            try:
                written = await asyncio.to_thread(settings_file.load, ControllerConfig, file)
                try:
                    return await self._apply(written)
                except ConfigError as error:
                    raise settings_file.placed(error, file) from error
            except ConfigError as error:
                problem = str(error)
                log.warning("settings.refused", error=problem, fix="the settings before are still in effect")
                return {"refused": problem}

    async def _apply(self, written: ControllerConfig) -> dict[str, Any]:
        old = self.config
        names = [field.name for field in dataclasses.fields(ControllerConfig)]
        differing = [name for name in names if getattr(written, name) != getattr(old, name)]
        changed = [name for name in differing if name in LIVE]
        restart = [name for name in differing if name not in LIVE]
        new = dataclasses.replace(old, **{name: getattr(written, name) for name in changed})
        for count in [prepare(new) for prepare in self._changes]:
            made = count()
            if asyncio.iscoroutine(made):
                await made
        self.config = new
        log.info("settings.reloaded", changed=changed, needs_restart=restart)
        return {"changed": changed, "restart": restart}


def change_receivers(jobs: JobService, dispatcher: Dispatcher) -> Change:
    """Prepare receivers of notifications, what holds for jobs that don't say, and the log's level."""

    def prepare(config: ControllerConfig) -> Callable[[], object]:
        channels = Channels.of(config)
        defaults = JobDefaults.of(config)

        def count() -> None:
            jobs.change(defaults, channels)
            dispatcher.change(channels, config.notification_retry_for)
            log.set_level(config.log_level)

        return count

    return prepare


def change_policies(driver: Driver, guard: Guard) -> Change:
    """Prepare those of the core. Users who are no longer admins lose streams that they may not read any more."""

    def prepare(config: ControllerConfig) -> Callable[[], object]:
        new = policies_of(config, driver.reactor.policies.secret_key)

        def count() -> None:
            before, kept = driver.reactor.settings, config.retention
            driver.store.engine.settings = digests(config)
            driver.stored.user_most, driver.stored.project_most = kept.user_mb * MIB, kept.project_mb * MIB
            if new != before:
                driver.feed(PoliciesChanged(new))
            for name in before.admins - new.admins:
                guard.access_changed(f"user/{name}")

        return count

    return prepare
