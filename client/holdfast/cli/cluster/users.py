"""``holdfast user …``, ``holdfast login`` and ``holdfast whoami``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.motd import show_once
from holdfast.cli.kit.output import output_option, show_list, show_one
from holdfast.cli.kit.parameters import duration

if TYPE_CHECKING:
    from holdfast._security.enrolment.enrol import Enrolled
    from holdfast.client import Client
    from holdfast.v1 import access_pb2

_DEFAULT = click.core.ParameterSource.DEFAULT
ROLES = ("viewer", "user", "admin")
ttl_option = click.option("--ttl", type=duration, help="How long it may be used, at most 30m.  [default: 30m]")

run_as_option = click.option(
    "--run-as",
    metavar="ACCOUNT",
    multiple=True,
    help="Account of the hosts that their jobs run as. With several, jobs may name one; the first is the default.",
)


@click.group(cls=Commands)
def user() -> None:
    """Say who may use the cluster, and for what. For admins."""


@user.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="user", show_default=True, help="What they may do.")
@click.option("--project", default="*", help="Only in this project.  [default: in all]")
@run_as_option
@click.option("--oidc", is_flag=True, help="Let a user who was removed sign in by the identity provider again.")
@click.pass_context
def add(ctx: click.Context, name: str, role: str, project: str, run_as: tuple[str, ...], oidc: bool) -> None:
    """Give a user a role: everywhere, or in one project.

    A viewer looks at jobs and reads their output; a user submits jobs too and acts on their own; an admin acts on
    everybody's. An admin of all projects also acts on hosts and users. Adding a user again changes the role.
    """

    if oidc:
        given = [key for key in ("role", "project", "run_as") if ctx.get_parameter_source(key) is not _DEFAULT]
        if given:
            raise click.UsageError("--oidc goes alone: the groups there give the roles.")
        with_client(lambda client: client.access.allow_sign_in(name))
        Console().note(f"{name} may sign in by the identity provider")
        return

    async def work(client: Client) -> access_pb2.User:
        from holdfast.v1 import access_pb2

        return await client.access.add_user(name, access_pb2.Role.Value(f"ROLE_{role.upper()}"), project, run_as)

    added = with_client(work)
    accounts = f"; {accounts_in_words(added)}" if added.accounts else ""
    Console().note(f"{name} is {roles_in_words(added)}{accounts}")


@user.command("set")
@click.argument("name")
@run_as_option
@click.option("--no-run-as", is_flag=True, help="None of their own any more.")
def set_(name: str, run_as: tuple[str, ...], no_run_as: bool) -> None:
    """Set which Unix accounts a user's jobs run as.

    Applies to jobs submitted from now on; existing jobs keep theirs. Jobs of a user who
    has no account run as run_as in controller.toml has it.
    """
    if bool(run_as) == no_run_as:
        raise click.UsageError("Write --run-as ACCOUNT, once for each account, or --no-run-as.")

    async def work(client: Client) -> access_pb2.User:
        return await client.access.map_user(name, run_as)

    Console().note(f"{name}: {accounts_in_words(with_client(work))}")


@user.command("list")
@output_option
def list_(output: str) -> None:
    """List the users and their roles."""

    async def work(client: Client) -> list[access_pb2.User]:
        return await client.access.list_users()

    found = with_client(work)
    from holdfast.cli.cluster.user_tables import view_user, write_users

    show_list(found, output, view=view_user, name=lambda user: user.name, table=lambda users, _: write_users(users))


@user.command()
@click.argument("name")
@click.option("--project", default="", help="Take only the role in this project away.")
def remove(name: str, project: str) -> None:
    """Remove a user's rights.

    All of them: then their certificates are void at once, and what they read at this moment ends. Their jobs go on.
    """

    async def work(client: Client) -> None:
        await client.access.remove_user(name, project)

    with_client(work)
    Console().note(f"{name} has no role in project {project} any more" if project else f"user {name} is removed")


@user.command("token")
@click.argument("name")
@ttl_option
def user_token(name: str, ttl: float | None) -> None:
    """Print the line with which a user logs in, once."""

    async def work(client: Client) -> access_pb2.CreateTokenResponse:
        return await client.access.create_token(user=name, ttl_s=ttl)

    print_line("holdfast login", with_client(work), f"For {name} to paste, on their own machine")


@click.command()
@click.argument("controller", required=False)
@click.option("--token", help="From: holdfast user token NAME")
@click.option(
    "--oidc", is_flag=True, help="Sign in by the site's identity provider, with a browser on any machine."
)
@click.option("--ca-hash", help="Of the cluster's CA, as sha256:HEX.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="For settings, certificate and key.  [default: ~/.config/holdfast]",
)
def login(
    controller: str | None, token: str | None, oidc: bool, ca_hash: str | None, directory: Path | None
) -> None:
    """Become a user of the cluster, by a line from an admin.

    The key is made here and never leaves this machine; the certificate renews itself when it is used. One by --oidc is
    short-lived, and renews itself only where the identity provider allows that; to sign in again: holdfast login --oidc
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from holdfast import settings

    if oidc == (token is not None):
        raise click.UsageError("Give either --token, from: holdfast user token NAME, or --oidc.")
    home = (directory or settings.own_directory()).absolute()
    console = Console()
    done = _by_provider(controller, ca_hash, home, console) if oidc else _by_token(controller, token, ca_hash, home)
    form = "%Y-%m-%d %H:%M" if done.ends_at - time.time() < 2 * 86_400 else "%Y-%m-%d"
    until = time.strftime(form, time.localtime(done.ends_at))
    console.note(f"you are {done.name} of the cluster {done.cluster}; the certificate lasts until {until}")
    console.note(f"settings are in {done.settings}")
    if done.motd is not None:
        show_once(done.motd, done.controller, console)
    if (named := os.environ.get(settings.VARIABLE)) and Path(named).absolute() != done.settings:
        console.warning(f"{settings.VARIABLE} names {named}, which counts instead. To be {done.name}: unset it.")


def _by_token(controller: str | None, token: str | None, ca_hash: str | None, home: Path) -> Enrolled:
    from holdfast._security.enrolment.enrol import Line, log_in

    if not (controller and token and ca_hash):
        raise click.UsageError("Paste the whole line: CONTROLLER, --token and --ca-hash.")
    return log_in(Line(controller, token, ca_hash), home)


def _by_provider(controller: str | None, ca_hash: str | None, home: Path, console: Console) -> Enrolled:
    """Sign in; where that was done before, without CONTROLLER and --ca-hash."""
    from holdfast import settings
    from holdfast._security.enrolment import identity_provider, pinning
    from holdfast._security.enrolment.sign_in import sign_in

    if controller and ca_hash:
        ca = pinning.fetch_authority(controller, ca_hash, time.time())
    elif controller or ca_hash or not (home / "client.toml").is_file():
        raise click.UsageError("The first time write: holdfast login CONTROLLER --oidc --ca-hash sha256:HEX")
    else:
        known = settings.load(home / "client.toml")
        controller, ca = known.enrolment, known.ca.read_bytes()
    return sign_in(controller, ca, home, console.note, ask=identity_provider.sign_in)


@click.command()
@output_option
def whoami(output: str) -> None:
    """Show who you are for the cluster, and what you may do."""

    async def work(client: Client) -> access_pb2.GetCallerResponse:
        return await client.access.caller()

    found = with_client(work)
    from holdfast.cli.cluster.user_tables import view_caller, write_caller

    show_one(
        found,
        output,
        view=view_caller,
        name=lambda caller: caller.user.name,
        page=lambda caller, _: write_caller(caller, time.time()),
    )


def print_line(command: str, made: access_pb2.CreateTokenResponse, what: str) -> None:
    """The one line to paste, alone on stdout."""
    until = time.strftime("%H:%M:%S", time.localtime(made.end.seconds))
    Console().note(f"{what}; good once, until {until}:")
    say(f"{command} {made.enrolment} --token {made.token} --ca-hash {made.ca_hash}")


def roles_in_words(found: Any) -> str:
    """Such as ``user in vision, viewer everywhere``."""
    from holdfast.cli.cluster.user_tables import roles_of

    return ", ".join(roles_of(found)) or "known, and has no role"


def accounts_in_words(found: Any) -> str:
    """Such as ``jobs run as ann, or as vision if they say so``."""
    first, *others = found.accounts or ("",)
    if not first:
        return "jobs have no account of their own"
    return f"jobs run as {first}" + (f", or as {' or '.join(others)} if they say so" if others else "")
