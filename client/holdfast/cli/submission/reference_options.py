"""The options of another service's command that ``submit`` takes; what is not given leaves the job as it is."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from holdfast._base.dataclass import dataclass
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.parameters import C

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2

_ABOUT_THE_OTHER = (
    ("--region", "a cluster has no regions"),
    ("--account", "you are the user of your certificate: see holdfast whoami"),
    ("--impersonate-service-account", "you are the user of your certificate: see holdfast whoami"),
    ("--billing-project", "nothing is billed; --project names the project"),
    ("--configuration", "the cluster is that of HOLDFAST_CONFIG"),
    ("--verbosity", "see holdfast job watch"),
    ("--format", "the job's id is printed: see holdfast job show -o json"),
)
"""Options that change nothing here, and why."""


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """Options as the user gave them. Lists are as other services take them: with commas, or ``^;^a;b``."""

    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    job_labels: tuple[str, ...] = ()
    network: str | None = None
    service_account: str | None = None
    persistent_resource_id: str | None = None
    enable_dashboard_access: bool = False
    kms_key: str | None = None
    kms_keyring: str | None = None
    kms_location: str | None = None
    kms_project: str | None = None

    def apply(self, job: job_pb2.CustomJob, console: Console) -> None:
        """Write the options into the job, over what it says itself."""
        args, command = split_list(self.args), split_list(self.command)
        takes_command = False
        for pool in job.job_spec.worker_pool_specs:
            if (kind := pool.WhichOneof("task")) is None:
                continue
            task = getattr(pool, kind)
            if args:
                task.args[:] = args
            if command and kind != "python_package_spec":
                task.command[:] = command
                takes_command = True
        if command and not takes_command:
            console.warning("--command: changes nothing: every pool runs a Python module")
        for text in split_list(self.job_labels):
            key, equals, value = text.partition("=")
            if not key.strip() or not equals:
                raise click.UsageError(f"--labels: {text!r} is not KEY=VALUE.")
            job.labels[key.strip()] = value
        for name in ("network", "service_account", "persistent_resource_id"):
            if (value := getattr(self, name)) is not None:
                setattr(job.job_spec, name, value)
        job.job_spec.enable_dashboard_access |= self.enable_dashboard_access
        if key := self._kms_key_name(job.project):
            job.encryption_spec.kms_key_name = key

    def _kms_key_name(self, project: str) -> str:
        parts = (self.kms_keyring, self.kms_location, self.kms_project)
        if not self.kms_key:
            if any(parts):
                raise click.UsageError("Give --kms-key too: the others say where the key is.")
            return ""
        if "/" in self.kms_key:
            return self.kms_key
        if not self.kms_keyring or not self.kms_location:
            raise click.UsageError(
                "Give --kms-keyring and --kms-location too, or the key's whole name: projects/…/cryptoKeys/KEY."
            )
        project = self.kms_project or project or "default"
        ring = f"projects/{project}/locations/{self.kms_location}/keyRings/{self.kms_keyring}"
        return f"{ring}/cryptoKeys/{self.kms_key}"


def split_list(values: tuple[str, ...]) -> list[str]:
    """Every item of every list: at commas, or at what stands between two ``^`` at the list's beginning."""
    found: list[str] = []
    for value in values:
        separator = ","
        if value.startswith("^") and (end := value.find("^", 1)) > 1:
            separator, value = value[1:end], value[end + 1 :]
        found += value.split(separator) if value else []
    return found


_OPTIONS = (
    click.option(
        "--args",
        multiple=True,
        metavar="LIST",
        help="Arguments of what every pool runs, with commas, or ^;^ and semicolons.",
    ),
    click.option("--command", multiple=True, metavar="LIST", help="Command of every pool, with commas."),
    click.option("--labels", "job_labels", multiple=True, metavar="KEY=VALUE,…", help="Labels of the job."),
    *(
        click.option(name, hidden=True)
        for name in (
            *("--network", "--service-account", "--persistent-resource-id"),
            *("--kms-key", "--kms-keyring", "--kms-location", "--kms-project"),
        )
    ),
    click.option("--enable-dashboard-access", is_flag=True, hidden=True),
)
_NAMES = tuple(ReferenceOptions.__dataclass_fields__)


def reference_options(command: C) -> C:
    """Adds the options; the command gets them together, as ``reference``. Those without effect are warned about."""

    @functools.wraps(command)
    def gathered(**words: Any) -> object:
        words.pop("quiet")
        for option, why in _ABOUT_THE_OTHER:
            if words.pop(_name_of(option)):
                Console().warning(f"{option}: changes nothing: {why}")
        return command(reference=ReferenceOptions(**{name: words.pop(name) for name in _NAMES}), **words)

    gathered = click.option("--quiet", "-q", is_flag=True, hidden=True)(gathered)
    for option, _ in _ABOUT_THE_OTHER:
        gathered = click.option(option, default="", hidden=True)(gathered)
    for add in reversed(_OPTIONS):
        gathered = add(gathered)
    return gathered  # type: ignore[return-value]


def _name_of(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
