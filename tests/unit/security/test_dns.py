"""Whoever dials the controller has its name looked up by the machine; it has to be said before gRPC is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Stands in for gRPC: says how names are looked up in the moment in which it is loaded.
GRPC = "import os, sys\nprint(os.environ.get('GRPC_DNS_RESOLVER'), flush=True)\nos._exit(0)\n"
FILES = 'ca = "ca.pem"\ncert = "c.pem"\nkey = "c.key"\ncontroller = "ctl.lab:7443"\n'
AGENT = f'{FILES}name = "h1"\nstate_dir = "state"\nlog_dir = "logs"\n'
JOIN = ("join", "ctl.lab:7444", "--token=hft-x", "--ca-hash=sha256:x")


@pytest.mark.parametrize(
    "command",
    [
        ("holdfast", "whoami"),
        ("holdfast", "login", *JOIN[1:]),
        ("holdfast_agent", "--config", "agent.toml"),
        ("holdfast_agent", *JOIN),
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("told", [None, "ares"])
def test_names_are_looked_up_by_the_machine_unless_it_is_told_otherwise(
    tmp_path: Path, command: tuple[str, ...], told: str | None
) -> None:
    (tmp_path / "grpc").mkdir()
    (tmp_path / "grpc/__init__.py").write_text(GRPC)
    (tmp_path / "client.toml").write_text(FILES)
    (tmp_path / "agent.toml").write_text(AGENT)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "HOLDFAST_CONFIG": str(tmp_path / "client.toml")}
    env.pop("GRPC_DNS_RESOLVER", None)
    env |= {"GRPC_DNS_RESOLVER": told} if told else {}
    done = subprocess.run(
        [sys.executable, "-m", *command], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[:1] == [told or "native"], done.stderr
