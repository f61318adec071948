"""Sources of the page: typed, tested, locked, built to the same bytes, and never HTML made of text."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
SOURCES = sorted(path for path in (WEB / "src").rglob("*") if path.suffix in (".ts", ".tsx"))
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|createContextualFragment|DOMParser|document\.write"
    r"|\beval\(|new Function|setAttribute\(\s*[\"']style|style=\"|javascript:|https?://"
)
"""What makes markup, code or styles of text, or calls other places."""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=170, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done


@pytest.mark.require("node")
def test_types_hold() -> None:
    run("node", "node_modules/typescript/bin/tsc", "--noEmit")


@pytest.mark.require("node")
def test_unit_tests_pass() -> None:
    passed = re.search(r"^# pass (\d+)$", run("node", "test/run.mjs").stdout, re.M)
    assert passed is not None and int(passed[1]) > 30


@pytest.mark.require("node")
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        run("node", "build.mjs", str(tmp_path / name))
    built = [
        {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("first", "second")
    ]
    assert built[0] == built[1]
    page = built[0]["index.html"].decode()
    named = re.findall(r"/(assets/[\w-]+\.\w+)", page)
    assert len(named) == 3 and all(f"{name}{packed}" in built[0] for name in named for packed in ("", ".br", ".gz"))
    assert "<style" not in page and " style=" not in page and not re.search(r"<script[^>]*>[^<]", page)
    code = sum(len(built[0][f"{name}.br"]) for name in named)
    assert code <= 60_000, f"{code} bytes, while the first page should take no more than 60,000"


def test_text_of_others_is_never_made_into_markup() -> None:
    assert len(SOURCES) > 20
    found = {path.name: match[0] for path in SOURCES if (match := UNSAFE.search(path.read_text()))}
    assert not found


def test_packages_are_locked_by_content_and_name_no_registry() -> None:
    wanted = json.loads((WEB / "package.json").read_text())
    versions = {**wanted["dependencies"], **wanted["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in versions} == versions
    for name, each in packages.items():
        assert "resolved" not in each, name
        assert not name or each["integrity"].startswith("sha512-"), name


def test_the_bundle_takes_few_packages() -> None:
    wanted = json.loads((WEB / "package.json").read_text())
    assert set(wanted["dependencies"]) <= {"preact", "@xterm/xterm", "@xterm/addon-fit"}
