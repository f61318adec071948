"""The wait for the gang's first rank to listen at ``MASTER_ADDR:MASTER_PORT``: who is refused tries again much later.

``sitecustomize`` of warm starts has the same for programs that don't import this.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import Any

MEET_S, LOOK_S, LONGEST_LOOK_S = 5.0, 0.005, 0.1
LISTENS = b"0A"


def await_listening() -> None:
    """Wait until something listens where the gang's first rank is to, but not for ever.

    It may count its peers. So where it is on another host, and only connecting would tell, that is done for torch's
    store alone, which bears it.
    """
    until, pause_s = time.monotonic() + MEET_S, LOOK_S
    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        family, kind, _, _, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
    except (KeyError, ValueError, OSError):
        return
    here = _is_here(family, address[0])
    if not here and "torch.distributed" not in sys.modules:
        return
    while time.monotonic() < until:
        if _is_listening(place[1]) if here else _answers(family, kind, address, until):
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_LOOK_S)


def _is_here(family: int, host: Any) -> bool:
    """Whether it is an address of this host."""
    with socket.socket(family, socket.SOCK_STREAM) as ours:
        try:
            ours.bind((host, 0))
        except OSError:
            return False
    return True


def _is_listening(port: int) -> bool:
    """Whether something on this host listens at the port. It does not notice the look."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/self/net/{name}", "rb") as lines:
            if any(each[1].endswith(b":%04X" % port) and each[3] == LISTENS for each in map(bytes.split, lines)):
                return True
    return False


def _answers(family: int, kind: int, address: Any, until: float) -> bool:
    with socket.socket(family, kind) as asks:
        asks.settimeout(max(0.001, until - time.monotonic()))
        return asks.connect_ex(address) == 0
