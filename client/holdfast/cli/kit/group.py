"""A click group that guesses what was meant."""

from __future__ import annotations

import difflib

import click


class Commands(click.Group):
    """Names the closest command when there is none of that name. Lists commands in the order of their adding."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Of our own, because only newer releases of click guess.
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
