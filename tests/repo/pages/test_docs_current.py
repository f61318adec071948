"""Pages drawn from the code are those that the code draws now."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from holdfast._base import config
from holdfast_agent.core.launch.preflight import Minimums
from holdfast_agent.shell.config import Config, Hooks
from holdfast_agent.shell.containers.containers import ContainerSettings
from holdfast_agent.shell.main import reload as agent_reload
from holdfast_agent.shell.packages.settings import Packages
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main import reload as controller_reload

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("script", ["draw_states", "draw_policy", "draw_access", "draw_limits", "draw_settings"])
def test_drawn_page_is_what_the_code_draws_now(script: str) -> None:
    module = drawn(script)
    assert module.PAGE.read_text() == module.page(), f"run: python docs/{script}.py"


def drawn(script: str) -> Any:
    """The script of ``docs/`` as a module."""
    spec = importlib.util.spec_from_file_location(script, ROOT / f"docs/{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script] = module
    spec.loader.exec_module(module)
    return module


def test_every_setting_says_what_it_does() -> None:
    settings = drawn("draw_settings")
    found = [*settings.controller(), *settings.agent()]
    assert len(found) > 90
    assert [key.name for key in found if len(key.meaning) < 10] == []
    assert [key.name for key in found if "|" in key.meaning or "None" in key.meaning] == []


def test_the_keys_that_a_reload_applies_are_those_on_the_page_of_reloads() -> None:
    page = " ".join((ROOT / "docs/admins/systemd.md").read_text().split())
    told = re.search(r"a reload applies these: (.*?)\. Of an agent's: (.*?)\. Others", page)
    assert told
    shown = [set(re.findall(r"`([a-z_]+)`", part)) for part in told.groups()]
    assert shown == [set(controller_reload.LIVE), set(agent_reload.LIVE)]
    for live, cls in ((controller_reload.LIVE, ControllerConfig), (agent_reload.LIVE, Config)):
        assert live <= {field.name for field in fields(cls)}


def test_the_quotas_on_the_page_of_settings_are_read_as_they_stand(tmp_path: Path) -> None:
    text = (ROOT / "docs/admins/settings.md").read_text()
    example = re.search(r"```toml\n(.*?)```", text, re.S)
    assert example
    required = "".join(f'{key} = "x:1"\n' for key in ("listen", "state_dir", "ca", "cert", "key", "cluster"))
    (tmp_path / "controller.toml").write_text(required + example[1])
    limits = config.load(ControllerConfig, tmp_path / "controller.toml").limits
    assert set(limits) == {"llm", "*", "user/ann", "user/*"}
    assert (limits["user/ann"].max_priority, limits["user/*"].max_priority) == (3, 2)


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


def existing() -> set[str]:
    """Every file of the repository and the folders that hold them, without what is built."""
    built = {"site", "dist", "build", "__pycache__"}
    found = {str(path.relative_to(ROOT)) for path in ROOT.iterdir() if path.is_file()}
    for top in (path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")):
        found |= {str(path.relative_to(ROOT)) for path in (top, *top.rglob("*")) if not built & set(path.parts)}
    return found


PARTS = ("controller/holdfast_controller", "agent/holdfast_agent")
PAGES = [page for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if page.name != "CHANGELOG.md"]
_PATH = re.compile(
    r"`((?:[\w./-]+/)?[\w.-]+\.(?:py|proto|md)|(?:client|controller|agent|tests|bench|docs)/[\w./-]+)(?:::\w+)?`"
)
OF_USERS = {"setup.py", "holdfast_progress.py"}
"""Files that users have, or get with a package: none of the repository's."""


def test_every_path_on_a_page_exists() -> None:
    """Whole paths, or their ends: `core/reactor.py`, `reactor.py`."""
    known = {"/".join(path.split("/")[start:]) for path in existing() for start in range(path.count("/") + 1)}
    named = {(page.name, path.rstrip("/")) for page in PAGES for path in _PATH.findall(page.read_text())}
    assert len(named) > 200
    assert sorted((page, path) for page, path in named if path not in known | OF_USERS) == []


def test_links_of_the_repository_s_own_pages_lead_somewhere() -> None:
    """`make docs` checks those within docs/."""
    for page in (*ROOT.glob("*.md"), ROOT / "bench/README.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def test_the_tree_of_the_repository_is_whole() -> None:
    """Each name in it exists, and no package of the three parts is left out."""
    tree = (ROOT / "docs/README.md").read_text().partition("## The repository\n")[2].split("```")[1]
    folders: list[tuple[int, str]] = []
    shown: set[str] = set()
    for line in tree.strip("\n").splitlines():
        indent = len(line) - len(line.lstrip())
        folders = [folder for folder in folders if folder[0] < indent]
        above = "".join(f"{name}/" for _, name in folders)
        names = [
            name.rstrip("/") for name in line.strip().partition("  ")[0].split() if name.endswith(("/", ".py"))
        ]
        assert names, f"no path in {line!r}"
        shown |= {f"{above}{name}" for name in names}
        folders.append((indent, names[0]))
    there = existing()
    assert sorted(shown - there) == []
    parts = ("client/holdfast", *(f"{part}/{kind}" for part in PARTS for kind in ("core", "shell")))
    packages = {path for path in there if path.rpartition("/")[0] in parts and f"{path}/__init__.py" in there}
    packages.discard("client/holdfast/v1")  # generated from proto/
    assert sorted(packages - shown) == []


def test_every_log_event_on_an_admin_s_page_is_logged() -> None:
    pages = [page for page in (ROOT / "docs/admins").glob("*.md") if page.name != "doctor.md"]
    text = "".join(page.read_text() for page in (*pages, ROOT / "docs/users/notifications.md"))
    named = set(re.findall(r"`([a-z_]+\.(?!toml|slice|lab)[a-z_]+)`", text))
    code = "".join(file.read_text() for part in PARTS for file in (ROOT / part).rglob("*.py"))
    code += "".join(file.read_text() for file in (ROOT / "client/holdfast/_daemon").glob("*.py"))
    assert len(named) > 8
    assert sorted(name for name in named if f'"{name}"' not in code) == []


def phrases() -> list[str]:
    """What a command may print, as patterns: f-strings of it and of events' messages that begin with words."""
    found = []
    files = [*(ROOT / "client/holdfast/cli").rglob("*.py"), *(ROOT / PARTS[0] / "core").rglob("*.py")]
    for file in files:
        for node in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.JoinedStr)):
            parts = [str(part.value) if isinstance(part, ast.Constant) else None for part in node.values]
            if len(parts[0] or "") >= 10:
                found.append("".join(".*" if part is None else re.escape(part) for part in parts))
    return found


def test_the_transcripts_of_the_readme_say_what_the_command_line_says() -> None:
    known = phrases()
    lines = re.findall(r"^holdfast: (?!workerpool)(.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 6
    assert [line for line in lines if not any(re.fullmatch(phrase, line) for phrase in known)] == []


def test_no_line_of_the_changelog_has_two_merged_into_it() -> None:
    long = [
        number for number, line in enumerate((ROOT / "CHANGELOG.md").read_text().splitlines(), 1) if len(line) > 132
    ]
    assert not long, (
        f"CHANGELOG.md: lines {long} are longer than 132 characters: wrap them, or see what a merge did"
    )


def test_each_file_that_a_change_goes_to_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## Where a change goes") : text.index("## Laws")]
    named = {name for name in re.findall(r"`([\w./-]+)`", table) if "/" in name or name.endswith(".py")}
    assert len(named) > 100
    folders = [ROOT, *(ROOT / name for name in ("agent", "client", "controller", "deploy", "tests"))]
    below = [path for folder in folders[1:] for path in folder.rglob("*") if path.is_dir()]
    assert [name for name in named if not any((folder / name).exists() for folder in (*folders, *below))] == []
