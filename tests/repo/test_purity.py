"""Both cores decide and do nothing else; no module grows without a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORES = [ROOT / "controller/holdfast_controller/core", ROOT / "agent/holdfast_agent/core"]
MODULES = sorted(path for core in CORES for path in core.rglob("*.py"))
IMPURE = {
    "alembic", "anyio", "asyncio", "ctypes", "datetime", "fcntl", "glob", "google", "grpc", "io", "logging",
    "multiprocessing", "os", "psutil", "pynvml", "random", "requests", "secrets", "select", "shutil", "signal",
    "socket", "sqlalchemy", "sqlite3", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "trio",
    "urllib", "uuid", "uvloop",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
PATH_METHODS = {
    "read_text",
    "write_text",
    "read_bytes",
    "write_bytes",
    "exists",
    "is_file",
    "is_dir",
    "mkdir",
    "unlink",
}
CLOCKS = {"now", "utcnow", "today", "monotonic", "perf_counter", "time_ns"}
OURS_BUT_IMPURE = (
    "holdfast.v1",
    "holdfast._security.tls",
    "holdfast.client",
    "holdfast_controller.shell",
    "holdfast_agent.shell",
)
FOR_USERS = ("_api", "errors.py", "settings.py", "training")
"""Of ``client/holdfast``: classes that users' programs see, with signatures for ``help``."""
LIMIT = 400
REASON = "Longer than 400 lines because"
MOST_MODULES = 25


def impurities(source: str) -> list[str]:
    """What of a module touches the world, with line numbers."""
    found = []
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            found.append(f"{line}: async")
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        found += [
            f"{line}: imports {module}"
            for module in modules
            if module.split(".")[0] in IMPURE or module.startswith(OURS_BUT_IMPURE)
        ]
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
                found.append(f"{line}: calls {called.id}")
            if isinstance(called, ast.Attribute) and called.attr in PATH_METHODS | CLOCKS:
                found.append(f"{line}: calls {called.attr}")
    return found


def test_there_are_cores_to_look_at() -> None:
    assert {path.parent for path in MODULES} >= set(CORES)
    assert len(MODULES) > 20


def test_cores_are_pure() -> None:
    found = {str(path.relative_to(ROOT)): impurities(path.read_text()) for path in MODULES}
    assert {name: impure for name, impure in found.items() if impure} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from time import monotonic",
        "from google.protobuf import duration_pb2",
        "from holdfast.v1 import job_pb2",
        "from holdfast import v1",
        "from holdfast_agent.shell import driver",
        "def f():\n    import random",
        "async def f(): pass",
        "open('x')",
        "clock.now()",
        "path.read_text()",
    ],
)
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert impurities(source)


def test_frozen_classes_are_finished_at_first_use() -> None:
    packages = ("client/holdfast", "controller/holdfast_controller", "agent/holdfast_agent")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    seen = {path for name in FOR_USERS for path in sources if path.is_relative_to(ROOT / packages[0] / name)}
    texts = {str(path): path.read_text() for path in sources if path not in seen}
    frozen = {name: text for name, text in texts.items() if "@dataclass(frozen=True" in text}
    assert len(frozen) > 200
    assert [
        name for name, text in frozen.items() if "from holdfast._base.dataclass import dataclass" not in text
    ] == []


def _wrong_about_its_length(path: Path) -> bool:
    """Whether it is long and doesn't say why, says so twice, or says so though it isn't."""
    text = path.read_text()
    reasons = (ast.get_docstring(ast.parse(text)) or "").count(REASON) if REASON in text else 0
    return reasons != (len(text.splitlines()) > LIMIT)


def test_no_module_is_longer_than_400_lines_without_saying_why() -> None:
    folders = ("client", "controller", "agent", "tests", "bench", "examples", "build_hooks", "docs")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if "v1" not in path.parts]
    assert len(sources) > 100
    assert [str(path.relative_to(ROOT)) for path in sources if _wrong_about_its_length(path)] == []


def test_no_folder_has_more_modules_than_fit_on_a_screen() -> None:
    roots = ("client", "controller", "agent", "bench", "tests")
    folders = [path for root in roots for path in (ROOT / root).rglob("*/")]
    modules = {path: {each.name for each in path.glob("*.py")} - {"__init__.py"} for path in folders}
    assert len(modules) > 50
    assert {str(path): len(names) for path, names in modules.items() if len(names) > MOST_MODULES} == {}
