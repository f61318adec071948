"""Dumps of torch's flight recorder: real ones of gloo, NCCL's format of each release, and such as would do harm."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.rank_gang import free_port

from holdfast._base.codec import from_plain
from holdfast._session import hang_wire
from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import diagnosis
from holdfast.hang.evidence.flight_recorder import FlightRecord, blamed
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner, Limits, flight_dump, records
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.tools import Tools
from holdfast_agent.shim.processes import Process

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORDER_AGAIN_S", 0.0)


@contextlib.contextmanager
def running(programs: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> Iterator[list[int]]:
    """Pids of programs, command and environment of each, once all have printed a line."""
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for command, env in programs
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()


async def read(path: Path) -> FlightRecord:
    """A dump of this process' own user."""
    with anyio.fail_after(300):
        found, whole = await records.flight_record(Process(os.getpid()), str(path), Tools(), Blocking())
    assert not whole or zlib.decompress(whole) == await anyio.Path(path).read_bytes()
    return found


async def read_back(path: Path, content: bytes) -> FlightRecord:
    await anyio.Path(path).write_bytes(content)
    return await read(path)


def entry(number: int, state: str = "completed", op: str = "all_reduce", **more: Any) -> dict[str, Any]:
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/c10d.py", "line": 9},
            {"name": "step", "filename": "/home/ann/train.py", "line": 80},
        ],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": time.time_ns() - 100_000_000_000,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
        **more,
    }


def dump(*entries: dict[str, Any], version: str = "2.4", **more: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": version, "entries": list(entries), "pg_config": config, **more}


# --- What torch writes --------------------------------------------------------------------------------------------

GANG = """
import datetime, itertools, os, sys, threading, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
kind, out, rank = sys.argv[1], sys.argv[2], int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
half = dist.new_group([0, 1])
data = torch.ones(4)
for _ in range(3):
    dist.all_reduce(data)
if rank < 2:
    dist.all_reduce(data, group=half)

def write():
    for number in itertools.count():
        while not os.path.exists(f"{out}/now-{number}"):
            time.sleep(0.1)
        open(f"{out}/{rank}-{number}.json", "wb").write(_dump_fr_trace_json(True, False))
        open(f"{out}/{rank}-{number}.new", "wb").write(_dump_fr_trace(True, True, False))
        os.rename(f"{out}/{rank}-{number}.new", f"{out}/{rank}-{number}")

threading.Thread(target=write, daemon=True).start()
print("ready", flush=True)
if rank == 2 and kind == "missing":
    time.sleep(600)
if rank == 2 and kind == "other":
    dist.broadcast(data, 0)
dist.all_reduce(data)
time.sleep(600)
"""


async def blaming(folder: Path, sentence: str) -> list[dict[int, FlightRecord]]:
    """The dumps of the three, in both formats, once the first says this: each has to have waited for ten seconds."""
    with anyio.fail_after(300):
        for number in itertools.count():
            await anyio.sleep(1)
            (folder / f"now-{number}").touch()
            while not all((folder / f"{each}-{number}").exists() for each in range(3)):  # noqa: ASYNC110
                await anyio.sleep(0.1)
            endings = ("", ".json")
            found = [{each: await read(folder / f"{each}-{number}{end}") for each in range(3)} for end in endings]
            if all(map(blamed, found)) and blamed(found[0]).sentence.startswith(sentence):  # type: ignore[union-attr]
                break
    return found


@pytest.mark.require("torch")
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "missing",
            "rank 2 has not joined all_reduce #4 of process group 0 (default_pg), which ranks 0, 1 are in for",
        ),
        ("other", "rank 2 runs broadcast #4 of process group 0 (default_pg) at gang.py:"),
    ],
)
async def test_real_dumps_of_three_ranks_name_the_one_that_the_others_wait_for(
    tmp_path: Path, kind: str, sentence: str
) -> None:
    (tmp_path / "gang.py").write_text(GANG)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TORCH"))}
    env |= {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    env |= {"TORCH_FR_BUFFER_SIZE": "2000", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(tmp_path / "gang.py"), kind, str(tmp_path)]
    with running([(command, env | {"RANK": str(rank)}) for rank in range(3)]):
        pickled, as_json = await blaming(tmp_path, sentence)
    for found in (pickled, as_json):
        assert [record.problem for record in found.values()] == ["", "", ""]
        blame = blamed(found)
        assert blame is not None and blame.ranks == {2}
        assert blame.sentence.startswith(sentence if found is pickled else sentence.partition(" at ")[0])
    assert (
        pickled[0].groups[0].at(4) is not None
        and pickled[0].words == "in all_reduce #4 of process group 0 (default_pg)"
    )
    assert pickled[0].groups[0].at(4).place.startswith("gang.py:")  # type: ignore[union-attr]


async def test_what_gloo_has_finished_is_not_open_where_an_older_one_is_called_the_last(tmp_path: Path) -> None:
    each = [entry(n, "scheduled", profiling_name="gloo:all_reduce", retired=n < 4) for n in range(1, 5)]
    content = dump(*each, pg_status={"0": {"last_completed_collective": 2}})
    (group,) = (await read_back(tmp_path / "d", pickle.dumps(content))).groups
    assert [each.state for each in group.operations] == ["completed"] * 3 + ["scheduled"]
    assert group.open == 4


@pytest.mark.parametrize("version", ["2.2", "2.3", "2.4", "2.5", "2.9", "2.10"])
async def test_nccls_format(tmp_path: Path, version: str) -> None:
    content = dump(
        *(entry(n) for n in range(1, 11)),
        entry(11, "started"),
        entry(12, "scheduled"),
        version=version,
        nccl_comm_state={"0xabc": {"rank": "0"}},
        pg_status={
            "0": {"last_enqueued_collective": 12, "last_started_collective": 11, "last_completed_collective": 10}
        },
    )
    found = await read_back(tmp_path / "d", pickle.dumps(content, protocol=2))
    (group,) = found.groups
    assert (found.problem, found.version, group.name, group.description) == ("", version, "0", "default_pg")
    assert (group.ranks, group.open, group.last) == (((0, 1),), 11, 12)
    assert [each.number for each in group.operations] == [8, 9, 10, 11, 12]
    newest = group.operations[-1]
    assert (newest.name, newest.state, newest.inputs) == ("all_reduce", "scheduled", "Float[3, 4]")
    assert newest.place == "train.py:80 `step`"
    assert 99 < newest.age_s < 160 and 99 < found.quiet_s < 160


async def test_the_format_of_torch_2_3(tmp_path: Path) -> None:
    """One number for all operations, groups by number, their ranks as a list."""
    old = {**entry(7, "started"), "seq_id": 7}
    for name in ("collective_seq_id", "p2p_seq_id", "process_group", "is_p2p"):
        del old[name]
    found = await read_back(
        tmp_path / "d", pickle.dumps({"version": "1.5", "pg_config": {0: [0, 1]}, "entries": [old]})
    )
    assert [(each.name, each.ranks, each.open) for each in found.groups] == [("0", ((0, 1),), 7)]


async def test_coalesced_operations_sends_and_time_outs(tmp_path: Path) -> None:
    content = dump(
        entry(1),
        entry(2, "started", "_all_gather_base"),
        entry(2, "started", "coalesced"),
        entry(1, "completed", "send 0->1", is_p2p=True, p2p_seq_id=1),
        entry(1, "scheduled", "recv 0<-1", is_p2p=True, p2p_seq_id=2),
    )
    (group,) = (await read_back(tmp_path / "d", pickle.dumps(content))).groups
    assert [(each.number, each.name, each.state) for each in group.operations] == [
        (1, "all_reduce", "completed"),
        (2, "coalesced", "started"),
    ]
    assert [(each.number, each.name) for each in group.sends] == [(2, "recv 0<-1")]
    timed_out = dump(entry(1), entry(2, "started", retired=True))
    assert (await read_back(tmp_path / "d", pickle.dumps(timed_out))).groups[0].open == 2


async def test_a_full_buffer_with_stacks_is_read_in_time_and_little_of_it_kept(tmp_path: Path) -> None:
    frames = [{"name": f"f{n}", "filename": f"/v/site-packages/m{n}.py", "line": n} for n in range(40)]
    groups = [("0", "default_pg"), *((str(n), f"mesh_{n}" * 99) for n in range(1, 40))]
    entries = [
        entry(n // 40 + 1, frames=[dict(frame) for frame in frames], process_group=groups[n % 40], pg_id=n % 40)
        for n in range(2000)
    ]
    config = {str(n): {"name": str(n), "desc": "", "ranks": str(list(range(n % 8, 4096, 8)))} for n in range(40)}
    found = await read_back(tmp_path / "d", pickle.dumps({**dump(*entries), "pg_config": config}))
    assert found.problem == ""
    assert (len(found.groups), found.groups_cut) == (16, 24)
    assert len(str(found)) < 300_000


# --- What would do harm -------------------------------------------------------------------------------------------


class Harm:
    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._made = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made


async def test_no_name_in_a_dump_is_looked_up(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for call in (
        Harm(os.system, f"touch {victim}"),
        Harm(exec, f"open({str(victim)!r}, 'w')"),
        Harm(getattr, {}, "get"),
        Harm(bytearray, 1 << 40),
        Path("x"),
    ):
        found = await read_back(tmp_path / "d", pickle.dumps(dump(entry(1, frames=call))))
        assert "it asks for " in found.problem
    persistent = b"\x80\x02Pname\n."
    assert "refers to something outside" in (await read_back(tmp_path / "d", persistent)).problem
    assert not victim.exists()


BAD = {
    "empty": b"",
    "text": b"collectives",
    "cut off": pickle.dumps(dump(entry(1)))[:-20],
    "a list": pickle.dumps([1]),
    "entries of another kind": pickle.dumps(dump() | {"entries": 7}),
    "a memo as large as memory": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a string as large as memory": b"\x80\x04\x8d\xff\xff\xff\xff\xff\x00\x00\x00.",
    "tuples in tuples as a key": b"\x80\x02}" + b")" + b"\x85" * 2_000_000 + b"Ns.",
    "lists in lists": b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "JSON in JSON": b'{"entries":' + b"[" * 200_000,
    "JSON cut off": b'{"entries": [',
    "a number too long": b'{"entries": [{"collective_seq_id": ' + b"9" * 100_000 + b"}]}",
}


@pytest.mark.parametrize("what", BAD)
async def test_a_damaged_or_hostile_dump_is_a_problem_in_words(tmp_path: Path, what: str) -> None:
    began = time.monotonic()
    found = await read_back(tmp_path / "d", BAD[what])
    assert (bool(found.problem), found.groups) == (True, ())
    assert "Traceback" not in found.problem and len(found.problem) < 400
    assert time.monotonic() - began < 45


async def test_values_of_any_kind_make_no_error(tmp_path: Path) -> None:
    odd: list[Any] = [None, -1, 1e400, "x" * 10_000, b"bytes", [], {}, (1, 2, 3), float("nan"), True, {"a": [None]}]
    whole = dump(entry(1, "started"))
    for value in odd:
        for name in ("pg_config", "pg_status", "version"):
            found = await _checked(tmp_path, {**whole, name: value})
            assert found.groups[0].open == 1
    for value in odd:
        every = [entry(1) | dict.fromkeys(entry(1), value), value, *(entry(2) | {name: value} for name in entry(2))]
        config = {
            "0": value,
            "1": {"ranks": value},
            value if isinstance(value, str | int) else 3: {"ranks": [value]},
        }
        found = await _checked(
            tmp_path, {"version": value, "entries": every, "pg_config": config, "pg_status": {0: value}}
        )
        assert found.problem == ""


async def _checked(tmp_path: Path, content: Any) -> FlightRecord:
    """As the reader makes it of a dump, without a process for each."""
    (tmp_path / "d").write_bytes(pickle.dumps(content))
    with (tmp_path / "d").open("rb") as f:
        plain = flight_dump.summary(flight_dump.decoded(flight_dump.read(f.fileno(), os.getuid())), time.time())
    made = from_plain(FlightRecord, json.loads(json.dumps(plain)))
    blamed({0: made, 1: made})
    return made


@pytest.mark.require("root")
async def test_only_a_file_of_the_ranks_own_user_is_read(tmp_path: Path) -> None:
    good = pickle.dumps(dump(entry(1)))
    path = tmp_path / "d"
    assert (await read_back(path, good)).problem == ""
    (tmp_path / "link").symlink_to(path)
    assert "symbolic links" in (await read(tmp_path / "link")).problem
    os.chown(path, 65534, 65534)
    assert (await read(path)).problem == "its dump is no file of the rank's own"
    os.mkfifo(tmp_path / "fifo")
    assert (await read(tmp_path / "fifo")).problem == "its dump is no file of the rank's own"
    assert (await read(tmp_path / "none")).problem == "No such file or directory"
    os.truncate(path, 40 << 20)
    os.chown(path, 0, 0)
    assert (await read(path)).problem == "its dump is larger than 32 MiB"


# --- All of it together -------------------------------------------------------------------------------------------

# As torch does: one pipe a rank, looked at now and then; a dump goes to a file of its own.
RANK = """
import os, shutil, sys, time
stem, rank, content = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], os.environ["RANK"], sys.argv[1]
os.mkfifo(f"{stem}{rank}.pipe")
source = os.open(f"{stem}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
while not os.read(source, 128):
    time.sleep(0.05)
shutil.copyfile(content, f"{stem}{rank}")
time.sleep(600)
"""


async def test_an_examination_asks_every_rank_and_says_who_keeps_the_others_waiting(tmp_path: Path) -> None:
    contents = [dump(entry(450), entry(451, "started")), dump(entry(449), entry(450, op="broadcast"))]
    programs = []
    for rank, content in enumerate(contents):
        await anyio.Path(tmp_path / f"content{rank}").write_bytes(pickle.dumps(content))
        stem = f"{tmp_path}/trace_"
        env = {"RANK": str(rank), "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": stem, "TORCH_FR_DUMP_TEMP_FILE": stem}
        programs.append(([sys.executable, "-c", RANK, str(tmp_path / f"content{rank}")], env))
    facts = HostFacts("host-0", str(tmp_path), str(tmp_path), WorkerUser("ada", "/", "/bin/sh"), 2)
    examiner = Examiner(lambda: facts, SimulatedSource("h", 0), limits=Limits(0.1))
    dumps: dict[int, bytes] = {}
    with running(programs) as pids, anyio.fail_after(60):
        worker = Worker(WorkerId("job-1", "workerpool0-0"), Running(1), pids=dict(enumerate(pids)))
        found = await examiner.diagnose(worker, 1, [], native=False, dumps=dumps)
    assert [rank.recorder for rank in found.ranks] == [f"{tmp_path}/trace_{rank}" for rank in (0, 1)]
    unpacked = hang_wire.unpack_dumps(hang_wire.pack_dumps(dumps))
    assert [pickle.loads(unpacked[rank]) for rank in (0, 1)] == contents
    said = diagnosis([found], 0.0).words
    assert (
        "rank 1 has not joined all_reduce #451 of process group 0 (default_pg), which rank 0 is in for 10" in said
    )
    assert said.endswith("its last was broadcast #450")
