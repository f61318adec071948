"""The agent's settings: one TOML file, read once."""

from __future__ import annotations

import json
import os
import pwd
import re
from dataclasses import field, replace
from pathlib import Path
from typing import ClassVar

from holdfast._base import config
from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Credential, Kind
from holdfast._base.job_file.accounts import NAME_RULE, is_account
from holdfast._daemon import log
from holdfast._daemon.metrics import listener
from holdfast._security import certificate
from holdfast.errors import ConfigError
from holdfast_agent.core.health import site_rules
from holdfast_agent.core.health.site_rules import HealthRule
from holdfast_agent.core.launch.accounts import AccountRules
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.launch.preflight import Minimums
from holdfast_agent.shell.containers.containers import ContainerSettings
from holdfast_agent.shell.containers.mounts import site_mount
from holdfast_agent.shell.packages.settings import Packages
from holdfast_agent.shell.users.accounts import Accounts, user_of

_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
HOOK_MOST_S = 3600.0
_LIMIT_KEYS = ("nofile", "nproc", "stack_kb", "memlock_kb")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Hooks:
    """``[hooks]`` of agent.toml. A command is a program's absolute path and its arguments."""

    prolog: tuple[str, ...] = ()
    """Before a worker starts, and before it restarts in place. A code other than 0: the host is at fault."""
    epilog: tuple[str, ...] = ()
    """Once nothing of a launched generation is left. A code other than 0: the host takes no more work."""
    timeout: float = 60.0
    """Seconds that either may take."""


@dataclass(frozen=True)
class Guard:
    """``[guard]`` of agent.toml, which `holdfast guard` writes: the agent works inside another scheduler's job."""

    pid: int = 0
    """Workers, and the agent, end when this process does; 0: they outlive any. GPUs are left to that scheduler."""
    first_local_rank: int = 0
    """LOCAL_RANK of the first rank here: other agents on this machine have those before it."""
    local_ranks: int = 0
    """LOCAL_WORLD_SIZE, the ranks of all agents on this machine; 0: those of the worker."""
    turn: int = 0
    """Offered in place of the host's cores, of which the scheduler has given the task its own: a worker without GPUs
    goes to the free host with the most of them, so this is the order of the tasks. 0: the real ones."""


@dataclass(frozen=True)
class Config:
    """Keys of agent.toml. Relative paths count from the file's folder."""

    made_by: ClassVar[str] = "holdfast-agent join CONTROLLER --token TOKEN"

    controller: str
    """host:port to dial; several with commas between where there are several controllers: whichever leads is found."""
    name: str
    """This host's, as in its certificate."""
    state_dir: Path
    """Workers' truth and the shims' sockets; must survive reboots."""
    log_dir: Path
    """Output of the ranks."""
    ca: Path
    """PEM file of the cluster's CA."""
    cert: Path
    """The host's certificate, in PEM form."""
    key: Path
    """Its private key, in PEM form."""
    enrolment: str = ""
    """host:port where the controller renews certificates; when empty they are made by other means."""
    address: str = ""
    """Under which workers on other hosts reach this one; when empty that of ``data_interface``, or of the default
    route."""
    data_interface: str = ""
    """Network interface for GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME; unset when empty."""
    port_range: str = "20000-20199"
    """Ports for rendezvous, FIRST-LAST; keep it outside the kernel's ephemeral range."""
    simulated_gpus: int = 0
    """0 reads the real ones."""
    simulated_signals: Path | None = None
    """JSON file that says what the simulated GPUs do, for tests and demonstrations. Without
    it, the file that HOLDFAST_SIMULATED_SIGNALS names, or they report no activity."""
    simulated_topology: Path | None = None
    """Folder that is read in place of /sys to find out which cores and network cards are near to GPUs, for tests and
    demonstrations. Simulated GPUs are at ffff:01:00.0, ffff:02:00.0 and so on."""
    allow_root_workers: bool = False
    """Whether workers may run as root; without it none does, whatever the controller says."""
    worker_user: str = ""
    """Whom workers run as whose job names no account; the agent's own user when empty."""
    lowest_uid: int = 1000
    """Accounts below it are the system's, and jobs don't run as those."""
    allowed_accounts: tuple[str, ...] = ()
    """Accounts below ``lowest_uid`` that jobs may run as all the same."""
    umask: str = "022"
    """Of the ranks, in octal."""
    private_shm: bool = True
    """Give each generation of a job a /dev/shm and IPC of its own on this host, where the agent is root and may."""
    cgroups: bool = True
    """Bound and end each worker's ranks by cgroup v2, where the host lets the agent."""
    cgroup_root: Path | None = None
    """A cgroup that is delegated to the agent; without it, the top of the host's tree."""
    scopes: bool = True
    """Put each worker into a systemd scope of its own, where systemd runs the agent."""
    scope_limits: bool = False
    """Bound each scope by what its job has reserved: MemoryMax, CPUQuota and TasksMax from its machineSpec."""
    max_workers: int = 64
    """Workers at a time."""
    shells: int = 8
    """Shells that users may have open beside ranks on this host at a time; 0 allows none, and ends those that are open.
    A job has to allow them too."""
    shell_idle: float = 3600.0
    """Time after which a shell is ended into which nothing was typed and that wrote nothing."""
    env_file: Path | None = None
    """NAME=VALUE lines for every worker on this host; in a file that ends in .json, one object of them."""
    log_limit_mb: int = 256
    """MiB kept of each stream; older bytes are cut."""
    log_level: str = "info"
    """``debug``, ``info``, ``warning``, ``error`` or ``critical``."""
    metrics_listen: str = ""
    """HOST:PORT where /metrics is served: to all of this machine on a loopback address, else over mutual TLS."""
    metrics_readers: tuple[str, ...] = ("prometheus",)
    """Users who may read it over TLS."""
    log_file: Path | None = None
    """Where the agent's own log goes, and all else that it says; without it, stderr."""
    log_file_mb: int = 64
    """MiB of that file before it is renamed and a new one begun; four full ones are kept."""
    self_check: float = 600.0
    """Time between two runs of all the doctor's checks by the agent itself; 0: never. Disks and /dev/shm are looked at
    each minute in any case."""
    checks: Minimums = field(default_factory=Minimums)
    hooks: Hooks = field(default_factory=Hooks)
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    packages: Packages = field(default_factory=Packages)
    """Packaged code: what is kept of it, and what it is installed from."""
    guard: Guard = field(default_factory=Guard)
    health: dict[str, HealthRule] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """By which jobs may ask for this host, or keep away from it."""

    @property
    def packages_dir(self) -> Path:
        """The folder of packaged code, and of what is installed for it."""
        return self.packages.cache_dir or self.state_dir / "packages"

    @property
    def ports(self) -> range:
        """The ports of ``port_range``, both ends included."""
        first, _, last = self.port_range.partition("-")
        return range(int(first), int(last) + 1)


def load(path: Path) -> Config:
    """Read and check the file. Raises ``ConfigError`` that names the file and the key."""
    loaded = config.load(Config, path)
    try:
        _check(loaded, path)
    except ConfigError as error:
        raise config.placed(error, path) from error
    named = os.environ.get("HOLDFAST_SIMULATED_SIGNALS")
    if named and loaded.simulated_signals is None:
        loaded = replace(loaded, simulated_signals=Path(named))
    return loaded


def _check(loaded: Config, path: Path) -> None:
    log.check_level(loaded.log_level)
    if not _NAME.fullmatch(loaded.name):
        raise ConfigError(f"{path}: name {loaded.name!r} may hold letters, digits, dot, dash and underscore only.")
    if not re.fullmatch(r"\d{1,5}-\d{1,5}", loaded.port_range):
        raise ConfigError(f"{path}: port_range must be FIRST-LAST, such as 20000-20199.")
    if not loaded.ports or loaded.ports[0] < 1 or loaded.ports[-1] > 65535:
        raise ConfigError(f"{path}: port_range {loaded.port_range} holds no usable ports.")
    if loaded.log_limit_mb < 1 or loaded.max_workers < 1 or loaded.simulated_gpus < 0:
        raise ConfigError(f"{path}: log_limit_mb and max_workers must be at least 1, simulated_gpus at least 0.")
    if loaded.shells < 0 or loaded.shell_idle <= 0:
        raise ConfigError(f"{path}: shells must be at least 0, and shell_idle above 0, such as 30m.")
    if loaded.self_check < 0:
        raise ConfigError(f"{path}: self_check must be 0 or more, such as 10m.")
    if loaded.metrics_listen:
        listener.parse(loaded.metrics_listen, f"{path}: metrics_listen")
    _check_accounts(loaded, path)
    _check_tables(loaded, path)


def check_certificate(settings: Config) -> Credential:
    """The host's certificate. Raises ``ConfigError`` for one that can't be read, or is another's."""
    found = certificate.read(settings.cert)
    who = found.identity
    if (who.kind, who.name) != (Kind.HOST, settings.name):
        problem = (
            f"{settings.cert} is the certificate of {who.kind.value} {who.name}, and name is {settings.name!r}."
        )
        raise ConfigError(problem, fix="Correct name in agent.toml, or join again: holdfast-agent join")
    return found


def _check_accounts(loaded: Config, path: Path) -> None:
    if not re.fullmatch(r"0?[0-7]{3}", loaded.umask):
        fix = 'For example "022", or "027" to keep others out.'
        raise ConfigError(f"{path}: umask {loaded.umask!r} is no mask of three octal digits.", fix=fix)
    if loaded.lowest_uid < 1:
        raise ConfigError(f"{path}: lowest_uid must be at least 1.", fix="allow_root_workers is about root.")
    if wrong := [name for name in loaded.allowed_accounts if not is_account(name)]:
        raise ConfigError(f"{path}: allowed_accounts: {wrong[0]!r} is no account's name.", fix=f"{NAME_RULE}.")


def _check_tables(loaded: Config, path: Path) -> None:
    if low := [name for name in ("disk_free_mb", "shm_free_mb", *_LIMIT_KEYS) if getattr(loaded.checks, name) < 0]:
        raise ConfigError(f"{path}: [checks] {low[0]} must be at least 0.", fix="0 asks for nothing.")
    for name, command in (("prolog", loaded.hooks.prolog), ("epilog", loaded.hooks.epilog)):
        if command and not os.path.isabs(command[0]):
            fix = f'For example: {name} = ["/etc/holdfast/{name}.sh"].'
            raise ConfigError(f"{path}: [hooks] {name} must begin with a program's absolute path.", fix=fix)
    if not 0 < loaded.hooks.timeout <= HOOK_MOST_S:
        raise ConfigError(f"{path}: [hooks] timeout must be above 0 and at most {HOOK_MOST_S:g} s.")
    site_rules.rules(loaded.health)
    for mount in loaded.containers.mounts:
        site_mount(mount)
    amounts = ("bundles_mb", "environments_mb", "downloads_mb", "unpacked_mb", "unpacked_files")
    if low := [name for name in amounts if getattr(loaded.packages, name) < 1]:
        raise ConfigError(f"{path}: [packages] {low[0]} must be at least 1.")
    if low := [name for name in ("fetch_timeout", "install_timeout") if getattr(loaded.packages, name) <= 0]:
        raise ConfigError(f"{path}: [packages] {low[0]} must be above 0.")
    for key, value in loaded.labels.items():
        if not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            problem = f"{path}: [labels] {key} = {value!r} is no label."
            raise ConfigError(problem, fix="Letters, digits, and . _ / - between them; at most 63.")


def worker_user(settings: Config) -> WorkerUser:
    """Account that workers run as on this host. Raises ``ConfigError`` if that is impossible."""
    own = os.geteuid()
    try:
        entry = pwd.getpwnam(settings.worker_user) if settings.worker_user else pwd.getpwuid(own)
    except KeyError as error:
        if settings.worker_user:
            raise ConfigError(f"worker_user: there is no user {settings.worker_user!r} on this host.") from error
        return WorkerUser(str(own), "/", "/bin/sh")
    if own not in (0, entry.pw_uid):
        raise ConfigError(f"worker_user: only a root agent can start workers as {settings.worker_user}.")
    return user_of(entry)


def accounts(settings: Config, default: WorkerUser) -> Accounts:
    """Rules for the accounts that jobs may name on this host."""
    rules = AccountRules(
        agent_uid=os.geteuid(),
        worker_user=settings.worker_user,
        lowest_uid=settings.lowest_uid,
        allowed=frozenset(settings.allowed_accounts),
        root_allowed=settings.allow_root_workers,
    )
    return Accounts(default, rules)


def read_env_file(path: Path | None) -> dict[str, str]:
    """NAME=VALUE lines; blank ones and those that start with # are skipped. Raises ``ConfigError``.

    A file that ends in ``.json`` holds an object instead, whose values may have several lines.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(errors="surrogateescape" if path.suffix == ".json" else "strict")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"env_file: cannot read {path}: {error}.") from error
    if path.suffix == ".json":
        return _env_object(text, path)
    lines = text.splitlines()
    env = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.strip().partition("=")
        if not equals or not _ENV_NAME.fullmatch(name):
            raise ConfigError(f"{path}:{number}: expected NAME=VALUE.")
        env[name] = value
    return env


def _env_object(text: str, path: Path) -> dict[str, str]:
    try:
        env = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ConfigError(f"{path}: expected one object whose values are texts.")
    return env
