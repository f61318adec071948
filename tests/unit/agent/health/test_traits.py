"""What a host should have in common with others of its kind, read of a tree of the kernel's files."""

from __future__ import annotations

from pathlib import Path

from holdfast_agent.shell.base import traits


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_host_without_any_of_them_has_no_traits(tmp_path: Path) -> None:
    assert traits.found(tmp_path) == {}


def test_versions_and_what_is_chosen_are_read(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/kernel/osrelease", "6.8.0-45\n")
    write(tmp_path, "sys/module/nvidia/version", "570.86.15\n")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "sys/class/iommu/dmar0").mkdir(parents=True)
    assert traits.found(tmp_path) == {
        "kernel": "6.8.0-45",
        "NVIDIA driver": "570.86.15",
        "huge pages": "madvise",
        "nvidia_peermem": "loaded",
        "nvidia_fs": "",
        "IOMMU": "on",
    }


def test_firmware_is_that_of_each_kind_of_adapter_and_not_of_virtual_functions(tmp_path: Path) -> None:
    for name, firmware in (("mlx5_0", "28.39"), ("mlx5_1", "28.40"), ("mlx5_2", "28.39"), ("mlx5_9", "1.0")):
        write(tmp_path, f"sys/class/infiniband/{name}/hca_type", "MT4129\n")
        write(tmp_path, f"sys/class/infiniband/{name}/fw_ver", f"{firmware}\n")
    (tmp_path / "sys/class/infiniband/mlx5_9/device/physfn").mkdir(parents=True)
    assert traits.found(tmp_path) == {"firmware of MT4129": "28.39, 28.40"}


def test_a_long_or_odd_text_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, "sys/module/nvidia/version", "9" * 10_000)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").mkdir()
    assert len(traits.found(tmp_path)["NVIDIA driver"]) == traits.MOST_BYTES


def test_this_host_tells_its_kernel() -> None:
    assert traits.found()["kernel"]
