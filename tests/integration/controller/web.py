"""A caller of the controller's HTTP side."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from holdfast._security.tls import TlsFiles

WITHIN_S = 60.0
POOL = {"replicaCount": "1", "processSpec": {"command": ["train"]}}
BODY: dict[str, Any] = {"displayName": "train", "jobSpec": {"workerPoolSpecs": [POOL]}}


def context(files: TlsFiles, *, certificate: bool = True) -> ssl.SSLContext:
    """What a client trusts and, unless told otherwise, shows."""
    made = ssl.create_default_context(cafile=str(files.ca))
    if certificate:
        made.load_cert_chain(files.cert, files.key)
    return made


def caller(port: int, files: TlsFiles, **more: Any) -> httpx.AsyncClient:
    """A client that nothing in the environment leads astray."""
    return httpx.AsyncClient(
        base_url=f"https://localhost:{port}", verify=context(files), trust_env=False, timeout=WITHIN_S, **more
    )
