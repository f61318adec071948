"""Hatchling build hook: typed protobuf and gRPC stubs from ``proto/`` into ``client/holdfast/v1``."""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OUT = Path("client")


class StubsHook(BuildHookInterface):
    """Runs protoc before every wheel (editable ones too), so that stubs never drift from the contract."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate(Path(self.root))


def generate(root: Path) -> None:
    """Write ``*_pb2.py``, ``*_pb2_grpc.py`` and their ``.pyi`` for each file of ``proto/holdfast/v1``."""
    from grpc_tools import protoc

    sources = sorted((root / "proto").rglob("*.proto"))
    well_known = str(importlib.resources.files("grpc_tools") / "_proto")
    # The mypy-protobuf plugins sit beside the interpreter of the isolated build environment.
    bin_dirs = [
        Path(sys.executable).parent,
        *(Path(p).parent.parent.parent / "bin" for p in sys.path if "site-packages" in p),
    ]
    plugins = [
        f"--plugin=protoc-gen-{name}={path}"
        for name in ("mypy", "mypy_grpc")
        if (path := next((d / f"protoc-gen-{name}" for d in bin_dirs if (d / f"protoc-gen-{name}").exists()), None))
    ]
    out = root / OUT
    (out / "holdfast/v1").mkdir(parents=True, exist_ok=True)
    args = [
        "protoc",
        f"-I{root / 'proto'}",
        f"-I{well_known}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out={out}",
        f"--mypy_grpc_out={out}",
        *plugins,
        *map(str, sources),
    ]
    if protoc.main(args) != 0:
        raise SystemExit("protoc failed; see its messages above")
    modules = sorted(file.stem for file in (out / "holdfast/v1").glob("*_pb2*.py"))
    init = '"""The messages and stubs of the API, generated from proto/holdfast/v1; do not edit."""\n\n'
    (out / "holdfast/v1/__init__.py").write_text(f"{init}__all__ = {modules!r}\n")


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent.parent)
