"""Packaged code: a folder to the controller, to two hosts, and what its requirements cost, cold and warm.

Beside it what a user would do instead, on the same disk and for two hosts at once: copy the folder, make a virtual
environment and install with pip. A start counts from CreateJob to the event that all ranks were started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import time
import zipfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bench.support.cluster import DevCluster, await_end, dev_cluster, job, work_directory
from bench.support.report import Table, framed, progress

from holdfast import dev
from holdfast.bundles.packing import pack
from holdfast.client import Client

HOSTS = 2
FILES, FILE_BYTES = 300, 10_000
PACKAGES, MODULES = 8, 50


def write_folder(folder: Path, rng: random.Random) -> None:
    """Source code, as far as size and number of files go: text that compresses about threefold."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=8)) for _ in range(2000)]
    for number in range(FILES):
        path = folder / f"package{number // 20}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(" ".join(rng.choices(words, k=FILE_BYTES // 9)))
    (folder / "train.py").write_text("pass\n")


def write_wheels(folder: Path) -> None:
    """Packages that anybody's requirements could name; no index is asked."""
    folder.mkdir()
    for number in range(PACKAGES):
        name, info = f"lib{number}", f"lib{number}-1.0.dist-info"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            for module in range(MODULES):
                wheel.writestr(f"{name}/m{module}.py", f"X = {module}\n" * 200)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def install_from(cluster: DevCluster, wheels: Path) -> None:
    """Have every host install from a folder."""
    for number in range(HOSTS):
        settings = cluster.directory / f"hosts/host-{number}/agent.toml"
        more = f"[packages]\nno_index = true\nfind_links = [{json.dumps(str(wheels))}]\n"
        settings.write_text(settings.read_text() + more)
    dev.stop(cluster.directory)
    dev.start(cluster.directory)


async def start(client: Client, digest: str, requirements: list[str]) -> float:
    """Milliseconds from CreateJob until all ranks of a gang on every host were started."""
    wanted = job(["/bin/true"], replicas=HOSTS)
    for pool in wanted.job_spec.worker_pool_specs:
        pool.machine_spec.accelerator_count = 1
        pool.process_spec.packaged_code.bundle = digest
        pool.process_spec.packaged_code.requirements.extend(requirements)
    asked_at = time.monotonic()
    created = await client.create_job(wanted)
    took_ms = 0.0
    async for event in client.watch_job(created.id):
        if event.type == "GangStarted":
            took_ms = (time.monotonic() - asked_at) * 1000
            break
    ended = await await_end(client, created.id)
    if not took_ms:
        raise RuntimeError(ended.error.message)
    return took_ms


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    began = time.monotonic()
    await work()
    return (time.monotonic() - began) * 1000


async def on_all(commands: list[list[str]]) -> None:
    """Run them at the same time."""
    started = [await asyncio.create_subprocess_exec(*c, stdout=subprocess.DEVNULL) for c in commands]
    codes = [await process.wait() for process in started]
    if any(codes):
        raise RuntimeError(f"{commands[0]} failed")


def emptied(folder: Path) -> None:
    """Have it there, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


async def by_hand(folder: Path, wheels: Path, home: Path, names: list[str]) -> tuple[float, float]:
    """(copy to every host, environment on every host), in milliseconds."""
    await asyncio.to_thread(emptied, home)
    copies = [["cp", "-a", str(folder), str(home / f"code-{host}")] for host in range(HOSTS)]
    copied = await timed(lambda: on_all(copies))
    venvs = [home / f"venv-{host}" for host in range(HOSTS)]
    script = 'python3 -m venv "$1" && shift && pip=$1 && shift && "$pip" install -q --no-index --find-links "$@"'
    install = [["sh", "-c", script, "sh", str(v), f"{v}/bin/pip", str(wheels), *names] for v in venvs]
    return copied, await timed(lambda: on_all(install))


async def measure(cluster: DevCluster, directory: Path, runs: int, table: Table) -> None:
    """All rows, in turns."""
    folder, wheels, rng = directory / "code", directory / "wheels", random.Random(7)
    write_folder(folder, rng)
    names = [f"lib{number}" for number in range(PACKAGES)]
    rows: dict[str, list[float]] = {}

    def note(what: str, took_ms: float) -> None:
        rows.setdefault(what, []).append(took_ms)

    async with cluster.client() as client:
        for turn in range(runs):
            (folder / "train.py").write_text(f"# {turn}\n")
            began = time.monotonic()
            bundle = pack(folder, directory / "bundle")
            note("pack the folder", (time.monotonic() - began) * 1000)
            note("upload it", await timed(partial(client.upload_bundle, bundle)))
            note("upload it again", await timed(partial(client.upload_bundle, bundle)))
            note("start, code new to both hosts", await start(client, bundle.digest, []))
            note("start, code known", await start(client, bundle.digest, []))
            # A requirement that is met already makes another environment of the same packages.
            new = [*names, f"lib0>=0.{turn}"]
            note("start, requirements new", await start(client, bundle.digest, new))
            note("start, requirements known", await start(client, bundle.digest, new))
            copied, installed = await by_hand(folder, wheels, directory / "hand", names)
            note("by hand: cp -a to both", copied)
            note("by hand: python -m venv and pip install on both", installed)
            progress(f"turn {turn + 1} of {runs}")
    size = f"{FILES + 1} files, {sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()) / 1e6:.1f} MB"
    packed = f"{bundle.size / 1e6:.1f} MB packed"
    remarks = {
        "pack the folder": size,
        "upload it": packed,
        "start, code new to both hosts": "fetched and unpacked by two agents",
        "start, code known": "unpacked: each job has its own copy",
        "start, requirements new": f"{PACKAGES} packages, uv has them unpacked from the second turn on",
        "by hand: cp -a to both": "no network, no hash",
    }
    for what, values in rows.items():
        table.add(what, values, remarks.get(what, ""))


async def main() -> None:
    """One cluster of two hosts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="(%(default)s)")
    options = parser.parse_args()
    table = Table("Packaged code", "ms")
    with framed():
        with work_directory() as directory:
            write_wheels(directory / "wheels")
            with dev_cluster(directory / "c", hosts=HOSTS, gpus=1) as cluster:
                install_from(cluster, directory / "wheels")
                await measure(cluster, directory, options.runs, table)
        table.print()


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    asyncio.run(main())
