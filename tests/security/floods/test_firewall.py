"""The line for the firewall, as it stands in the page for admins, against handshakes that are begun without end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/admins/joining.md"
FLOOD_S = 4.0
TRIES = r"""
import contextlib, json, socket, sys, time

flood_s = float(sys.argv[1])

def began(source):
    with socket.socket() as one:
        one.settimeout(0.005 if source == "127.0.0.2" else 5)
        one.bind((source, 0))
        with contextlib.suppress(TimeoutError):
            one.connect(("127.0.0.1", 7443))
            return 1
    return 0

with socket.create_server(("127.0.0.1", 7443), backlog=4096) as listening:
    flooded, others, until, tried = 0, [], time.monotonic() + flood_s, 0
    while time.monotonic() < until:
        flooded += began("127.0.0.2")
        tried += 1
        if tried % 100 == 0:
            others.append(began("127.0.0.1"))
    print(json.dumps([tried, flooded, others, time.monotonic() - until + flood_s]))
"""


@pytest.mark.require("iptables")
def test_an_address_that_begins_handshakes_without_end_is_held_to_the_rate_and_no_other_is() -> None:
    (line,) = re.findall(r"^iptables ((?:.*\\\n)*.*)$", PAGE.read_text(), re.MULTILINE)
    script = f'ip link set lo up && iptables {line}\nexec "$0" -c "$1" {FLOOD_S}'
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-ec", script, sys.executable, TRIES],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    tried, flooded, others, lasted = json.loads(ran.stdout)
    assert 200 <= flooded <= 200 + 50 * lasted + 5
    assert tried > flooded and others and all(others)
