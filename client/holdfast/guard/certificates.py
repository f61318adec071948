"""Issues the certificates of one task, in a process of its own: ``python -m holdfast.guard.certificates``.

What issues them takes several MB of memory once it was imported, and is needed once. The seed comes by stdin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from holdfast.errors import Unavailable
from holdfast.guard import tied

CLUSTER = "guard"
USER = "guard"
ISSUED_S = 60.0
"""Time to load and to issue them, on a machine that is busy."""


class Issuer:
    """The process, which loads from the start of the block and then waits for the seed; it ends with the block."""

    def __init__(self, directory: Path, host: str, *, controller: bool) -> None:
        self._arguments = str(directory), host, "controller" if controller else "guest"

    def __enter__(self) -> Self:
        """Start the process."""
        self._process = subprocess.Popen(
            tied.command("holdfast.guard.certificates", *self._arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=tied.environment(os.environ),
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it, if it is still there."""
        self._process.kill()
        self._process.communicate()

    async def issue(self, seed: bytes) -> None:
        """Have it do what ``write_here`` does. Raises ``Unavailable``."""
        import asyncio  # which the process itself needs not

        try:
            _, said = await asyncio.to_thread(self._process.communicate, seed, ISSUED_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"The guard's certificates have not been made within {ISSUED_S:.0f} s.") from None
        if self._process.returncode:
            words = said.decode(errors="replace")
            last = (words.strip().splitlines() or ["it was killed"])[-1]
            if error := tied.unloadable(words):
                raise error
            raise Unavailable(f"The guard's certificates can't be made: {last}.")


def write_here(seed: bytes, directory: Path, host: str, *, controller: bool) -> None:
    """Write the CA, a user's and the host's certificate, and with ``controller`` its own, into ``directory``."""
    from holdfast._base.identity import Identity, Kind
    from holdfast._security import pki, server_names

    pki.create_ca(CLUSTER, directory, seed=seed)
    for kind, name, file in ((Kind.USER, USER, "user"), (Kind.HOST, host, "agent")):
        pki.issue(directory, Identity(CLUSTER, kind, name), directory, file)
    if controller:
        names = server_names.served(())
        identity = Identity(CLUSTER, Kind.CONTROLLER, "controller")
        pki.issue(directory, identity, directory, "controller", server=True, names=names)


if __name__ == "__main__":
    from holdfast._security import pki  # before the seed comes

    assert pki
    if given := sys.stdin.buffer.read():
        write_here(given, Path(sys.argv[1]), sys.argv[2], controller=sys.argv[3] == "controller")
