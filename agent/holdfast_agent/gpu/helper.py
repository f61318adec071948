"""The GPU helper: ``python -m holdfast_agent.gpu.helper``. Asks the driver, so that the agent never has to.

JSON lines on stdin and stdout. It opens the driver and says ``{"ready": true}``; then each request, such as
``{"op": "inventory"}``, gets one reply: ``{"ok": …}``, ``{"failed": "why no GPU can be read"}`` or
``{"error": "what is wrong with the request"}``. Errors of GPUs that the driver has reported since the last reply are
in ``xids`` of the next one, whatever was asked. It ends at the end of its input and with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

from holdfast_agent.gpu.nvml import driver, health, inventory, readings, xid_events

TYPE_CHECKING = False  # as typing's, without loading typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PR_SET_PDEATHSIG = 1
_OPS: dict[str, Callable[[], Any]] = {
    "inventory": inventory.inventory,
    "usage": inventory.usage,
    "signals": readings.read,
    "driver": driver.read,
    "health": health.read,
}


def answer(line: bytes) -> dict[str, Any]:
    """The reply to one request."""
    try:
        request = json.loads(line)
    except ValueError as error:
        return {"error": f"not JSON: {error}"}
    op = request.get("op") if isinstance(request, dict) else None
    if not isinstance(op, str) or op not in _OPS:
        return {"error": f"unknown op {op!r}; known: {', '.join(_OPS)}"}
    try:
        return {"ok": _OPS[op]()}
    except inventory.LibraryFailed as failure:
        return {"failed": str(failure)}


def main() -> None:
    """Serve until the input ends."""
    # A call that hangs in the driver must not outlive the agent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a driver library prints must not mix with the replies
    try:
        inventory.open_library()
    except inventory.LibraryFailed:
        pass  # the first reply will say so
    replies.write(b'{"ready": true}\n')
    replies.flush()
    for line in sys.stdin.buffer:
        reply = answer(line)
        if heard := xid_events.drain():
            reply["xids"] = heard
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
