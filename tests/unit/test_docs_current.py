"""Pages drawn from the code are those that the code draws now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_state_diagrams_are_those_of_the_transition_tables() -> None:
    spec = importlib.util.spec_from_file_location("draw_states", ROOT / "docs/draw_states.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run: python docs/draw_states.py"
