"""The root of the command: its subcommands, and how errors leave it."""

from __future__ import annotations

import difflib
import sys
import traceback
from types import TracebackType
from typing import Any

import click

from holdfast.cli import exit_status, notes
from holdfast.cli.run import run
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.version import __version__


class Commands(click.Group):
    """A group that guesses what was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Of our own, because only newer releases of click guess.
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)


class Root(Commands):
    """Turns every error into a sentence and a status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            notes.error(error)
            ctx.exit(exit_status.USAGE if isinstance(error, InvalidInput) else exit_status.OUR_FAILURE)


class _Guard:
    """A fault of ours shows its traceback, and must not look like a job's own exit code."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            traceback.print_exception(error)
            sys.exit(exit_status.OUR_FAILURE)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def root() -> None:
    """Run training jobs on bare-metal GPU hosts, and keep them running."""


root.add_command(run)


def main() -> None:
    """The entry point."""
    with _Guard():
        root(prog_name="holdfast")
