"""The modules of examples/digits, which lie in no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"digits_example_{name}", DIGITS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


allreduce, checkpoint, faults, network = (_load(name) for name in ("allreduce", "checkpoint", "faults", "network"))
