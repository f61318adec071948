"""The ``holdfast`` command. Nothing here imports gRPC or pydantic before a command needs it."""

import sys

__all__ = ["main"]


def main() -> None:
    """The entry point. An impatient Ctrl-C ends it quietly, even while it is still being loaded."""
    try:
        from holdfast.cli import app

        app.main()
    except KeyboardInterrupt:
        sys.exit(130)
