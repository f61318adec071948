"""The ``-o`` option: the same things for people (table, wide) and for programs (json, yaml, name)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from holdfast._base.printable import json_text, one_line
from holdfast.cli.kit.console import say, say_text

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., object])

FORMATS = ("table", "wide", "json", "yaml", "name")
PAGE_FORMATS = ("table", "json", "yaml")


def output_option(command: C) -> C:
    """Add the option ``-o`` of a list."""
    return _option(command, FORMATS)


def page_option(command: C) -> C:
    """Add the option ``-o`` of a single page, which has no names and no wider form."""
    return _option(command, PAGE_FORMATS)


def _option(command: C, formats: Sequence[str]) -> C:
    option = click.option(
        "-o", "--output", type=click.Choice(formats), default="table", show_default=True, help="Format."
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
    """Plain data as JSON or YAML, which read back as they were: what a terminal may not be sent is escaped."""
    text = json_text(data, indent=2)
    if output == "yaml":
        import yaml

        # Escapes are in its quoted texts alone, and all or none of what is not ASCII is in quotes.
        readable = "\\u" not in text
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=readable)
    say_text(text)


def json_line(data: object) -> None:
    """Print one line of JSON for programs."""
    say(json_text(data))


def names(each: Iterable[str]) -> None:
    """Print each name on a line."""
    say(*map(one_line, each))
