"""What a controller loads before it can open its store: every start pays for it."""

from __future__ import annotations

import subprocess
import sys

UNUSED = (
    "alembic",
    "apprise",
    "cryptography.x509",
    "httpx",
    "jwt",
    "obstore",
    "psycopg",
    "sqlalchemy.dialects.postgresql",
    "starlette",
    "tarfile",
    "urllib.request",
    "uvicorn",
    "yaml",
)
"""For HTTP, sign-in, PostgreSQL, a CA, notifications, backups, migrations and templates: loaded where they are used."""


def test_a_controller_on_sqlite_loads_only_what_it_uses() -> None:
    code = f"""
import sys
import holdfast_controller.shell.main.server
from holdfast_controller.shell.store import codec
print([name for name in {UNUSED!r} if name in sys.modules], len(codec._ADAPTERS))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] 0"
