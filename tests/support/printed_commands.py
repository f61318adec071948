"""Whether a command line that a page prints can be typed: the programs' own parsers read it, and nothing is done."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import NoReturn

import click
import pytest

from holdfast._security import dns
from holdfast._security.enrolment import __main__ as enrolment
from holdfast.cli.app import root
from holdfast.cli.kit.host_names import expand
from holdfast_agent.__main__ import main as agent
from holdfast_controller.__main__ import main as controller

PROGRAMS = ("holdfast", "holdfast-agent", "holdfast-controller")
FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```$", re.M | re.S)


class Parsed(Exception):
    """A daemon's words were understood; what it would do is not done."""


def fenced(page: str) -> list[str]:
    """The code blocks of a page; a line that ends in a backslash goes on in the next one."""
    return [re.sub(r" *\\\n *", " ", block) for block in FENCE.findall(page)]


def command_lines(page: str) -> list[str]:
    """Every command of ours that a page prints, in blocks or between backticks: once each, without prompts."""
    lines = [line.strip().removeprefix("$ ") for block in fenced(page) for line in block.splitlines()]
    for paragraph in re.split(r"\n\s*\n", FENCE.sub("", page)):
        lines += [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", paragraph)]
    found = [command for line in lines for command in _commands_in(line)]
    return list(dict.fromkeys(found))


def _commands_in(line: str) -> Iterator[str]:
    """The line where it is one of ours, and those of ours that stand in it, behind a pipe or as $(…)."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from _commands_in(inner)
    bare = re.sub(r"\$\([^()]*\)", "JOB", line)
    for part in re.split(r" \| ", bare):
        words = part.split()
        if len(words) > 1 and words[0] in PROGRAMS:
            yield re.sub(r" [<>]+ ?\S+", "", part)


def understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises what the program would say of a wrong line."""
    program, *words = shlex.split(line, comments=True)
    if words == ["--version"]:
        return
    if program == "holdfast":
        _walk(root, words, None)
        return
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, *given: object) -> NoReturn:
        parse(parser, *given)  # type: ignore[call-overload]
        raise Parsed

    def execute(_: str, argv: list[str]) -> NoReturn:
        enrolment.main(argv[argv.index("join") :])
        raise AssertionError("it has not looked at its words")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(dns, "as_the_machine_does", lambda: None)
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(Parsed):
        agent(words) if program == "holdfast-agent" else controller()


def _walk(command: click.Command, words: list[str], parent: click.Context | None) -> None:
    """As click does, but nothing is called."""
    context = command.make_context(command.name, list(words), parent)
    if isinstance(command, click.Group):
        left = [*context._protected_args, *context.args]
        if left or not command.invoke_without_command:
            _, found, rest = command.resolve_command(context, left)
            assert found is not None
            _walk(found, rest, context)
        return
    if parent is not None and parent.command.name == "host" and isinstance(context.params.get("name"), tuple):
        expand(context.params["name"])
