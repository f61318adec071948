"""The web page before what is large: a log of a GB, a list of 100,000 jobs, jobs of 90 days and of 8,192 ranks.

In Debian's chromium before a real controller: what a person waits for, from the click until it is drawn, and what it
takes of the tab, the controller and the agent. Needs chromium and ``pip install playwright``.
"""

from __future__ import annotations

import argparse
import os

from bench.hollow.figures import Figures
from bench.page.large_jobs import long, wide
from bench.page.lists import jobs
from bench.page.logs import log
from bench.page.memory import memory
from bench.support.cluster import work_directory
from bench.support.report import framed, progress


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-mb", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--relaunches", type=int, default=500)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--ways", type=int, default=200)
    parser.add_argument("--updates", type=int, default=3600)
    names = ("memory", "log", "jobs", "long", "wide")
    parser.add_argument("--only", action="append", choices=names)
    options = parser.parse_args()
    figures = Figures()
    rows = {
        "memory": lambda place: memory(place, options.ways, options.updates, figures),
        "log": lambda place: log(place, options.log_mb * 10**6, figures),
        "jobs": lambda place: jobs(place, options.jobs, figures),
        "long": lambda place: long(place, options.relaunches, options.days, figures),
        "wide": lambda place: wide(place, options.hosts, figures),
    }
    with framed(), work_directory() as folder:
        for name in options.only or names:
            place = folder / name
            place.mkdir()
            rows[name](place)
            progress(f"{name}: load {os.getloadavg()[0]:.1f}")
        print()
        figures.print()


if __name__ == "__main__":
    main()
