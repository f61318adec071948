"""Plain English and the field's words, in names, docstrings, comments, messages and pages.

``docs/glossary.md`` has one word for each thing. Words that only this project understood were replaced; they are
listed here so that they don't come back. ``python tests/repo/test_language.py PATH...`` prints the faults of files.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKED = ("client/holdfast", "controller", "agent", "proto", "docs", "README.md", "CONTRIBUTING.md")

FRAGMENTS = "What|Whoever|Who|Whom|Whose|Of|As|Where|Those|So|It|That|They|None of"
"""First words of a docstring that is a fragment, or needs the lines above it to be understood."""

RENAMED = {
    "attention": "alerts",
    "beneath": "safe paths",
    "doubt": "unreconciled",
    "guilt": "suspects",
    "hopeless": "unplaceable",
    "lanes": "concurrency limits",
    "letter": "outbox entry",
    "letters": "outbox",
    "mailbox": "outbox",
    "narrate": "message",
    "openings": "free capacity",
    "postman": "dispatcher",
    "rhythm": "progress rate",
    "ripe": "due",
    "standing": "state",
    "stimuli": "commands",
    "stimulus": "command",
    "stranger": "orphan",
    "strangers": "orphans",
    "stray": "orphan",
    "strays": "orphans",
    "takers": "schedulable hosts",
    "wish": "desired",
    "wishes": "desired",
    "withheld": "quarantined (a host's share), suppressed (an action)",
}
"""Private words and the field's word for each. None is part of a name, and none is used in prose."""

ORDINARY = {"attention", "letter", "letters", "standing", "wish", "wishes"}
"""Renamed where they were names; prose may use them in their ordinary meaning."""

STILTED = {
    "anew": "again",
    "in the air": "in flight",
    "look after": "supervise",
    "looks after": "supervises",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
    "nobody": "a real subject",
    "somebody": "a user, a process, another caller",
    "told": "reported, sent, notified",
    "whoever": "the caller, the process that …",
}
"""Phrases at which a native reader stops, and plainer ones."""

KEPT = {
    ("README.md", "told"): "the output of a program",
    ("client/holdfast/cli/cluster/status_page.py", "attention"): "a field and an enum of the contract",
    ("client/holdfast/cli/top/board.py", "attention"): "a field of the contract",
    ("client/holdfast/cli/hosts/host_tables.py", "doubt"): "the contract's field in_doubt",
    ("client/holdfast/spec/rules/notifications.py", "nobody"): "a refusal in the words of 0.1.0",
    ("controller/holdfast_controller/core/views/alerts.py", "withheld"): "the state as status prints it",
    ("controller/holdfast_controller/shell/convert/host_to_proto.py", "doubt"): "the contract's field in_doubt",
    ("controller/holdfast_controller/shell/services/cluster_service.py", "attention"): "names of the contract",
    ("docs/admins/metrics.md", "withheld"): "a state as status and the metrics print it",
    ("docs/admins/operations.md", "withheld"): "the state as status prints it, and the heading about it",
    ("docs/glossary.md", "withheld"): "the printed word for a quarantined share",
    ("proto/holdfast/v1/cluster.proto", "withheld"): "a key of the map that status sends",
}
"""(file, word) that stays, and why: names that others rely on, and quotations."""

_TWICE = re.compile(r"\b([Aa]n?|and|are|as|at|be|by|for|in|is|it|not|of|on|or|[Tt]he|to|with)\s+\1\b")
_PROSE = re.compile(r"\b(" + "|".join(sorted({*RENAMED, *STILTED} - ORDINARY)) + r")\b", re.IGNORECASE)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """(line, first line) of each docstring of modules, classes and functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.split("\n")[0]


@functools.lru_cache(maxsize=1)
def tokens(source: str) -> list[tokenize.TokenInfo]:
    """The tokens of a Python file."""
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


@functools.cache
def renamed(name: str) -> set[str]:
    """The private words in a ``snake_case`` or ``CamelCase`` name."""
    return RENAMED.keys() & {part.lower() for part in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name)}


def python_faults(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, word, fault) of docstrings and names."""
    for line, first in docstrings(source):
        if found := re.match(rf"({FRAGMENTS})\b", first):
            yield line, found[1], f"a docstring begins with {found[1]!r}: {first}"
        elif len(first.split()) < 3:
            yield line, "", f"a docstring of fewer than three words: {first}"
    for token in tokens(source):
        if token.type == tokenize.NAME:
            for part in renamed(token.string):
                yield token.start[0], part, f"{token.string}: say {RENAMED[part]}"


def prose(source: str, *, python: bool) -> Iterator[tuple[int, str]]:
    """(line, text) of a page; of Python its comments, and strings with a blank in them."""
    if not python:
        yield from enumerate(source.split("\n"), 1)
        return
    for token in tokens(source):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield from enumerate(token.string.split("\n"), token.start[0])


def all_faults(name: str, source: str) -> list[tuple[int, str, str]]:
    """(line, word, fault) of a file, those in ``KEPT`` included. ``name`` is its path in the repository."""
    python = name.endswith(".py")
    found = set(python_faults(source)) if python else set()
    for line, text in prose(source, python=python):
        for match in _PROSE.finditer(text):
            word = match[1].lower()
            found.add((line, word, f"{word!r}, say {(RENAMED | STILTED)[word]}: {text.strip()[:100]}"))
        found |= {(line, twice, f"{twice!r} twice: {text.strip()[:100]}") for twice in doubled(text)}
    return sorted(found)


def doubled(text: str) -> list[str]:
    """Small words that a line has twice in a row, as Debian's checker of packages finds them, too."""
    return [match[1].lower() for match in _TWICE.finditer(text)]


def faults(name: str, source: str) -> list[str]:
    """Each fault as ``LINE: FAULT``, by line."""
    return [f"{line}: {fault}" for line, word, fault in all_faults(name, source) if (name, word) not in KEPT]


def files(*folders: str) -> list[str]:
    """Paths of the texts in the repository below ``folders``."""
    named = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        name
        for name in named.stdout.splitlines()
        if name.endswith((".py", ".md", ".proto")) and (ROOT / name).exists()
    ]


def test_words_are_the_fields() -> None:
    names = files(*CHECKED)
    assert len(names) > 1000
    assert {name: found for name in names if (found := faults(name, (ROOT / name).read_text()))} == {}


def test_each_exception_is_needed() -> None:
    for name, word in KEPT:
        assert word in {found for _, found, _ in all_faults(name, (ROOT / name).read_text())}, (name, word)


def test_changelog_says_no_word_twice() -> None:
    assert doubled(" ".join((ROOT / "CHANGELOG.md").read_text().split())) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("# It is is so.\n", "'is' twice"),
        ('"""What it is of."""\n', "begins with 'What'"),
        ('"""Two words."""\n', "fewer than three words"),
        ("on_stranger = 1\n", "on_stranger: say orphan"),
        ("class LetterBox: ...\n", "LetterBox: say outbox entry"),
        ("# nobody knows\n", "'nobody', say a real subject"),
        ('x = f"{n} were told"\n', "'told', say reported"),
    ],
)
def test_each_kind_of_fault_is_found(source: str, fault: str) -> None:
    (found,) = faults("client/holdfast/x.py", source)
    assert fault in found


def test_ordinary_words_are_left_alone() -> None:
    assert faults("docs/x.md", "Letters and digits; a standing order deserves attention.") == []
    assert faults("client/holdfast/x.py", '"""Letters, digits and dashes are allowed."""\n') == []


if __name__ == "__main__":
    for name in files(*sys.argv[1:]):
        for fault in faults(name, (ROOT / name).read_text()):
            print(f"{name}:{fault}")
