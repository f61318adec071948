"""Packages that ``pip install holdfast`` leaves out: an extra for each daemon, its stores, and the live screen."""

from __future__ import annotations

import importlib.util

from holdfast.errors import MissingPackages

MODULES = {
    "controller": {
        "grpcio-reflection": "grpc_reflection",
        "SQLAlchemy": "sqlalchemy",
        "alembic": "alembic",
        "starlette": "starlette",
        "uvicorn": "uvicorn",
        "httpx": "httpx",
        "prometheus-client": "prometheus_client",
        "h11": "h11",
        "apprise": "apprise",
        "PyJWT": "jwt",
    },
    "agent": {
        "psutil": "psutil",
        "nvidia-ml-py": "pynvml",
        "prometheus-client": "prometheus_client",
        "h11": "h11",
        "uv": "uv",
    },
    "postgresql": {"psycopg": "psycopg"},
    "s3": {"obstore": "obstore"},
    "top": {"textual": "textual", "rich": "rich"},
}
"""By extra: the module that each of its packages brings. py-spy and pystack, programs, bring none."""


def require(program: str, *extras: str) -> None:
    """Raise ``MissingPackages``, saying what to install, unless ``program`` finds the packages of these extras."""
    lacking = {package: module for extra in extras for package, module in MODULES[extra].items()}
    missing = sorted(package for package, module in lacking.items() if importlib.util.find_spec(module) is None)
    if missing:
        raise MissingPackages(
            f"{program} needs packages that are not installed: {', '.join(missing)}.",
            fix=f"Install them: pip install 'holdfast[{','.join(extras)}]'",
        )
