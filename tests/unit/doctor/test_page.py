"""The doctor's page: one line a check, what is wrong with its fix below, and an exit status for scripts."""

from __future__ import annotations

import json

from holdfast.doctor.findings import error, exit_status, needs_root, ok, view, warning
from holdfast.doctor.page import coloured, page

LONG = "systemctl edit holdfast-agent " + "x" * 120
FOUND = [
    ok("time.ntp", "synchronised"),
    warning("memory.swap", "8192 MiB", "It crawls.", "swapoff -a"),
    error("network.port_range", "lies in the ephemeral range", "Any program may take one.", LONG),
    needs_root("certificates.files", "host.key: Permission denied"),
]


def test_only_what_is_wrong_is_explained() -> None:
    assert page("h7", FOUND[:2], width=80) == (
        "ok       time.ntp     synchronised\n"
        "warning  memory.swap  8192 MiB\n"
        "\n"
        "warning  memory.swap: 8192 MiB\n"
        "  It crawls.\n"
        "    swapoff -a\n"
        "\n"
        "h7: 2 checks, 0 errors, 1 warning\n"
    )


def test_prose_is_wrapped_and_what_is_to_be_typed_is_not() -> None:
    text = page("h7", [warning("a.b", "word " * 60, "why " * 60, LONG)], width=60)
    lines = text.splitlines()
    assert f"    {LONG}" in lines
    assert all(len(line) <= 60 for line in lines if LONG not in line)


def test_what_could_not_be_looked_at_is_counted_and_says_how() -> None:
    text = page("h7", FOUND, width=100)
    assert text.endswith(
        "h7: 4 checks, 1 error, 1 warning, 1 could not be looked at\n  Run it as root to look at everything.\n"
    )
    assert "couldn't look: host.key: Permission denied" in text


def test_control_characters_of_what_was_seen_never_reach_the_terminal() -> None:
    assert "\x1b" not in page("h7", [error("a.b", "evil \x1b[2J name", "Why.", "fix")])


def test_colour_is_for_terminals_that_want_it() -> None:
    assert "\x1b[1;31mERROR  \x1b[0m" in page("h7", FOUND, colour=True)
    assert "\x1b" not in page("h7", FOUND)
    assert coloured(True, {"TERM": "xterm"})
    assert not coloured(False, {})
    assert not coloured(True, {"NO_COLOR": "1"})
    assert not coloured(True, {"TERM": "dumb"})


def test_errors_alone_make_the_exit_status() -> None:
    assert exit_status(FOUND) == 1
    assert exit_status([FOUND[0], FOUND[1], FOUND[3]]) == 0


def test_programs_get_all_of_it() -> None:
    seen = json.loads(json.dumps(view("h7", "0.3.0", FOUND)))
    assert seen["summary"] == {"ok": 1, "unknown": 1, "warning": 1, "error": 1}
    assert seen["findings"][1] == {
        "check": "memory.swap",
        "status": "warning",
        "saw": "8192 MiB",
        "why": "It crawls.",
        "fix": ["swapoff -a"],
        "notify": False,
        "keepsWorkAway": False,
    }
