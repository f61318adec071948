"""The ``-o`` option: the same things for people (table, wide) and for programs (json, yaml, name)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., object])

FORMATS = ("table", "wide", "json", "yaml", "name")


def output_option(command: C) -> C:
    """Add the option ``-o``."""
    option = click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Format."
    )
    return option(command)


def show_list(
    items: Sequence[T],
    output: str,
    *,
    view: Callable[[T], dict[str, Any]],
    name: Callable[[T], str],
    table: Callable[[Sequence[T], bool], None],
) -> None:
    """A list on stdout; ``table`` gets whether it may be wide."""
    if output in ("json", "yaml"):
        dump([view(item) for item in items], output)
    elif output == "name":
        names(map(name, items))
    else:
        table(items, output == "wide")


def show_one(
    item: T,
    output: str,
    *,
    view: Callable[[T], dict[str, Any]],
    name: Callable[[T], str],
    page: Callable[[T, bool], None],
) -> None:
    """Print one thing on stdout in the chosen format."""
    if output in ("json", "yaml"):
        dump(view(item), output)
    elif output == "name":
        names([name(item)])
    else:
        page(item, output == "wide")


def dump(data: object, output: str) -> None:
    """Plain data as JSON or YAML."""
    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    import yaml

    click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)


def json_line(data: object) -> None:
    """Print one line of JSON for programs."""
    click.echo(json.dumps(data, ensure_ascii=False))


def names(each: Iterable[str]) -> None:
    """Print each name on a line."""
    for name in each:
        click.echo(name)
