"""The ``holdfast`` command. Nothing here imports gRPC, pydantic or rich before a command needs it."""

from holdfast.cli.app import main

__all__ = ["main"]
