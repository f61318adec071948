"""A process full of hollow tasks of one job on many hosts, which prints when the last of them had its rank started.

``guests``: tasks 1 to N-1 of a guarded command, as the environment numbers them. Each finds task 0, proves itself,
issues its certificates and has a hollow host's link to the controller; task 0 is a real guard. ``torchrun``: the
rendezvous of N launchers, each a thread with a connection of its own to the store, the first with the store as well;
what follows a rendezvous is left out. On either side what a launcher imports is imported once, as hosts of their own
would at the same time, and the rest shares the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from holdfast._security.tls import TlsFiles
from holdfast.guard import allocation, certificates, meeting

PATIENCE_S = 120.0


async def guest(task: int, directory: Path, started: asyncio.Queue[float]) -> None:
    """One task, until cancelled."""
    from bench.hollow.host import HollowHost

    place = allocation.read({**os.environ, "HOLDFAST_GUARD_TASK": str(task)}, "hollow")
    seed = bytes.fromhex(os.environ[allocation.SEED_VARIABLE])
    joined = await meeting.join(place, ["127.0.0.1"], seed, None, PATIENCE_S, _guarded())
    folder = directory / str(task)
    folder.mkdir()
    certificates.write_here(joined.seed, folder, place.name, controller=False)
    tls = TlsFiles(folder / "ca.pem", folder / "agent.pem", folder / "agent.key")

    told = False

    def changed() -> None:
        nonlocal told
        if host.counts["launched"] and not told:
            told = True
            started.put_nowait(time.monotonic())

    turn = place.tasks - place.task
    host = HollowHost(place.name, joined.controller, tls, 0, changed, bare=True, cpus=turn, most_workers=1)
    await host.run()


async def guests(tasks: int, directory: Path) -> None:
    """All but the first, until stdin ends."""
    started: asyncio.Queue[float] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(guest(task, directory, started)) for task in range(1, tasks)]
        at = [await started.get() for _ in running]
        print(max(at), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for each in running:
            each.cancel()


def rendezvous(tasks: int, port: int) -> None:
    """Have so many launchers meet."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    met: list[float] = []
    kept: list[Any] = []

    def meet(number: int) -> None:
        given = {"is_host": number == 0, "local_addr": "127.0.0.1"}
        parameters = RendezvousParameters("c10d", f"127.0.0.1:{port}", "bench", tasks, tasks, **given)
        backend, store = create_backend(parameters)
        handler = create_handler(store, backend, parameters)
        kept.extend((store, handler, handler.next_rendezvous()))
        met.append(time.monotonic())

    threads = [threading.Thread(target=meet, args=(number,), daemon=True) for number in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    print(max(met) if len(met) == tasks else "nan", flush=True)
    os._exit(0)  # their threads don't end by themselves


def _guarded() -> list[str]:
    """The command that is guarded."""
    return sys.argv[sys.argv.index("--") + 1 :]


def main() -> None:
    """Run one side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=("guests", "torchrun"))
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--port", type=int)
    words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(words)
    if options.side == "torchrun":
        rendezvous(options.tasks, options.port)
    else:
        asyncio.run(guests(options.tasks, options.directory))


if __name__ == "__main__":
    main()
