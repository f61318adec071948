"""Everything that a command prints goes one way, which leaves out what would drive the reader's terminal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CLI = Path(__file__).parents[2] / "client/holdfast/cli"
THE_WAY = CLI / "kit/console.py"
TOO_OLD = CLI / "__init__.py"
"""Says that this Python is too old to load the way."""
_PRINTERS = {"echo", "secho", "echo_via_pager", "print_exception", "print_exc", "pprint"}
_WRITERS = {
    ("os", "write"),
    ("stdout", "write"),
    ("stderr", "write"),
    ("buffer", "write"),
    ("stdout", "writelines"),
}


def printers(source: str) -> list[str]:
    """Calls that print by another way, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in {"print", *_PRINTERS}:
            found.append(f"{node.lineno}: {called.id}")
        if isinstance(called, ast.Attribute):
            holder = getattr(called.value, "attr", getattr(called.value, "id", ""))
            if called.attr in _PRINTERS or (holder, called.attr) in _WRITERS:
                found.append(f"{node.lineno}: {holder}.{called.attr}")
    return found


@pytest.mark.parametrize(
    "source",
    ["print(1)", "click.echo('x')", "click.secho('x')", "sys.stdout.write('x')", "sys.stderr.buffer.write(b'')",
     "os.write(1, b'')", "traceback.print_exception(e)", "from click import echo\necho('x')"],
)  # fmt: skip
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert printers(source)


def test_no_command_prints_by_another_way() -> None:
    modules = sorted(CLI.rglob("*.py"))
    assert len(modules) > 40 and THE_WAY in modules and printers(THE_WAY.read_text())
    assert {
        str(path): found
        for path in modules
        if path not in (THE_WAY, TOO_OLD) and (found := printers(path.read_text()))
    } == {}
