"""Packages that we need: versions are locked, the next major version is kept out, advisories are looked up."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNBOUNDED = {"cryptography", "nvidia-ml-py"}
"""Why is said in pyproject.toml."""


def requirements() -> list[str]:
    return [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9-]+", requirement)
    assert found is not None
    return found[0]


def test_the_next_major_version_is_kept_out() -> None:
    names = {name_of(each) for each in requirements()}
    assert len(names) > 20
    open_ended = {name_of(each) for each in requirements() if not re.search(r",<\d+", each)}
    # Extras of a former release repeat a requirement.
    bounded = {name_of(each) for each in requirements() if re.search(r",<\d+", each)}
    assert open_ended - bounded == UNBOUNDED


def test_every_requirement_is_locked() -> None:
    locked = {each["name"] for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert {name_of(each).lower() for each in requirements()} <= locked


class Database(http.server.BaseHTTPRequestHandler):
    """A database of advisories that knows one, about starlette."""

    fixed: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        known = {"vulns": [{"id": "PYSEC-1", "modified": "2026-01-01T00:00:00Z"}]}
        self._answer({"results": [known if each["package"]["name"] == "starlette" else {} for each in asked]})

    def do_GET(self) -> None:
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, *self.fixed]}]
        affected = [{"package": {"name": "starlette", "ecosystem": "PyPI"}, "ranges": ranges}]
        about = {"id": "PYSEC-1", "summary": "a hole", "details": "d", "affected": affected}
        self._answer({**about, "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z"})

    def _answer(self, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Database]]:
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Database)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    monkeypatch.setattr(Database, "port", served.server_address[1], raising=False)
    yield Database
    served.shutdown()
    thread.join()
    served.server_close()


def look(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/advisories.py", "--service-url", f"http://127.0.0.1:{port}/"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)


def test_an_advisory_with_a_release_that_fixes_it_fails(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "fixed", [{"fixed": "999.0"}])
    found = look(database.port)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "PYSEC-1: a hole (fixed in: 999.0)" in found.stdout


def test_an_advisory_that_no_release_fixes_is_told_and_fails_nothing(database: Any) -> None:
    found = look(database.port)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "PYSEC-1: a hole (fixed in: none yet)" in found.stdout


def test_without_data_that_is_said_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    found = look(9)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "advisories: not checked: no data" in found.stdout
