"""What a user may import: these modules and the names in their ``__all__``, and whatever those take or give."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import holdfast

PUBLIC = ("holdfast", "holdfast.client", "holdfast.errors", "holdfast.settings", "holdfast.spec", "holdfast.v1")
INTERNAL = ("bundles", "cli", "dev", "doctor", "guard", "hang", "training")


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_there_and_says_what_it_is(name: str) -> None:
    module = load(name)
    assert module.__doc__
    for each in module.__all__:
        value = load(f"{name}.{each}") if name == "holdfast.v1" else getattr(module, each)
        if inspect.isfunction(value) or (inspect.isclass(value) and name != "holdfast.v1"):
            assert value.__doc__, f"{name}.{each}"


def test_all_else_is_private_or_named_as_internal() -> None:
    found = {entry.stem for entry in Path(holdfast.__file__).parent.iterdir() if not entry.name.startswith("_")}
    public = {name.partition(".")[2] for name in PUBLIC} - {""}
    assert found - {"py"} == public | set(INTERNAL)
    for name in (*PUBLIC[1:], *(f"``{each}``" for each in INTERNAL)):
        assert name in (holdfast.__doc__ or "")


def test_nothing_else_is_defined_in_the_open_in_a_public_module() -> None:
    for name in PUBLIC[:-1]:
        module = load(name)
        for each, value in vars(module).items():
            ours = getattr(value, "__module__", None) == name
            assert not ours or each.startswith("_") or each in module.__all__ or each in SHARED, f"{name}.{each}"


SHARED = {"own_directory"}
"""Used by the command line, and no promise."""


def origins(module: ModuleType) -> dict[str, str]:
    """Where each name of a module was imported from, also those that only type checkers import."""
    tree = ast.parse(inspect.getsource(module))
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {each.asname or each.name: f"{node.module}.{each.name}" for node in imports for each in node.names}


def signatures(kind: type) -> Iterator[tuple[str, str]]:
    """(where, name) of each name in a signature of the class's public methods."""
    for base in kind.__mro__:
        if not base.__module__.startswith("holdfast"):
            continue
        known = origins(load(base.__module__))
        for method, value in vars(base).items():
            if method.startswith("_") or not inspect.isfunction(value):
                continue
            for text in value.__annotations__.values():
                for node in ast.walk(ast.parse(text, mode="eval")):
                    if isinstance(node, ast.Name) and known.get(node.id, "").startswith("holdfast."):
                        yield f"{base.__qualname__}.{method}", known[node.id]


@pytest.mark.parametrize("name", ["Client", "AccessCalls", "SecretCalls"])
def test_whatever_a_call_takes_or_gives_can_be_imported(name: str) -> None:
    client = load("holdfast.client")
    public = {each: getattr(load(module), each) for module in PUBLIC[:-1] for each in load(module).__all__}
    used = dict.fromkeys(signatures(getattr(client, name)))
    assert used
    for where, path in used:
        module, _, each = path.rpartition(".")
        if not module.startswith("holdfast.v1"):
            assert public.get(each) is getattr(load(module), each), f"{where} needs {path}"


def test_a_training_program_loads_neither_grpc_nor_protobuf() -> None:
    code = "import sys, holdfast; holdfast.progress; print(*sys.modules)"
    loaded = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout.split()
    assert not {"grpc", "google.protobuf", "pydantic", "anyio", "click"} & set(loaded)
