"""Man pages and completions of one package, drawn from its programs' own parsers: ``manual.py PART SITE OUT``.

Run by build.py with the package's environment in front, since the parsers are imported from there.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Parsers = dict[str, argparse.ArgumentParser]
"""By the words that choose a command, "" for the program itself."""


class _Caught(Exception):
    """A parser that was about to read its words."""


def main() -> int:
    """Write share/ of the package PART, whose modules are in SITE, to OUT."""
    part, site, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    sys.path.insert(0, site)
    for name, text in (_client if part == "client" else _controller if part == "controller" else _agent)():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_page = path.parts[-3:-1][0] == "man"
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0) if is_page else text.encode())
    return 0


def _client() -> Iterator[tuple[str, str]]:
    from holdfast.cli import reference
    from holdfast.cli.app import completion_script, root

    yield _page("holdfast", 1, "run training jobs on bare-metal GPU hosts", reference.markdown())
    for shell, file in (("bash", "holdfast"), ("zsh", "_holdfast"), ("fish", "holdfast.fish")):
        yield f"completions/{shell}/{file}", completion_script(root, shell)


def _controller() -> Iterator[tuple[str, str]]:
    program = importlib.import_module("holdfast_controller.__main__")
    parsers = {"": _parser(program.main)}
    for name, module in program.COMMANDS.items():
        parsers |= _family(name, _parser(functools.partial(importlib.import_module(module).main, [])))
    yield from _program("holdfast-controller", "decide where training jobs run, and keep them running", parsers)
    config = importlib.import_module("holdfast_controller.shell.base.config")
    yield _page("controller.toml", 5, "settings of holdfast-controller", settings(config.ControllerConfig))


def _agent() -> Iterator[tuple[str, str]]:
    program = importlib.import_module("holdfast_agent.__main__")
    commands = _family("", _parser(lambda: importlib.import_module("holdfast_agent.shell.main.cli").main([])))
    joining = importlib.import_module("holdfast._security.enrolment.__main__")
    commands["join"] = _family("", _parser(lambda: joining.main([])))["join"]
    parsers = {"": _parser(lambda: program.main([])), **{name: commands[name] for name in program.COMMANDS}}
    yield from _program("holdfast-agent", "start, watch and stop the workers of a host", parsers)
    config = importlib.import_module("holdfast_agent.shell.config")
    yield _page("agent.toml", 5, "settings of holdfast-agent", settings(config.Config))


def _program(name: str, about: str, parsers: Parsers) -> Iterator[tuple[str, str]]:
    yield _page(name, 8, about, "\n\n".join(_section(f"{name} {words}".strip(), p) for words, p in parsers.items()))
    yield f"completions/bash/{name}", bash(name, parsers)
    yield f"completions/zsh/_{name}", zsh(name, parsers)
    yield f"completions/fish/{name}.fish", fish(name, parsers)


def _parser(run: Callable[[], object]) -> argparse.ArgumentParser:
    """The parser that a program builds for its words."""

    def caught(parser: argparse.ArgumentParser, *_: object) -> None:
        raise _Caught(parser)

    parse, umask = argparse.ArgumentParser.parse_args, os.umask(0o022)
    argparse.ArgumentParser.parse_args = caught  # type: ignore[assignment]
    sys.argv = ["program"]
    try:
        run()
    except _Caught as found:
        parser: argparse.ArgumentParser = found.args[0]
        return parser
    finally:
        argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
        os.umask(umask)  # daemons close theirs to others
    raise AssertionError(f"{run} reads no words")


def _family(name: str, parser: argparse.ArgumentParser) -> Parsers:
    """A parser, or in its place those of the commands that it has."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {f"{name} {word}".strip(): child for word, child in action.choices.items()}
    return {name: parser}


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    """A command as Markdown: how it is called, what it does, its words."""
    usage = " ".join(parser.format_usage().removeprefix("usage:").split()).removeprefix(parser.prog).strip()
    rows = [
        f"| {', '.join(action.option_strings) or action.metavar or action.dest}"
        f"{' ' + _value(action) if action.option_strings and action.nargs != 0 else ''} | {action.help or ''} |"
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    about = "\n\n".join(text for text in (parser.description, parser.epilog) if text)
    table = "\n".join(["| | |", "|---|---|", *rows]) if rows else ""
    return "\n\n".join(text for text in (f"## `{name} {usage}`".strip(), about, table) if text)


def _value(action: argparse.Action) -> str:
    name = action.metavar or (" \\| ".join(action.choices) if action.choices else action.dest.upper())
    return str(name)


def settings(cls: type[Any]) -> str:
    """The keys of a settings file as Markdown, from the class that it is read into."""
    return "\n\n".join(_tables(cls, ""))


def _tables(cls: type[Any], path: str) -> Iterator[str]:
    import ast
    import dataclasses
    import inspect
    import typing

    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    said = {
        before.target.id: inspect.cleandoc(str(after.value.value)).replace("\n", " ")
        for before, after in zip(body.body, body.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    rows, inner = [], []
    hints = typing.get_type_hints(cls)
    for each in dataclasses.fields(cls):
        table = next((t for t in (hints[each.name], *typing.get_args(hints[each.name])) if _is_table(t)), None)
        if table is not None:
            inner.append((table, f"{path}{each.name}{'.NAME' if table is not hints[each.name] else ''}"))
            continue
        nothing = dataclasses.MISSING
        default = each.default if each.default is not nothing else None
        required = each.default is nothing and each.default_factory is nothing
        kind = "(required)" if required else f"[default: {default!r}]" if default not in (None, "", ()) else ""
        rows.append(f"| `{each.name}` | {said.get(each.name, '')} {kind} |")
    head = f"## `[{path}]`" if path else "## KEYS"
    yield "\n\n".join([head, inspect.cleandoc(cls.__doc__ or ""), "\n".join(["| | |", "|---|---|", *rows])])
    for table, name in inner:
        yield from _tables(table, name)


def _is_table(found: object) -> bool:
    import dataclasses

    return isinstance(found, type) and dataclasses.is_dataclass(found)


def bash(name: str, parsers: Parsers) -> str:
    """Completion for bash: the commands first, then options and files."""
    cases = "".join(f"    '{name}') words='{' '.join(words)}' ;;\n" for name, words in _words(parsers).items())
    function = f"_{name.replace('-', '_')}"
    return (
        f"# Completion of {name}, drawn from its parser.\n"
        f"{function}() {{\n"
        '    local cur="${COMP_WORDS[COMP_CWORD]}" words\n'
        f'    case "${{COMP_WORDS[*]:1:2}}" in\n{_patterns(cases)}'
        f"    *) words='{' '.join(_first(parsers))}' ;;\n    esac\n"
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"; compgen -f -- "$cur")\n'
        f"}}\ncomplete -o filenames -F {function} {name}\n"
    )


def _patterns(cases: str) -> str:
    """Each command also with what follows it; the longer names first."""
    lines = sorted(cases.splitlines(keepends=True), key=lambda line: -line.partition(")")[0].count(" "))
    return "".join(re.sub(r"'([^']+)'\)", r"'\1' | '\1 '*)", line, count=1) for line in lines)


def zsh(name: str, parsers: Parsers) -> str:
    """Completion for zsh."""
    cases = "".join(f"    '{name}') compadd -- {' '.join(words)} ;;\n" for name, words in _words(parsers).items())
    return (
        f"#compdef {name}\n# Completion of {name}, drawn from its parser.\n"
        f'case "${{words[2,3]}}" in\n{_patterns(cases)}'
        f"    *) compadd -- {' '.join(_first(parsers))} ;;\nesac\n_files\n"
    )


def fish(name: str, parsers: Parsers) -> str:
    """Completion for fish."""
    lines = [f"# Completion of {name}, drawn from its parser."]
    lines.append(f"complete -c {name} -n __fish_use_subcommand -a '{' '.join(_first(parsers))}'")
    for group in dict.fromkeys(words.partition(" ")[0] for words in parsers if " " in words):
        inner = " ".join(words.partition(" ")[2] for words in parsers if words.startswith(f"{group} "))
        lines.append(f"complete -c {name} -n '__fish_seen_subcommand_from {group}' -a '{inner}'")
    for words, parser in parsers.items():
        when = " ".join(f"__fish_seen_subcommand_from {word};" for word in words.split()) if words else ""
        for option in _options(parser) if words else ():
            kind = (
                f"-l {option.removeprefix('--')}" if option.startswith("--") else f"-s {option.removeprefix('-')}"
            )
            lines.append(f"complete -c {name} -n '{when.rstrip(';').replace(';', '; and')}' {kind}")
    return "\n".join(lines) + "\n"


def _words(parsers: Parsers) -> dict[str, list[str]]:
    """What may follow each command: its options, or the commands below it."""
    found = {words: _options(parser) for words, parser in parsers.items() if words}
    for group, _, command in [words.partition(" ") for words in found if " " in words]:
        found.setdefault(group, []).append(command)
    return found


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def _first(parsers: Parsers) -> list[str]:
    """What may come first: each command's first word, and the options of the program itself."""
    return [*dict.fromkeys(words.split()[0] for words in parsers if words), *_options(parsers[""])]


def _page(name: str, section: int, about: str, markdown: str) -> tuple[str, str]:
    """A man page: where it belongs below share/, and its text."""
    head = [f'.TH {name.upper()} {section} "" "Holdfast"', ".SH NAME", f"{name} \\- {about}"]
    return f"man/man{section}/{name}.{section}.gz", "\n".join([*head, *roff(markdown)]) + "\n"


def roff(markdown: str) -> Iterator[str]:
    """Markdown of our pages (headings, paragraphs, tables, code) as a man page's body."""
    yield ".SH DESCRIPTION"
    after_heading = True
    for block in re.split(r"\n\s*\n", markdown.strip()):
        lines = block.strip().splitlines()
        if lines[0].startswith("# "):
            continue
        if lines[0].startswith("#"):
            yield f'.SS "{_inline(lines[0].lstrip("# "))}"'
            after_heading = True
            continue
        elif lines[0].startswith("|"):
            yield from _rows(lines)
        else:
            if not after_heading:
                yield ".PP"
            yield from (_line(line) for line in lines)
        after_heading = False


def _rows(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if set("".join(cells)) <= {"-"} or len(cells) < 2:
            continue
        yield ".TP"
        yield _line(f"`{cells[0].replace('`', '')}`" if cells[0] else "Value")
        yield _line(" ".join(cells[1:]) or "\\&")


def _line(text: str) -> str:
    shown = _inline(text)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def _inline(text: str) -> str:
    text = (
        text.replace("``", "`").replace("\\|", "|").replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    )
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"\*\*([^*]+)\*\*", r"\\fB\1\\fR", re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text))


if __name__ == "__main__":
    sys.exit(main())
