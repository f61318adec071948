"""One log format for both daemons: its keys, its time, and the names of events and fields."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._daemon import log
from holdfast.errors import ConfigError

ROOT = Path(__file__).parents[3]
PACKAGES = ("client/holdfast", "controller/holdfast_controller", "agent/holdfast_agent")
NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
FORWARDED = {"agent/holdfast_agent/shell/driver/executor.py", "controller/holdfast_controller/shell/driver.py"}
"""Drivers, which log the notes of their cores; those are named where they are made."""
RETIRED = {"at", "place", "problem", "why", "took_s", "timestamp", "ts", "level", "event", "time"}
"""Fields that have another name, or are the format's own."""


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        where = str(path.relative_to(ROOT))
        text = "" if "/v1/" in where else path.read_text()
        if re.search(r"\blog\.\w+\(|\bNote\(", text):
            yield from ((where, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def logged() -> list[tuple[str, ast.Call, int]]:
    """Where, the call, and which of its arguments is the event."""
    found = []
    for where, call in calls():
        match call.func:
            case ast.Attribute(ast.Name("log"), "debug" | "info" | "warning"):
                found.append((where, call, 0))
            case ast.Attribute(ast.Name("log"), "write") if len(call.args) == 2:
                found.append((where, call, 1))
            case ast.Name("Note") | ast.Attribute(_, "Note"):
                found.append((where, call, 0))
    return found


def test_every_event_is_a_constant_subject_and_what_happened_to_it() -> None:
    found = logged()
    assert len(found) > 100
    for where, call, at in found:
        if where in FORWARDED and isinstance(call.args[at], ast.Name):
            continue
        event = ast.literal_eval(call.args[at])
        assert NAME.fullmatch(event), f"{where}:{call.lineno}: {event}"


def test_a_field_has_one_name_in_both_daemons() -> None:
    for where, call, _ in logged():
        assert not RETIRED & {keyword.arg for keyword in call.keywords}, f"{where}:{call.lineno}"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level, source = root.handlers[:], root.level, logging._srcfile
    threads, processes, multi = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    yield io.StringIO()
    root.handlers[:], logging._srcfile = handlers, source
    root.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = threads, processes, multi


def test_a_line_holds_time_level_event_and_fields_in_this_order(lines: io.StringIO) -> None:
    log.configure("info", logging.StreamHandler(lines))
    log.info("session.opened", host="gpu-01", path=Path("/x"))
    log.debug("session.opened", host="gpu-02")
    logging.getLogger("asyncio").warning("a library's %s", "sentence")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert list(first) == ["time", "level", "event", "host", "path"]
    assert (first["level"], first["event"], first["host"], first["path"]) == (
        "info",
        "session.opened",
        "gpu-01",
        "/x",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (second["level"], second["event"]) == ("warning", "a library's sentence")


def test_time_is_in_utc_to_the_millisecond() -> None:
    assert log.timestamp(0.0425) == "1970-01-01T00:00:00.042Z"
    assert log.timestamp(1_800_000_000.9996) == "2027-01-15T08:00:00.999Z"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"log_level: 'loud' is unknown.*Write one of debug, info") as refused:
        log.configure("loud")
    assert refused.value.fix
