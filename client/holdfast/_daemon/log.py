"""The log of both daemons: one JSON object a line, with a constant event name and fields.

``log.info("session.opened", host=host)`` writes
``{"time": "2026-01-31T12:00:00.123Z", "level": "info", "event": "session.opened", "host": "gpu-01"}``.

An event's name is its subject, a dot, and what happened to it. Fields have one name for one thing: ``worker`` is
``JOB/WORKER``, ``error`` the text of what failed, ``fix`` what to do about it, ``reason`` why something was chosen.
The standard library's logging carries the records, because the agent must stay small; what libraries log
comes out in the same form.
"""

from __future__ import annotations

import functools
import logging
from datetime import UTC, datetime
from logging import DEBUG as DEBUG
from logging import INFO as INFO
from typing import Any

from holdfast._base.printable import json_text
from holdfast.errors import ConfigError

_LOGGER = logging.getLogger("holdfast")
_LEVELS = ("debug", "info", "warning", "error", "critical")


def configure(level: str, handler: logging.Handler | None = None) -> None:
    """Send every record of ``level`` and above to ``handler``, or to stderr, from now on.

    Raises ``ConfigError`` for an unknown level.
    """
    check_level(level)
    handler = handler or logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line names its place in the code, thread or process, and finding them out was a fifth of its cost.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("alembic").setLevel("WARNING")


def check_level(level: str) -> None:
    """Raises ``ConfigError`` for a level that is none."""
    if level.lower() not in _LEVELS:
        raise ConfigError(f"log_level: {level!r} is unknown.", fix=f"Write one of {', '.join(_LEVELS)}.")


def set_level(level: str) -> None:
    """From now on send records of ``level`` and above. Raises ``ConfigError``."""
    check_level(level)
    logging.getLogger().setLevel(level.upper())


def debug(event: str, /, **fields: Any) -> None:
    """Log what only matters while a fault is being looked for."""
    write(DEBUG, event, **fields)


def info(event: str, /, **fields: Any) -> None:
    """Log what happened."""
    _LOGGER.info(event, extra={"fields": fields})


def warning(event: str, /, **fields: Any) -> None:
    """Log what an admin may want to look at."""
    _LOGGER.warning(event, extra={"fields": fields})


def writes(level: int) -> bool:
    """Whether what is logged at this level is written."""
    return _LOGGER.isEnabledFor(level)


def write(level: int, event: str, /, **fields: Any) -> None:
    """Log at one of ``DEBUG`` and ``INFO``, where the caller decides which."""
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, event, extra={"fields": fields})


def timestamp(since_epoch_s: float) -> str:
    """Seconds since the epoch as the log writes them: UTC, milliseconds, ``Z``."""
    whole = int(since_epoch_s)
    return f"{_second(whole)}.{int((since_epoch_s - whole) * 1000):03d}Z"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: ``time``, ``level``, ``event``, then its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        entry: dict[str, object] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json_text(entry, default=str)


@functools.lru_cache(maxsize=4)
def _second(since_epoch: int) -> str:
    """Format a whole second; cached, because a controller commits a thousand events in one."""
    return datetime.fromtimestamp(since_epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S")
