"""The program of active checks as hosts run it: its text, by an interpreter that knows nothing of Holdfast."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast._base.health import FIGURES
from holdfast_controller.shell.base.host_checks_config import PROGRAM

TORCH = '''
"""Stands in for torch: as many GPUs as GPUS says; what is counted is that the program asks for what torch has."""
import os, time
__version__ = "2.9"
float16, float32, uint8 = "float16", "float32", "uint8"
class Tensor:
    def __init__(self, *size, dtype=None, device=None, pin_memory=False):
        assert device is None or device == "cuda" or 0 <= int(device.removeprefix("cuda:")) < cuda.device_count()
        self.count = size[0] * (size[1] if len(size) > 1 else 1)
        self.nbytes = self.count * {"float16": 2, "float32": 4, "uint8": 1}[dtype]
    def copy_(self, other, non_blocking=False):
        assert other.nbytes == self.nbytes
randn = zeros = Tensor
def matmul(one, other):
    assert one is other
class cuda:
    class device:
        def __init__(self, number): self.number = number
        def __enter__(self): return self
        def __exit__(self, *_): pass
    class Event:
        def __init__(self, enable_timing): assert enable_timing
        def record(self): self.at = time.perf_counter()
        def elapsed_time(self, other): return (other.at - self.at) * 1000
    is_available = staticmethod(lambda: os.environ["GPUS"] != "0")
    device_count = staticmethod(lambda: int(os.environ["GPUS"]))
    synchronize = staticmethod(lambda device=None: None)
    set_device = staticmethod(lambda device: None)
'''
NCCL = "def all_reduce(tensors):\n    assert len(tensors) > 1\n"
DISTRIBUTED = """
def init_process_group(backend): assert backend == "nccl"
def destroy_process_group(): pass
def get_world_size(): return 16
def all_reduce(tensor): assert tensor.nbytes == 256 << 20
"""
ALONE = {"cpu.hash", "memory.copy", "disk.write"}
GPUS = {"gpu.matmul", "gpu.memory", "gpu.to_device", "gpu.from_device", "gpu.all_reduce"}


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH."""
    package = tmp_path / "modules" / "torch"
    package.mkdir(parents=True)
    named = "sys.modules['torch.cuda'], sys.modules['torch.cuda.nccl'] = cuda, nccl"
    made = f"nccl = types.ModuleType('torch.cuda.nccl')\nexec({NCCL!r}, nccl.__dict__)"
    (package / "__init__.py").write_text(f"{TORCH}\nimport sys, types\n{made}\n{named}\n")
    (package / "distributed.py").write_text(DISTRIBUTED)
    return tmp_path / "modules"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def begin(kind: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """As a rank is started: ``python3 -c TEXT KIND``."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", PROGRAM.read_text(), kind],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert said.splitlines()[-1].startswith('{"holdfast_check":') and found["holdfast_check"] == 1
    assert all(value > 0 for value in found["figures"].values()) and found["figures"].keys() <= FIGURES.keys()
    return found


def test_a_host_without_gpus_is_measured_with_the_standard_library(tmp_path: Path) -> None:
    found = result(begin("alone", tmp_path))
    assert found["figures"].keys() == ALONE and not found["problems"]
    assert not list(tmp_path.iterdir()), "nothing is left on the disk"


def test_what_is_missing_is_a_problem_and_all_else_is_measured(tmp_path: Path) -> None:
    found = result(begin("alone", tmp_path, CUDA_VISIBLE_DEVICES="0,1"))
    assert found["figures"].keys() == ALONE
    assert found["problems"] == ["GPUs: ModuleNotFoundError: No module named 'torch'"]


def test_a_disk_that_takes_nothing_is_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    process = begin("alone", folder)
    folder.rmdir()
    (problem,) = result(process)["problems"]
    assert problem.startswith("disk.write: FileNotFoundError")


def test_every_gpu_figure_is_taken_where_torch_finds_gpus(tmp_path: Path, torch: Path) -> None:
    found = result(begin("alone", tmp_path, CUDA_VISIBLE_DEVICES="0,1", PYTHONPATH=str(torch), GPUS="2"))
    assert (found["figures"].keys(), found["problems"]) == (ALONE | GPUS, [])
    assert found["software"].endswith("torch 2.9")
    one = result(begin("alone", tmp_path, CUDA_VISIBLE_DEVICES="0", PYTHONPATH=str(torch), GPUS="1"))
    assert one["figures"].keys() == (ALONE | GPUS) - {"gpu.all_reduce"}
    none = result(begin("alone", tmp_path, CUDA_VISIBLE_DEVICES="0", PYTHONPATH=str(torch), GPUS="0"))
    assert none["problems"] == ["GPUs: RuntimeError: torch finds none"]


def test_gpus_of_a_pair_all_reduce(tmp_path: Path, torch: Path) -> None:
    given = {"CUDA_VISIBLE_DEVICES": "0,1", "PYTHONPATH": str(torch), "GPUS": "2", "LOCAL_RANK": "1"}
    assert result(begin("pair", tmp_path, **given))["figures"].keys() == {"net.all_reduce"}


def test_a_pair_finds_each_other_by_its_secret_alone(tmp_path: Path) -> None:
    port = free_port()
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HOLDFAST_RENDEZVOUS_SECRET": "s"}
    first = begin("pair", tmp_path, GROUP_RANK="0", LOCAL_RANK="0", **given)
    stranger = None
    for _ in range(200):
        try:
            stranger = socket.create_connection(("127.0.0.1", port), timeout=5)
            break
        except OSError:
            time.sleep(0.05)
    assert stranger is not None
    stranger.sendall(b"x" * 32)
    assert stranger.recv(1) == b"", "it is sent away"
    stranger.close()
    second = begin("pair", tmp_path, GROUP_RANK="1", LOCAL_RANK="0", **given)
    found = [result(each) for each in (first, second)]
    assert found[0]["figures"].keys() == {"net.tcp"} and found[0] == found[1]


def test_a_partner_that_dies_is_a_problem(tmp_path: Path) -> None:
    port = free_port()
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HOLDFAST_RENDEZVOUS_SECRET": "s"}
    with socket.create_server(("127.0.0.1", port)) as server:
        second = begin("pair", tmp_path, GROUP_RANK="1", **given)
        link, _ = server.accept()
        link.close()
    found = result(second)
    assert not found["figures"]
    assert found["problems"][0].startswith("net.tcp: Connection")


def test_further_ranks_of_a_host_without_gpus_have_nothing_to_do(tmp_path: Path) -> None:
    assert result(begin("pair", tmp_path, LOCAL_RANK="1"))["figures"] == {}
