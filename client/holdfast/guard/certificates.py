"""Issues the certificates of one task, in a process of its own: ``python -m holdfast.guard.certificates``.

What issues them takes several MB of memory once it was imported, and is needed once. The seed comes by stdin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from holdfast.errors import Unavailable
from holdfast.guard import tied

CLUSTER = "guard"
USER = "guard"
ISSUED_S = 60.0
"""Time to load and to issue them, on a machine that is busy."""


async def write(seed: bytes, directory: Path, host: str, *, controller: bool) -> None:
    """Have a process of its own do what ``write_here`` does. Raises ``Unavailable``."""
    kind = "controller" if controller else "guest"
    process = await asyncio.create_subprocess_exec(
        *tied.command("holdfast.guard.certificates", str(directory), host, kind),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=tied.environment(os.environ),
    )
    try:
        async with asyncio.timeout(ISSUED_S):
            _, said = await process.communicate(seed)
    except TimeoutError:
        raise Unavailable(f"The guard's certificates have not been made within {ISSUED_S:.0f} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it was killed"
        python = f"{sys.executable}, Python {sys.version.split()[0]}"
        if last.startswith(("ImportError", "ModuleNotFoundError")):
            raise Unavailable(
                f"Holdfast's packages can't be loaded by {python}: {last}.",
                fix="Run it by the Python that it was installed with, on all hosts.",
            )
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
    write_here(sys.stdin.buffer.read(), Path(sys.argv[1]), sys.argv[2], controller=sys.argv[3] == "controller")
