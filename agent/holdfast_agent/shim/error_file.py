"""Reads torch's error file: the exception that its `record` decorator caught, in one line.

A rank may write anything there: the read is bounded, only regular files count, and anything else is no exception.
"""

from __future__ import annotations

import json
import os
import stat

from holdfast_agent.shim.processes import printable

VARIABLE = b"TORCHELASTIC_ERROR_FILE"
MOST_BYTES, MOST_CHARS = 1 << 18, 500


def raised(path: bytes) -> str:
    """The first line of the recorded exception, such as `ValueError: bad batch`; empty without one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return ""  # a second name may have been given to a file that its giver may not read
        record = json.loads(os.read(fd, MOST_BYTES))
        message = record["message"]
        text = message["message"] if isinstance(message, dict) else message
        return printable(str(text).strip().partition("\n")[0].encode())[:MOST_CHARS]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    finally:
        os.close(fd)
