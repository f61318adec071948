"""The secret that all tasks of one guard share, from which their certificates follow.

Every task derives the same CA from the seed, so each issues its own certificate and none has to be sent. Under Slurm
the seed travels inside a credential of munge, which only processes of the same user can open, on this cluster's hosts
alone. No secret is ever on a command line or in a rank's environment.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess

from holdfast.errors import ConfigError, Unauthenticated
from holdfast.guard import slurm
from holdfast.guard.allocation import SEED_VARIABLE

SEED_BYTES = 32
_TOOL_S = 10.0
DEFAULT_SOCKET = "/run/munge/munge.socket.2"


def given_seed(text: str) -> bytes:
    """The seed of ``HOLDFAST_GUARD_SEED``. Raises ``ConfigError``."""
    try:
        seed = bytes.fromhex(text)
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES:
        fix = f"Make one: export {SEED_VARIABLE}=$(openssl rand -hex {SEED_BYTES})"
        raise ConfigError(f"{SEED_VARIABLE} is not {SEED_BYTES} bytes in hexadecimal digits.", fix=fix)
    return seed


def new_seed() -> bytes:
    """A random one."""
    return os.urandom(SEED_BYTES)


def proof(seed: bytes, *words: str) -> str:
    """A code that only a holder of the seed can make, for exactly these words."""
    return hmac.new(seed, json.dumps(words).encode(), hashlib.sha256).hexdigest()


class Munge:
    """Slurm's own means to tell who sent something: credentials bound to a user. Calls take milliseconds and block."""

    def __init__(self) -> None:
        self._socket = _munge_socket()

    def seal(self, seed: bytes, job: str) -> str:
        """A credential that only this user's processes can open. Raises ``ConfigError`` where munge doesn't answer."""
        content = json.dumps({"job": job, "seed": base64.b64encode(seed).decode()})
        command = ["munge", f"--socket={self._socket}", f"--restrict-uid={os.getuid()}"]
        return self._run(command, content.encode()).decode().strip()

    def open(self, credential: str, job: str) -> bytes:
        """The seed in a credential. Raises ``Unauthenticated`` unless this user made it for this job, just now."""
        try:
            said = self._run(["unmunge", f"--socket={self._socket}"], credential.encode())
        except ConfigError as error:
            apart = any(word in error.message for word in ("Expired", "Rewound"))
            cure = " Set the clocks of both hosts, by NTP for instance." if apart else ""
            raise Unauthenticated(f"A credential can't be opened: {error.message}{cure}") from error
        head, _, body = said.partition(b"\n\n")
        facts = slurm.facts(head, ":")
        maker = facts.get("UID", "").rpartition("(")[2].removesuffix(")")
        if facts.get("STATUS") != "Success (0)" or maker != str(os.getuid()):
            raise Unauthenticated("A credential was made by another user.")
        try:
            content = json.loads(body)
            seed = base64.b64decode(content["seed"], validate=True)
        except (ValueError, KeyError, TypeError) as error:
            raise Unauthenticated("A credential holds no seed.") from error
        if content.get("job") != job or len(seed) != SEED_BYTES:
            raise Unauthenticated("A credential is of another job.")
        return seed

    def _run(self, command: list[str], text: bytes) -> bytes:
        try:
            done = subprocess.run(command, input=text, capture_output=True, timeout=_TOOL_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"{command[0]} can't be run: {error}.", fix=_FIX) from error
        if done.returncode:
            status = slurm.facts(done.stdout.partition(b"\n\n")[0], ":").get("STATUS", "")
            why = (done.stderr.decode(errors="replace").strip() or status)[:200]
            raise ConfigError(f"{command[0]} failed: {why}.", fix=_FIX)
        return done.stdout


_FIX = f"Have munge run on this host, or give all tasks one secret: export {SEED_VARIABLE}=$(openssl rand -hex 32)"


def _munge_socket() -> str:
    """The socket of munge that Slurm is configured with, else the usual one."""
    parts = slurm.settings().get("AuthInfo", "").split(",")
    return next((part.removeprefix("socket=") for part in parts if part.startswith("socket=")), DEFAULT_SOCKET)
