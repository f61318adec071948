"""A process full of hollow hosts, told what to do by lines of JSON on its standard input.

    {"op": "end", "job": ID, "code": 0, "rank": null}   ranks of a job end
    {"op": "tally"}                                     say how things stand

It answers each line with one of its own: the tally of its hosts, as of when the order was carried out. With
``"until": {NAME: NUMBER}`` (and no later than ``"within_s"``) it answers once each of these figures is at least as
large, and ``at`` says when that was, on the monotonic clock that all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop
from bench.hollow.host import HollowHost

from holdfast._daemon import log
from holdfast._security.tls import TlsFiles

SPREAD_S = 2.0
"""The hosts of a fleet start within so long, as those of a data centre never start in the same millisecond."""
_COUNTED = ("launched", "stopped", "ended", "acked", "sessions", "features", "minutes")


class Fleet:
    """Hosts FIRST … FIRST+COUNT-1 of a cluster whose certificates lie in ``pki``."""

    def __init__(self, controller: str, pki: Path, first: int, count: int, gpus: int, *, bare: bool) -> None:
        self._changed = asyncio.Event()
        names = [f"hollow-{number}" for number in range(first, first + count)]
        self.hosts = [
            HollowHost(
                name,
                controller,
                TlsFiles(pki / "ca.pem", pki / f"{name}.pem", pki / f"{name}.key"),
                gpus,
                self._changed.set,
                bare=bare,
            )
            for name in names
        ]

    async def run(self) -> None:
        """Until standard input ends."""
        async with asyncio.TaskGroup() as tasks:
            links = [tasks.create_task(self._live(host)) for host in self.hosts]
            await self._obey()
            for link in links:
                link.cancel()

    async def _live(self, host: HollowHost) -> None:
        await asyncio.sleep(random.uniform(0, SPREAD_S))
        await host.run()

    async def _obey(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            if order["op"] == "end":
                for host in self.hosts:
                    host.end(order["job"], order["code"], order.get("rank"))
            answer = await self._until(order.get("until", {}), order.get("within_s", 0.0))
            print(json.dumps(answer), flush=True)

    async def _until(self, wanted: dict[str, int], within_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + within_s
        while True:
            self._changed.clear()
            tally = self._tally()
            left_s = deadline - time.monotonic()
            if all(tally[name] >= least for name, least in wanted.items()) or left_s <= 0:
                return tally
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
                # A burst is looked at once, not once for each of its messages.
                await asyncio.sleep(0.005)
            except TimeoutError:
                pass

    def _tally(self) -> dict[str, Any]:
        counts: Counter[str] = Counter()
        for host in self.hosts:
            counts.update(host.counts)
        epoch = max((host.epoch for host in self.hosts), default=0)
        return {
            "at": time.monotonic(),
            "hosts": len(self.hosts),
            "epoch": epoch,
            "connected": sum(host.epoch == epoch for host in self.hosts) if epoch else 0,
            "living": sum(host.living for host in self.hosts),
            "running": sum(host.running for host in self.hosts),
            "unacked": sum(host.unacked for host in self.hosts),
            **{name: counts[name] for name in _COUNTED},
            "notes": {name: count for name, count in counts.items() if name.startswith("note ")},
        }


def main() -> None:
    """Run a fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controller", required=True, help="HOST:PORT")
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--bare", action="store_true", help="tell nothing of what ranks do")
    options = parser.parse_args()
    log.configure("warning")

    async def live() -> None:
        given = options.controller, options.pki, options.first, options.count, options.gpus
        await Fleet(*given, bare=options.bare).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())


if __name__ == "__main__":
    main()
