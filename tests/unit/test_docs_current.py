"""Pages drawn from the code are those that the code draws now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["draw_states", "draw_policy"])
def test_drawn_page_is_what_the_code_draws_now(script: str) -> None:
    spec = importlib.util.spec_from_file_location(script, ROOT / f"docs/{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), f"run: python docs/{script}.py"
