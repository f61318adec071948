"""``holdfast.Client`` and ``AsyncClient`` on real daemons: a user's day, interruptions and restarts included."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until

import holdfast

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/users/python.md"
NOTEBOOK = ROOT / "examples/notebook/first_job.ipynb"

COUNTS = """
import time
for step in range(60):
    print(f"step {step}", flush=True)
    time.sleep(0.05)
"""
CELLS = """
import ast, asyncio, inspect, json, sys

async def main():
    # As a kernel does: one namespace, a loop that runs, await at the top, the last expression shown.
    space = {"__name__": "__main__"}
    for cell in json.load(open(sys.argv[1])):
        tree = ast.parse(cell)
        shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        for part, mode in ((tree, "exec"), (shown and ast.Expression(shown.value), "eval")):
            if part:
                code = compile(part, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                value = eval(code, space)
                value = await value if inspect.iscoroutine(value) else value
                print(repr(value)) if mode == "eval" else None

asyncio.run(main())
"""


def python(code: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]


@pytest.fixture
def client(cluster: DevCluster) -> Iterator[holdfast.Client]:
    with holdfast.Client(cluster.dir / "client.toml") as made:
        yield made


def run_cells(cluster: DevCluster, cells: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "cells.json").write_text(json.dumps(cells))
    return subprocess.run(
        python(CELLS, folder / "cells.json"),
        env=cluster.env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_command_is_followed_to_its_end(client: holdfast.Client) -> None:
    code = (
        "import os; print('rank', os.environ['RANK'], os.environ['LR']); raise SystemExit(int(os.environ['RANK']))"
    )
    job = client.submit(
        command=python(code), replicas=2, gpus=1, env={"LR": 0.5}, labels={"day": "one"}, max_restarts=0, name="two"
    )
    assert re.fullmatch(rf"<Job {job.id} (QUEUED|PENDING|RUNNING) 'two' 2 GPUs.*>", repr(job))
    kinds = [event.kind for event in job.events(follow=True)]
    assert (kinds[0], kinds[-1]) == ("submitted", "ended") and "rank_exited" in kinds
    result = job.wait(timeout="1m")
    assert (result.state, bool(result), result.exit_codes[1], result.exit_status) == ("FAILED", False, 1, 1)
    assert result.error is not None and result.error.rank == 1
    assert job.ended and job.state == "FAILED"
    assert {str(line) for line in job.logs()} >= {"rank 1 0.5"}
    assert [each.id for each in client.jobs(labels={"day": "one"}, state="FAILED", limit=5)] == [job.id]
    with pytest.raises(holdfast.errors.JobFailed, match="exited with") as raised:
        result.check()
    assert raised.value.result is result


@pytest.mark.parametrize("kind", ["yaml", "json", "dict", "bare"])
def test_a_job_file_and_its_content_are_submitted(client: holdfast.Client, tmp_path: Path, kind: str) -> None:
    task = {"command": ["echo", "$(WHO)"], "env": [{"name": "WHO", "value": kind}]}
    bare = {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": task}]}
    whole = {"displayName": f"of-{kind}", "jobSpec": bare, "labels": {"x": "1"}}
    given: Any = bare if kind == "bare" else whole
    if kind in ("yaml", "json"):  # all JSON is YAML
        given = tmp_path / f"of-{kind}.{kind}"
        given.write_text(json.dumps(whole))
    job = client.submit(given, labels={"y": "2"}, name="named" if kind == "bare" else None)
    assert job.wait(60).check().exit_codes == {0: 0}
    assert job.labels == ({} if kind == "bare" else {"x": "1"}) | {"y": "2"}
    assert job.name == ("named" if kind == "bare" else f"of-{kind}")
    assert [str(line) for line in job.logs()] == [kind]
    assert client.job(job.name).id == job.id or kind == "bare"


def test_code_of_this_folder_goes_along(client: holdfast.Client, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/hello.py").write_text("import os; print('from', os.path.basename(os.getcwd()) != 'code')")
    job = client.submit(command=["python3", "hello.py"], package=tmp_path / "code")
    job.wait(60).check()
    assert [str(line) for line in job.logs()] == ["from True"]


def test_waiting_and_following_outlive_the_controller(cluster: DevCluster, client: holdfast.Client) -> None:
    job = client.submit(command=python(COUNTS))
    seen: list[str] = []
    link: list[Exception | None] = []
    results: list[holdfast.Result] = []
    waiting = threading.Thread(target=lambda: results.append(client.wait(job, timeout="2m")))
    waiting.start()
    for line in client.logs(job, follow=True, on_link=link.append):
        seen.append(line.text)
        if line.text == "step 10":
            cluster.kill_controller()
            threading.Thread(target=cluster.restart).start()
    waiting.join(120)
    assert seen == [f"step {step}" for step in range(60)]
    assert isinstance(link[0], holdfast.errors.HoldfastError) and link[-1] is None
    assert [result.state for result in results] == ["SUCCEEDED"]
    events = list(job.events())
    assert [event.cursor for event in events] == sorted({event.cursor for event in events})
    assert [event.cursor for event in job.events(after=events[-2].cursor)] == [events[-1].cursor]


def test_an_ended_wait_leaves_the_job_alone(client: holdfast.Client) -> None:
    job = client.submit(command="sleep 600")
    with pytest.raises(
        holdfast.errors.WaitTimeout, match=rf"{job.id} has not ended within 0.5 s.*cancel\('{job.id}'"
    ):
        job.wait(timeout=0.5)
    with pytest.raises(TimeoutError):
        client.wait(job.id, timeout=0.1)
    assert not job.refresh().ended
    assert job.cancel().state in ("CANCELLING", "CANCELLED")
    result = job.wait(60)
    assert (result.state, result.exit_status, result.exit_codes) in [
        ("CANCELLED", 130, {0: 128 + signal.SIGTERM}),
        ("CANCELLED", 130, {}),
    ]


def test_a_job_is_restarted_paused_resumed_and_deleted(client: holdfast.Client) -> None:
    job = client.submit(command="sleep 600")
    until(lambda: job.refresh().state == "RUNNING" and job.to_dict()["workers"][0]["ranks"][0]["pid"])
    job.restart()
    until(lambda: job.refresh().generation == 2)
    client.pause(job)
    until(lambda: job.refresh().state == "PAUSED")
    client.resume(job.id)
    until(lambda: job.refresh().state == "RUNNING")
    with pytest.raises(holdfast.errors.WrongState):
        client.delete(job)
    job.cancel().wait(60)
    client.delete(job)
    with pytest.raises(holdfast.errors.NotFound, match=f"no job '{job.id}'"):
        job.refresh()


def test_it_works_where_an_event_loop_runs(client: holdfast.Client) -> None:
    async def cell() -> str:
        return client.submit(command="true").wait(60).state

    assert asyncio.run(cell()) == "SUCCEEDED"


def test_the_asynchronous_client_does_the_same(cluster: DevCluster) -> None:
    async def work() -> None:
        async with holdfast.AsyncClient(cluster.dir / "client.toml") as client:
            jobs = [await client.submit(command=f"echo {number}") for number in range(3)]
            results = await asyncio.gather(*(job.wait("1m") for job in jobs))
            assert [result.state for result in results] == ["SUCCEEDED"] * 3
            assert [[line.text async for line in job.logs()] for job in jobs] == [["0"], ["1"], ["2"]]
            assert [event.kind async for event in jobs[0].events()][-1] == "ended"
            assert {host.name for host in await client.hosts()} == {"host-0", "host-1"}
            assert (await client.jobs(limit=1))[0].id == jobs[2].id
        with pytest.raises(holdfast.errors.WrongState, match="is closed"):
            await client.hosts()

    asyncio.run(work())


OPENED = """
import os, threading, time
import holdfast

def open_ones():
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass  # the listing's own
    open_links = [link for link in links if link.startswith(("socket:", "anon_inode:[event"))]
    return open_links, [thread.name for thread in threading.enumerate()]

def nothing():
    deadline = time.monotonic() + 20  # gRPC's own threads take a moment
    while open_ones() != ([], ["MainThread"]):
        assert time.monotonic() < deadline, open_ones()
        time.sleep(0.05)

holdfast.Client
nothing()
for _ in range(2):
    client, other = holdfast.Client(), holdfast.Client()
    job = client.submit(command=["bash", "-c", "echo begun; sleep 600"])
    lines = job.logs(follow=True)
    assert next(lines).text == "begun"
    try:
        job.wait(0.1)
    except holdfast.errors.WaitTimeout as error:
        kept = error
    assert other.hosts() and open_ones()[0]
    client.close()
    client.close()
    try:
        next(lines)
    except holdfast.errors.WrongState as error:
        assert "holdfast.Client()" in str(error)
    assert other.job(job.id).cancel().wait(60).state == "CANCELLED"
    other.close()
    nothing()
"""


def test_a_closed_client_leaves_neither_thread_nor_socket(cluster: DevCluster) -> None:
    done = subprocess.run(python(OPENED), env=cluster.env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_closing_ends_what_another_thread_waits_for(cluster: DevCluster, client: holdfast.Client) -> None:
    other = holdfast.Client(cluster.dir / "client.toml")
    job = other.submit(command="sleep 600")
    errors: list[Exception] = []

    def wait() -> None:
        try:
            job.wait()
        except Exception as error:  # noqa: BLE001 - whichever it is, the test shows it
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.5)
    other.close()
    waiting.join(30)
    assert [type(error) for error in errors] == [holdfast.errors.WrongState]
    client.cancel(job.id).wait(60)


def test_an_interrupt_ends_the_wait_and_not_the_job(cluster: DevCluster, client: holdfast.Client) -> None:
    code = """
import holdfast
with holdfast.Client() as client:
    job = client.submit(command="sleep 600")
    print(job.id, flush=True)
    for work in (job.wait, lambda: list(job.logs(follow=True))):
        try:
            work()
        except KeyboardInterrupt:
            print("interrupted", job.refresh().ended, flush=True)
"""
    with subprocess.Popen(python(code), env=cluster.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        for _ in range(2):
            until(lambda: client.job(job_id).state == "RUNNING")
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted False\n"
        assert process.wait(30) == 0
    client.cancel(job_id).wait(60)


def test_a_client_belongs_to_one_process(client: holdfast.Client) -> None:
    client.hosts()
    child = os.fork()
    if child == 0:
        try:
            client.hosts()
        except holdfast.errors.WrongState as error:
            os._exit(0 if "each process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_name_that_was_meant_differently_is_explained(client: holdfast.Client) -> None:
    with pytest.raises(holdfast.errors.NotFound, match="no job 'nope'"):
        client.job("nope")
    with pytest.raises(holdfast.errors.InvalidInput, match=r"state: 'runing' .*did you mean RUNNING\?"):
        client.jobs(state="runing")
    with pytest.raises(TypeError, match=r"jobs\(\) has no argument 'label'. Did you mean labels=\?"):
        client.jobs(label={"a": "b"})  # type: ignore[call-arg]
    jobs = [client.submit(command="true", name="twin") for _ in range(2)]
    with pytest.raises(holdfast.errors.NotFound, match="2 jobs") as several:
        client.job("twin")
    assert all(job.id in str(several.value) for job in jobs)


def test_every_program_of_the_page_runs(cluster: DevCluster, tmp_path: Path) -> None:
    text = PAGE.read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:-1]  # the last one is the SDK's
    (tmp_path / "train.py").write_text(
        "import os; print('learning rate', os.environ.get('LR'), flush=True)\n"
        "import time; time.sleep(0.5)  # so that no rank is still printing when the first has ended\n"
    )
    pool = {
        "replicaCount": 1,
        "processSpec": {"command": ["python3", "train.py"], "workingDirectory": str(tmp_path)},
    }
    (tmp_path / "job.yaml").write_text(json.dumps({"displayName": "paged", "jobSpec": {"workerPoolSpecs": [pool]}}))
    programs = [program.replace("asyncio.run(sweep())", "await sweep()") for program in programs]
    done = run_cells(cluster, programs, tmp_path)
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"```\n(0 learning.*?)```", text, re.DOTALL)[0].splitlines()
    assert sorted(done.stdout.splitlines()[: len(shown)]) == sorted(shown)
    assert "['SUCCEEDED', 'SUCCEEDED']\nlearning rate 0.1" in done.stdout


def test_the_notebook_runs_from_its_first_cell_to_its_last(cluster: DevCluster, tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    done = run_cells(cluster, ["".join(cell["source"]) for cell in cells], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "('SUCCEEDED', {0: 0, 1: 0}, [0.5905, 0.3487, 0.2059, 0.1216])" in done.stdout
    assert "FAILED {0: 1}" in done.stdout and "ValueError: bad batch" in done.stdout
    assert done.stdout.splitlines()[-2] == "'SUCCEEDED'"


def test_without_a_cluster_the_error_says_how_to_get_one(cluster: DevCluster, tmp_path: Path) -> None:
    nowhere = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        python("import holdfast; holdfast.Client()"), env=nowhere, cwd=tmp_path, capture_output=True, text=True
    )
    assert "ConfigError: No cluster is configured" in done.stderr
    assert "`holdfast login …`" in done.stderr and "holdfast dev start" in done.stderr
    folder = tmp_path / ".holdfast-dev"
    folder.mkdir()
    (folder / "client.toml").touch()
    done = subprocess.run(
        python("import holdfast; holdfast.Client()"), env=nowhere, cwd=tmp_path, capture_output=True, text=True
    )
    assert f"export HOLDFAST_CONFIG={folder}/client.toml" in done.stderr


def test_where_no_controller_runs_the_error_says_how_to_start_it(
    cluster: DevCluster, client: holdfast.Client
) -> None:
    cluster.kill_controller()
    try:
        with pytest.raises(holdfast.errors.Unavailable, match="No controller answers") as raised:
            client.hosts()
        assert raised.value.fix == f"Start it: holdfast dev start --dir {cluster.dir}"
    finally:
        cluster.restart()
    assert client.hosts()
