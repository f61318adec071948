"""The controller's configuration: one frozen object, read once from ``controller.toml``."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from holdfast._base import extras, projects
from holdfast._base.dataclass import dataclass
from holdfast._base.identity import NAME_RULE, is_name
from holdfast._base.job_file.choices import HangAction
from holdfast._daemon import log
from holdfast._daemon.metrics import listener
from holdfast._security import server_names
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, MissingPackages
from holdfast.spec import DisconnectPolicy
from holdfast_controller.core.model.accounts.quota import USER, Quota
from holdfast_controller.core.model.accounts.shares import HALF_LIFE_S
from holdfast_controller.core.model.accounts.users import RunAs
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.shell.base import audit_syslog
from holdfast_controller.shell.base.host_checks_config import HostChecksConfig
from holdfast_controller.shell.base.machine_types_config import MachineTypeConfig, check_machine_types
from holdfast_controller.shell.base.oidc_config import OidcConfig
from holdfast_controller.shell.base.spares_config import SparesConfig, check_spares
from holdfast_controller.shell.base.topology_config import check_topology
from holdfast_controller.shell.base.underuse_config import UnderuseConfig
from holdfast_controller.shell.bundles.bundle_store import BundleConfig
from holdfast_controller.shell.store.series.file import Limits


def check_quota(where: str, quota: Quota) -> None:
    """Raise ``ConfigError`` for a limit below 0; ``where`` is the table's name."""
    for name in ("gpus", "running_jobs", "waiting_jobs"):
        value = getattr(quota, name)
        if value is not None and value < 0:
            raise ConfigError(f"{where}.{name} is {value}.", fix="Write 0 or more, or leave it out.")
    if quota.max_priority is not None and not 1 <= quota.max_priority <= 3:
        raise ConfigError(f"{where}.max_priority is {quota.max_priority}.", fix="Write 1, 2 or 3.")


@dataclass(frozen=True)
class ChannelConfig:
    """Keys of each ``[[notifications]]``: a receiver that jobs may name."""

    name: str
    """By which jobs, and the controller's log, name it."""
    url: str = field(repr=False)
    """May hold a secret, and is never shown."""
    events: tuple[str, ...] = ()
    """Events of every job sent to it; without any, it gets only those of jobs that name it."""
    cluster_events: tuple[str, ...] = ()
    """Kinds of events of hosts and of the cluster sent to it; ``ALL`` for all of them."""
    service: bool = False
    """An http(s) URL is that of a service which apprise knows, not of a webhook of ours."""


@dataclass(frozen=True)
class CertificateConfig:
    """Keys of ``[certificates]``: how long each is good for. All are renewed after two thirds of that."""

    host: float = 86_400.0
    """Life of a host's certificate."""
    user: float = 30 * 86_400.0
    """Life of a user's."""
    controller: float = 90 * 86_400.0
    """Life of the controller's own."""
    renew_after_end: float = 7 * 86_400.0
    """So long after its end a certificate is still good for getting the next one, and for nothing else."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for a life too short to be renewed in."""
        for name in ("host", "user", "controller"):
            if getattr(self, name) < 5:
                problem = f"certificates.{name} is {getattr(self, name):.12g} s."
                raise ConfigError(problem, fix="Write 5s or more; a day is usual.")


@dataclass(frozen=True)
class RetentionConfig:
    """Keys of ``[retention]``: for how long what has ended is kept. 0: for ever."""

    jobs: float = 90 * 86_400.0
    """Jobs after their end, with output on hosts, evidence of hangs, and their history."""
    jobs_most: int = 50_000
    """Jobs that have ended; beyond that the oldest ones go."""
    history: float = 90 * 86_400.0
    """Events of hosts, users and the cluster."""
    series: float = 30 * 86_400.0
    """Minutes of ranks' figures; then quarter-hours take their place, for 400 days."""
    series_mb: int = 10_000
    """MiB of all ranks' figures; beyond that the oldest go. 0: no limit."""
    user_mb: int = 20_480
    """MiB of the controller's disk that the jobs of one user may take; from then on none is accepted. 0: no limit."""
    project_mb: int = 0
    """The same of one project."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for what is below 0."""
        for name in ("jobs", "jobs_most", "history", "series", "series_mb", "user_mb", "project_mb"):
            if getattr(self, name) < 0:
                fix = "Write 0 for no limit, or more."
                raise ConfigError(f"retention.{name} is {getattr(self, name):.12g}.", fix=fix)


def _check_listen(key: str, address: str) -> None:
    """Raises ``ConfigError`` for what is no HOST:PORT; the host may be empty, for all addresses."""
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{key} is {address!r}.", fix="Write HOST:PORT, such as 0.0.0.0:7443.")


@dataclass(frozen=True)
class FenceConfig:
    """Keys of ``[fence]``: the site's command that switches a silent host off, and proves it by exit status 0."""

    command: tuple[str, ...] = ()
    """A program's absolute path and its arguments; it finds the host in HOLDFAST_HOST."""
    after: float = 30.0
    """Silence after which it is called for a host that holds work."""
    timeout: float = 60.0
    """The most that it may take."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for a command that can't be started, or has no time."""
        if self.command and not os.path.isabs(self.command[0]):
            fix = 'For example: command = ["/etc/holdfast/fence"].'
            raise ConfigError("fence.command must begin with a program's absolute path.", fix=fix)
        if not 0 < self.timeout <= 3600:
            raise ConfigError(f"fence.timeout is {self.timeout:.12g} s.", fix="Write more than 0, and 1h at most.")


@dataclass(frozen=True)
class WebConfig:
    """Keys of ``[web]``: the page for browsers, over TLS; who opens it signs in by ``holdfast web``."""

    listen: str = ""
    """HOST:PORT where it is served; nowhere unless set, any free port for 0."""
    cert: Path | None = None
    """PEM file of a certificate that browsers trust, with its chain. Without it the controller's own is shown."""
    key: Path | None = None
    """The private key of that certificate, in PEM form."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for an address that is none, or half a certificate."""
        if self.listen:
            _check_listen("web.listen", self.listen)
        if (self.cert is None) != (self.key is None):
            raise ConfigError("web.cert and web.key go together.", fix="Set both, or neither.")


LOST_TO_LEASE = 1.1
"""At the lease's end a shim has sent KILL; the rest is for the kernel, and for clocks that differ."""


@dataclass(frozen=True)
class ControllerConfig:
    """Keys of ``controller.toml``. Durations in seconds, or as "90s", "15m"."""

    made_by: ClassVar[str] = "holdfast-controller init --advertise NAME"
    listen: str
    """HOST:PORT; port 0 takes any free one."""
    state_dir: Path
    """The event log and all else that has to last; back it up."""
    ca: Path
    """PEM file of the cluster's CA, by which callers are known."""
    cert: Path
    """The controller's certificate, in PEM form; renewed by itself where there is a ``ca_directory``."""
    key: Path
    """Its private key, in PEM form."""
    cluster: str
    """The cluster's name, as in all its certificates."""
    database_url: str = field(default="", repr=False)
    """A PostgreSQL database for the event log, as libpq takes it: "postgresql://holdfast@db1,db2/holdfast". Without it
    the log is a file in ``state_dir``. May hold a password, and is never shown."""
    heartbeat_interval: float = 5.0
    """How often each host says that it is there."""
    suspect_after: float = 15.0
    """A host that was not heard for so long is shown as silent."""
    lease: float = 60.0
    """Ranks of a host that is cut off are stopped after it, where their job's policy says so."""
    lost_after: float = 66.0
    """A host that was not heard for so long is lost; at least a tenth longer than ``lease``."""
    max_jobs: int = 100_000
    """Jobs that may wait or run at once."""
    health_cordons: int = 10
    """Percent of the hosts that findings about hardware may keep from work at a time, and at least two hosts, though
    not most of a few; 0: none. Above it they are only reported."""
    waiting_jobs_per_user: int = 10_000
    """Jobs of one user that may wait at once, unless ``user_quotas`` says otherwise."""
    backfill: str = "projected"
    """Who may start ahead of a waiting job on hosts that it could use. "projected": one that by the expected run times
    doesn't delay it; "loan": any other too, which after an hour, or once the waiting job is overdue, is stopped for it;
    "strict": none but SPOT jobs, which give way again."""
    usage_half_life: float = HALF_LIFE_S
    """What a project has used of GPUs counts half after it, where projects have weights."""
    topology: tuple[str, ...] = ()
    """Labels that name the levels of the network, the outermost first, such as ["pod", "rack"]: see ``placement``."""
    hang_action: str = "NOTIFY"
    """What a confirmed hang leads to where the job doesn't say: NOTIFY, RESTART or OFF."""
    disconnect_policy: str = "REPLACE_IF_ISOLATED"
    """Where the job doesn't say, the fate of work on a host that is cut off: KEEP, STOP_AND_REPLACE or
    REPLACE_IF_ISOLATED."""
    quotas: dict[str, Quota] = field(default_factory=dict)
    """A table for each project; the one named "*" is for projects that have none."""
    user_quotas: dict[str, Quota] = field(default_factory=dict)
    """A table for each user, whatever the project; the one named "*" is for users that have none."""
    underuse: dict[str, UnderuseConfig] = field(default_factory=dict)
    """A table for each project; the one named "*" is for projects that have none."""
    spares: dict[str, SparesConfig] = field(default_factory=dict)
    """A table for each kind of hosts, with any name."""
    machine_types: dict[str, MachineTypeConfig] = field(default_factory=dict)
    """A table for each class of hosts, with the name that jobs give as ``machineType``."""
    host_checks: HostChecksConfig = field(default_factory=HostChecksConfig)
    """Active checks of idle hosts."""
    injection_projects: tuple[str, ...] = ()
    """Projects into whose jobs faults may be injected by ``holdfast job inject``; "*" is all of them."""
    admins: tuple[str, ...] = ()
    """Users who may do everything, whatever roles they were given."""
    run_as: str = "service"
    """For owners who are mapped to no account. "service": each host's worker_user; "same-name": as the owner."""
    ca_directory: Path | None = None
    """Folder of ca.pem and ca.key. Without it no certificate is issued here."""
    enrolment_listen: str = ""
    """HOST:PORT where hosts and users get certificates, without having one; needs ``ca_directory``."""
    advertise: str = ""
    """Name or address under which others reach this machine; that of ``listen`` unless it is a wildcard."""
    names: tuple[str, ...] = ()
    """Further names and addresses of it. All are in the controller's certificate, with the machine's own name."""
    certificates: CertificateConfig = field(default_factory=CertificateConfig)
    oidc: OidcConfig = field(default_factory=OidcConfig)
    """The identity provider by which users sign in; needs ``enrolment_listen``."""
    bundles: BundleConfig = field(default_factory=BundleConfig)
    """How much packaged code is kept."""
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    """For how long what has ended is kept."""
    log_level: str = "info"
    """``debug`` (every event of every job, too), ``info``, ``warning``, ``error`` or ``critical``."""
    log_file: Path | None = None
    """Where the log goes, and all else that the controller says; without it, stderr."""
    log_file_mb: int = 64
    """MiB of that file before it is renamed and a new one begun; four full ones are kept."""
    audit_mb: int = 128
    """MiB of each trail of the audit log (admins, users, unknown callers) that are kept."""
    audit_days: int = 400
    """Days for which its entries are kept, within ``audit_mb``."""
    audit_syslog: str = ""
    """A syslog server that gets each of its lines: "unix:/dev/log", or "udp:", "tcp:" or "tls:" and HOST:PORT."""
    fence: FenceConfig = field(default_factory=FenceConfig)
    """The command that switches a silent host off, where the site has one."""
    http_port: int | None = None
    """Where JSON over HTTP is served, at the address of ``listen``; nowhere unless set, any free port for 0."""
    web: WebConfig = field(default_factory=WebConfig)
    """The page for browsers."""
    metrics_listen: str = ""
    """HOST:PORT of a loopback address, where this machine may read /metrics; others do over ``http_port``."""
    backup_within: float = 0.0
    """A backup that is older needs attention; 0: none is expected."""
    notifications: tuple[ChannelConfig, ...] = ()
    """The channels, each a table ``[[notifications]]``."""
    notification_hosts: tuple[str, ...] = ()
    """Hosts that the URLs in jobs may name: "hooks.example", "hooks.example:8443", "*.example"."""
    notification_retry_for: float = 21_600.0
    """A notification that could not be delivered for so long is given up."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for times by which work could run twice, or every host be silent."""
        if self.database_url:
            try:
                extras.require("database_url", "postgresql")
            except MissingPackages as error:
                fix = "Install holdfast-controller-postgresql, or pip install 'holdfast[controller,postgresql]'."
                raise ConfigError(error.message, fix=fix) from error
            from holdfast_controller.shell.store.databases.postgresql.address import checked

            checked(self.database_url)
        if not 0 < self.heartbeat_interval < self.suspect_after < self.lost_after:
            names = "heartbeat_interval, suspect_after and lost_after"
            raise ConfigError(f"{names} must be above 0, each longer than the one before.")
        if self.http_port is not None and not 0 <= self.http_port < 65536:
            raise ConfigError(f"http_port is {self.http_port}; ports go from 1 to 65535.")
        for name in ("audit_mb", "audit_days", "log_file_mb", "max_jobs", "waiting_jobs_per_user"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}.", fix="Write 1 or more.")
        if self.backup_within < 0:
            raise ConfigError(f"backup_within is {self.backup_within:.12g}.", fix="Write 0 or more, such as 26h.")
        if self.audit_syslog:
            audit_syslog.parse(self.audit_syslog)
        if self.metrics_listen:
            host, _ = listener.parse(self.metrics_listen, "metrics_listen")
            if not listener.is_loopback(host):
                problem = f"metrics_listen is {self.metrics_listen}, which others than this machine can reach."
                raise ConfigError(problem, fix="Use 127.0.0.1, or scrape /metrics on http_port, over mutual TLS.")
        longest = self.lost_after / LOST_TO_LEASE
        if not 0 < self.lease <= longest + 1e-6:
            problem = f"lease is {self.lease:.12g} s; with lost_after at {self.lost_after:.12g} s"
            raise ConfigError(
                f"{problem} it must be above 0 and at most {longest:.12g} s.",
                fix="A host that is cut off has to have stopped its work before that is started elsewhere.",
            )
        for name, underuse in self.underuse.items():
            underuse.check(f"underuse.{name}")
        for key in ("quotas", "user_quotas"):
            for name, quota in getattr(self, key).items():
                check_quota(f"{key}.{name}", quota)
        for key in ("quotas", "underuse", "injection_projects"):
            for project in getattr(self, key):
                projects.check_setting(key, project)
        self.host_checks.check()
        check_topology(self.topology)
        check_spares(self.spares, self.topology)
        check_machine_types(self.machine_types)
        log.check_level(self.log_level)
        if self.hang_action not in HangAction.__members__:
            fix = f"Write {' or '.join(HangAction.__members__)}."
            raise ConfigError(f"hang_action is {self.hang_action!r}.", fix=fix)
        if self.backfill not in {choice.value for choice in Backfill}:
            raise ConfigError(f"backfill is {self.backfill!r}.", fix='Write "strict", "projected" or "loan".')
        if not 60 <= self.usage_half_life <= 3660 * 86_400:
            fix = 'Write a duration such as "7d": a minute at least, ten years at most.'
            raise ConfigError(f"usage_half_life is {self.usage_half_life:.12g} s.", fix=fix)
        if not 0 <= self.health_cordons <= 100:
            raise ConfigError(f"health_cordons is {self.health_cordons}.", fix="Write a percentage, 0 to 100.")
        for key in ("listen", "enrolment_listen"):
            if getattr(self, key):
                _check_listen(key, getattr(self, key))
        if self.fence.command and not self.suspect_after <= self.fence.after <= self.lost_after:
            problem = f"fence.after is {self.fence.after:.12g} s."
            fix = f"Write {self.suspect_after:.12g} (suspect_after) to {self.lost_after:.12g} (lost_after)."
            raise ConfigError(problem, fix=fix)
        if self.enrolment_listen and self.ca_directory is None:
            fix = "Name the folder of ca.pem and ca.key."
            raise ConfigError("enrolment_listen is set, and ca_directory is not.", fix=fix)
        if self.oidc.issuer and not self.enrolment_listen:
            fix = "Set enrolment_listen and ca_directory: users get their certificates there."
            raise ConfigError("oidc.issuer is set, and enrolment_listen is not.", fix=fix)
        if self.disconnect_policy not in DisconnectPolicy.__members__:
            fix = f"Write {' or '.join(DisconnectPolicy.__members__)}."
            raise ConfigError(f"disconnect_policy is {self.disconnect_policy!r}.", fix=fix)
        if self.run_as not in {choice.value for choice in RunAs}:
            fix = 'Write "service" (each host\'s worker_user), or "same-name" (the account of the user\'s name).'
            raise ConfigError(f"run_as is {self.run_as!r}.", fix=fix)
        for where, name in (("advertise", self.advertise), *(("names", name) for name in self.names)):
            if name or where == "names":
                server_names.checked(name, where)
        for name in self.admins:
            if not is_name(name):
                raise ConfigError(f"admins: {name!r} is no name.", fix=f"Names: {NAME_RULE}.")

    @property
    def tls(self) -> TlsFiles:
        """The three PEM files."""
        return TlsFiles(self.ca, self.cert, self.key)

    @property
    def host(self) -> str:
        """The address of ``listen`` without its port and brackets."""
        return self.listen.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def limits(self) -> dict[str, Quota]:
        """Its quotas by holder."""
        return self.quotas | {USER + name: quota for name, quota in self.user_quotas.items()}

    @property
    def secrets_key(self) -> Path:
        """File with the key that seals secrets; mode 0600, outside the store."""
        return self.state_dir / "secrets.key"

    @property
    def database(self) -> Path:
        """The file of the store, where no ``database_url`` is set."""
        return self.state_dir / "holdfast.db"

    @property
    def series_limits(self) -> Limits:
        """Bounds on the series of ranks."""
        return Limits(self.retention.series_mb << 20, self.retention.series)

    @property
    def series_database(self) -> Path:
        """Series of ranks, which may be lost."""
        return self.state_dir / "series.db"
