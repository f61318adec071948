"""A server of S3 of somebody else's, on loopback: moto's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SERVER = str(Path(__file__).parents[2] / "build/s3/bin/moto_server")
"""In an environment of its own (``.ci/run`` makes it): it brings more packages than all that we test."""
KEYS = {"AWS_ACCESS_KEY_ID": "holdfast", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
WITHIN_S = 180.0


@dataclass
class S3:
    """A server that can be stopped for a while; what it keeps is gone with it."""

    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """What a program needs to use it."""
        return {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    def start(self) -> None:
        """Start it, with an empty bucket ``holdfast``."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        self.process = subprocess.Popen(
            [SERVER, "-H", "127.0.0.1", "-p", str(self.port)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/holdfast", method="PUT")
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                urllib.request.urlopen(request, timeout=5).close()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, "moto does not start"
                time.sleep(0.1)

    def stop(self) -> None:
        """It loses its power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(port: int) -> Iterator[S3]:
    """A server for as long as the block runs."""
    made = S3(port)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def missing() -> str:
    """What is missing for a server here; empty if nothing is."""
    return (
        "" if os.access(SERVER, os.X_OK) and sys.platform == "linux" else "a server of S3 (.ci/run installs moto)"
    )
