"""Pages drawn from the code are those that the code draws now."""

from __future__ import annotations

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast_agent.core.launch.preflight import Minimums
from holdfast_agent.shell.config import Config, Hooks
from holdfast_agent.shell.containers.containers import ContainerSettings
from holdfast_agent.shell.packages.settings import Packages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["draw_states", "draw_policy", "draw_access"])
def test_drawn_page_is_what_the_code_draws_now(script: str) -> None:
    spec = importlib.util.spec_from_file_location(script, ROOT / f"docs/{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), f"run: python docs/{script}.py"


def test_every_key_of_the_agents_settings_is_on_its_page() -> None:
    page = (ROOT / "docs/admins/agent.md").read_text()
    keys = [field.name for cls in (Config, Minimums, Hooks, ContainerSettings, Packages) for field in fields(cls)]
    shown = ("`{}`", "**{}**", "[{}]")
    assert [key for key in keys if not any(form.format(key) in page for form in shown)] == []


def test_the_defaults_of_the_checks_are_those_on_the_page() -> None:
    page = (ROOT / "docs/admins/agent.md").read_text()
    for field in fields(Minimums):
        default = "true" if field.default is True else field.default
        assert f"| `{field.name}` | {default} |" in page
