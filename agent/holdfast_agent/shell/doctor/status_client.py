"""Asks this host's agent for its status, over ``agent.sock`` in its state directory (``shell.main.status_socket``)."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from holdfast.errors import Denied, Unavailable

NAME = "agent.sock"
ANSWER_S = 5.0
"""For writing, and for reading, one answer."""
ANSWER_MAX_BYTES = 16 << 20


def ask(directory: Path) -> dict[str, Any]:
    """Ask the agent of a state directory for its status. Blocks up to ``ANSWER_S``.

    Raises ``Unavailable`` where none answers, and ``Denied`` where it won't tell this user.
    """
    try:
        with _connected(directory) as sock:
            sock.settimeout(ANSWER_S)
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < ANSWER_MAX_BYTES:
                data = sock.recv(1 << 16)
                if not data:
                    raise Denied("The agent shows its status only to root.", fix="Run it as root.")
                answer += data
        found = json.loads(answer)
    except PermissionError as error:
        raise Denied("Only root may ask this host's agent.", fix="Run it as root.") from error
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"No agent of {directory} answers.",
            fix="See: systemctl status holdfast-agent",
        ) from error
    if not isinstance(found, dict):
        raise Unavailable(f"What answers in {directory} is no agent.")
    return found


def _connected(directory: Path) -> socket.socket:
    holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(ANSWER_S)
        sock.connect(f"/proc/self/fd/{holder}/{NAME}")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(holder)
    return sock
