"""The agent's own log: JSON lines on stderr or in a file, a constant event name and fields."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from holdfast._daemon import log_file

_LOGGER = logging.getLogger("holdfast.agent")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, Any] = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def start(level: str, file: Path | None = None, file_mb: int = 64) -> None:
    """Send everything to the file, or to stderr, from now on.

    Raises ``ValueError`` for an unknown level, ``ConfigError`` for a file that can't be written.
    """
    handler = log_file.handler(file, file_mb)
    handler.setFormatter(_JsonLines())
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False


def debug(event: str, **fields: Any) -> None:
    """For whoever hunts a fault."""
    if _LOGGER.isEnabledFor(logging.DEBUG):
        _LOGGER.debug(event, extra={"fields": fields})


def info(event: str, **fields: Any) -> None:
    """What happened."""
    _LOGGER.info(event, extra={"fields": fields})


def warning(event: str, **fields: Any) -> None:
    """What an admin may want to look at."""
    _LOGGER.warning(event, extra={"fields": fields})


def critical(event: str, **fields: Any) -> None:
    """Why the agent ends."""
    _LOGGER.critical(event, extra={"fields": fields}, exc_info=True)
