"""A process of the benchmark: the second user who looks at the list of jobs, or an attacker.

python -m bench.attacks.party look DIR SECONDS        prints a JSON list: milliseconds of each look
python -m bench.attacks.party NAME DIR SECONDS        attacks, as NAME says
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

from bench.attacks import CALL_S, Site, load

from holdfast.v1 import job_pb2

EVERY_S = 0.025
PAGE = 20
"""As the newest jobs of `holdfast ps`."""


async def look(site: Site, seconds: float) -> list[float]:
    """Milliseconds of each look, counted from when it was due: one that waits holds up those after it."""
    jobs, asked = site.jobs(), job_pb2.ListJobsRequest(page_size=PAGE, newest=True)
    await jobs.ListJobs(asked, timeout=CALL_S)
    began, took = time.monotonic(), []
    for due in (began + number * EVERY_S for number in range(int(seconds / EVERY_S))):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await jobs.ListJobs(asked, timeout=CALL_S)
        took.append((time.monotonic() - due) * 1000)
    return took


async def main() -> None:
    """Do what the arguments say."""
    what, directory, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    if what == "look":
        print(json.dumps(await look(Site(directory, "user/bob"), seconds)))
        return
    found = {each.name: each for each in load()}[what]
    kind = "host/host-0" if found.role == "host" else f"user/mallory-{found.role}"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await found.run(Site(directory, kind))


if __name__ == "__main__":
    asyncio.run(main())
