"""The command ``holdfast``, and ``python -m holdfast``."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from holdfast import cli


def main() -> None:
    """The entry point."""
    try:
        cli.main()
    except SystemExit as ended:
        if isinstance(ended.code, (int, type(None))):
            _leave(ended.code or 0)
        raise


def _leave(status: int) -> None:
    """End as the interpreter does, but for taking apart all that was loaded: an eighth of a short command's time.

    Returns where that is the interpreter's: a thread goes on, a profiler watches, or a stream can't be written to.
    """
    others = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    if others or sys.getprofile() is not None or sys.gettrace() is not None:
        return
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
