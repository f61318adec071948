"""The daemons' logs: one JSON object a line on stderr or in a file, with a constant event name and fields.

The standard library's logging, so that the agent stays small. A call reads
``log.info("session_opened", extra={"fields": {"host": host}})``.
"""

from __future__ import annotations

import functools
import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from holdfast._daemon import log_file


class JsonFormatter(logging.Formatter):
    """One record as one line of JSON: ``at``, ``level``, ``event``, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        entry: dict[str, object] = {
            "at": f"{_second(int(record.created))}.{int(record.msecs):03d}+00:00",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _ENCODE(entry)


_ENCODE = json.JSONEncoder(default=str, ensure_ascii=False).encode


@functools.lru_cache(maxsize=4)
def _second(since_epoch: int) -> str:
    """A controller that commits a thousand events a second names each second once."""
    return datetime.fromtimestamp(since_epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def configure(level: str, file: Path | None = None, file_mb: int = 64) -> None:
    """Send every logger's records of ``level`` (debug, info, warning, error) and above to a file, or to stderr.

    Raises ``ConfigError`` for a file that can't be written.
    """
    handler = log_file.handler(file, file_mb)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line names its place in the code, thread or process, and finding them out was a fifth of its cost.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("alembic").setLevel("WARNING")
