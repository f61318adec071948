"""A click group that guesses what was meant, and loads of its commands only the one that is called."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping, MutableMapping

import click

from holdfast.cli.kit.foreign_words import our_commands


class Commands(click.Group):
    """Says what to type where there is no command of that name. Lists commands in the order of their adding."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Of our own, because only newer releases of click guess.
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"No such command '{args[0]}'.{self._hint(ctx, args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: click.Context, word: str) -> str:
        root = ctx.find_root().command_path
        if lines := our_commands(ctx, word):
            return " Try: " + ", or ".join(f"{root} {line}" for line in lines)
        # Below this ratio words have little in common but their length.
        close = difflib.get_close_matches(word, self.list_commands(ctx), n=1, cutoff=0.6)
        return f" Did you mean '{close[0]}'?" if close else ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Unloaded(MutableMapping[str, click.Command]):
    """Commands by name. Each is an attribute of that name in a module of ``package``, imported when it is asked for."""

    def __init__(self, package: str, modules: Mapping[str, str]) -> None:
        self._package = package
        self._modules = dict(modules)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = importlib.import_module(f"{self._package}.{self._modules[name]}")
            self._loaded[name] = getattr(module, name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._modules.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
