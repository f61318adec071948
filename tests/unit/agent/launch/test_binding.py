"""Each rank is bound next to its GPU, to whole cores that no other has; where that can't be known it is left alone."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_nvml import sysfs
from tests.unit.agent.desired import LAUNCH

from holdfast._base.job_file.choices import NumaBinding
from holdfast._base.spans import spans_of
from holdfast._session.assignment import Launch
from holdfast._session.reports import RankBinding
from holdfast_agent.core.launch.binding import bind
from holdfast_agent.core.model.topology import Core, Device, Topology, cpus_in
from holdfast_agent.shell.base.topology import read, sysfs_name

BUSES = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]
UUIDS = tuple(f"GPU-{number}" for number in range(8))


def launch(mode: str, gpus: int = 8, processes: int | None = None, cpus: int = 0, first: int = 0) -> Launch:
    return replace(
        LAUNCH,
        gpus=UUIDS[first : first + gpus],
        processes=gpus if processes is None else processes,
        cpu_count=cpus,
        numa_binding=NumaBinding[mode],
    )


def two_sockets(root: Path) -> Topology:
    """2 sockets of 16 cores with 2 hyper-threads, 4 GPUs and 4 cards each: CPU n and n+32 are one core."""
    sysfs.build(
        root,
        ["0-15,32-47", "16-31,48-63"],
        siblings=[f"{core},{core + 32}" for core in range(32)],
        gpus={bus: number // 4 for number, bus in enumerate(BUSES)},
        nics={f"mlx5_{number}": (bus, number // 4) for number, bus in enumerate(BUSES)},
    )
    return read(root, range(64), {uuid: f"0000{bus}" for uuid, bus in zip(UUIDS, BUSES, strict=True)})


def bound(topology: Topology, wanted: Launch, taken: frozenset[int] = frozenset()) -> list[RankBinding]:
    found = bind(topology, wanted, taken)
    assert len(found) == wanted.processes
    assert None not in found
    return [each for each in found if each is not None]


def cpus_of(bindings: list[RankBinding]) -> list[str]:
    return [each.cpus for each in bindings]


def test_no_rank_is_bound_unless_its_job_asks(tmp_path: Path) -> None:
    assert bind(two_sockets(tmp_path), launch("NONE"), ()) == (None,) * 8


def test_ranks_of_a_whole_host_share_the_cores_of_their_gpus_node(tmp_path: Path) -> None:
    found = bound(two_sockets(tmp_path), launch("NODE"))
    assert cpus_of(found) == ["0-15,32-47"] * 4 + ["16-31,48-63"] * 4
    assert [each.memory_nodes for each in found] == ["0"] * 4 + ["1"] * 4
    assert not any(each.exclusive or each.note for each in found)


def test_ranks_of_a_whole_host_have_whole_cores_of_their_own(tmp_path: Path) -> None:
    found = bound(two_sockets(tmp_path), launch("EXCLUSIVE"))
    assert cpus_of(found)[:5] == ["0-3,32-35", "4-7,36-39", "8-11,40-43", "12-15,44-47", "16-19,48-51"]
    assert [each.memory_nodes for each in found] == ["0"] * 4 + ["1"] * 4
    assert all(each.exclusive and not each.note for each in found)


def test_the_nearest_card_is_named_first_and_those_of_another_node_last(tmp_path: Path) -> None:
    found = bound(two_sockets(tmp_path), launch("NODE"))
    assert [each.nics[0] for each in found] == [f"mlx5_{number}" for number in range(8)]
    assert set(found[6].nics[:4]) == {"mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"}
    assert found[6].nics[4:] == ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


def test_one_process_with_all_gpus_is_on_every_node_and_so_not_bound(tmp_path: Path) -> None:
    (found,) = bound(two_sockets(tmp_path), launch("NODE", processes=1))
    assert (found.cpus, found.note) == ("", "not bound: its GPUs are on all NUMA nodes")
    (own,) = bound(two_sockets(tmp_path / "again"), launch("EXCLUSIVE", processes=1, cpus=16))
    assert own.cpus == "0-3,16-19,32-35,48-51", "as many cores of each node"
    assert own.memory_nodes == ""


def test_cores_that_are_reserved_count_and_workers_never_overlap(tmp_path: Path) -> None:
    topology = two_sockets(tmp_path)
    first = bound(topology, launch("EXCLUSIVE", gpus=2, cpus=8))
    assert cpus_of(first) == ["0-1,32-33", "2-3,34-35"]
    taken = frozenset().union(*(cpus_in(each.cpus) for each in first))
    assert cpus_of(bound(topology, launch("EXCLUSIVE", gpus=1, cpus=3, first=2), taken)) == ["4-5,36-37"]


def test_what_a_node_lacks_comes_from_another_in_equal_parts_and_is_said(tmp_path: Path) -> None:
    found = bound(two_sockets(tmp_path), launch("EXCLUSIVE", gpus=4, cpus=48))
    assert cpus_of(found)[0] == "0-3,16-17,32-35,48-49"
    assert {each.note for each in found} == {"2 of its 6 cores are on another NUMA node than its GPU"}
    assert {each.memory_nodes for each in found} == {"0"}


def test_a_worker_that_finds_too_few_free_cores_shares_its_node(tmp_path: Path) -> None:
    (found,) = bound(two_sockets(tmp_path), launch("EXCLUSIVE", gpus=1, cpus=8), frozenset(range(30)))
    assert (found.cpus, found.exclusive) == ("0-15,32-47", False)
    assert found.note == "no cores of its own: 2 of 4 are free"


def test_four_nodes_in_a_socket(tmp_path: Path) -> None:
    nodes = [f"{first}-{first + 7}" for first in range(0, 64, 8)]
    sysfs.build(tmp_path, nodes, gpus=dict(zip(BUSES, (3, 1, 0, 2, 7, 5, 4, 6), strict=True)))
    topology = read(tmp_path, range(64), dict(zip(UUIDS, BUSES, strict=True)))
    found = bound(topology, launch("EXCLUSIVE"))
    assert cpus_of(found) == [nodes[node] for node in (3, 1, 0, 2, 7, 5, 4, 6)]
    assert found[0].nics == ()


def test_a_host_with_one_node_binds_to_own_cores_alone(tmp_path: Path) -> None:
    sysfs.build(tmp_path, ["0-7"], gpus={BUSES[0]: 0, BUSES[1]: 0})
    topology = read(tmp_path, range(8), dict(zip(UUIDS[:2], BUSES[:2], strict=True)))
    (first, _) = bound(topology, launch("NODE", gpus=2))
    assert (first.cpus, first.memory_nodes) == ("", "")
    assert first.note == "not bound: all cores that work may use here are on one NUMA node"
    found = bound(topology, launch("EXCLUSIVE", gpus=2))
    assert [(each.cpus, each.memory_nodes, each.note) for each in found] == [("0-3", "", ""), ("4-7", "", "")]


@pytest.mark.parametrize("node", [-1, 7])
def test_gpu_whose_node_is_unknown_is_left_alone(tmp_path: Path, node: int) -> None:
    sysfs.build(tmp_path, ["0-7", "8-15"], gpus={BUSES[0]: node})
    topology = read(tmp_path, range(16), {UUIDS[0]: BUSES[0]})
    (found,) = bound(topology, launch("NODE", gpus=1))
    assert found.cpus == found.memory_nodes == ""
    assert found.note.startswith("not bound: ")
    (own,) = bound(topology, launch("EXCLUSIVE", gpus=1, cpus=4))
    assert own.cpus == "0-3", "cores of its own all the same"


def test_an_agent_in_a_cpuset_binds_within_it(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    buses = dict(zip(UUIDS, BUSES, strict=True))
    assert cpus_of(bound(read(tmp_path, [2, 3, 34, 40, 20], buses), launch("NODE")))[:5:4] == ["2-3,34,40", "20"]
    (inside, outside) = bound(read(tmp_path, range(16), buses), launch("NODE", gpus=2, first=3))
    assert inside.note == "not bound: all cores that work may use here are on one NUMA node"
    assert outside.cpus == ""


def test_cpus_that_are_offline_are_in_no_binding(tmp_path: Path) -> None:
    """The kernel leaves them out of what a process may run on, and out of their node's list."""
    sysfs.build(tmp_path, ["0-1,4-5", "2-3,7"], siblings=["0,4", "1,5", "2", "3,7"], gpus={BUSES[0]: 1})
    topology = read(tmp_path, [0, 1, 2, 3, 4, 5, 7], {UUIDS[0]: BUSES[0]})
    (found,) = bound(topology, launch("EXCLUSIVE", gpus=1))
    assert found.cpus == "2-3,7"


def test_workers_without_gpus_have_whole_nodes_where_they_fit(tmp_path: Path) -> None:
    topology = two_sockets(tmp_path)
    found = bound(topology, launch("EXCLUSIVE", gpus=0, processes=2, cpus=32))
    assert cpus_of(found) == ["0-7,32-39", "16-23,48-55"]
    assert [each.memory_nodes for each in found] == ["0", "1"]
    for mode, cpus in (("NODE", 8), ("EXCLUSIVE", 0), ("EXCLUSIVE", 1)):
        left = bound(topology, launch(mode, gpus=0, processes=2, cpus=cpus))
        assert all(not each.cpus and each.note for each in left), mode


def test_what_the_kernel_does_not_show_binds_nothing(tmp_path: Path) -> None:
    topology = read(tmp_path / "nothing", range(4), dict(zip(UUIDS, BUSES, strict=True)))
    assert len(topology.cores) == 4
    assert all(not each.cpus and each.note for each in bound(topology, launch("NODE")))
    assert bound(Topology(), launch("EXCLUSIVE"))[0].cpus == ""


HOSTILE = ["", "x", "-5", "1-", "3-1", "0-99999", "0-8191,9999999999", "0\x00", "１", "nan", "0,," * 9999, "1 2"]


@pytest.mark.parametrize("text", HOSTILE)
def test_files_that_say_nonsense_are_as_if_they_were_not_there(tmp_path: Path, text: str) -> None:
    two_sockets(tmp_path)
    for path in [*tmp_path.rglob("cpulist"), *tmp_path.rglob("numa_node"), *tmp_path.rglob("distance")]:
        path.write_text(text)
    for path in tmp_path.rglob("thread_siblings_list"):
        path.write_text(text)
    topology = read(tmp_path, range(64), dict(zip(UUIDS, BUSES, strict=True)))
    assert sorted(cpu for core in topology.cores for cpu in core.cpus) == list(range(64))
    for mode in ("NODE", "EXCLUSIVE"):
        assert all(cpus_in(each.cpus) <= set(range(64)) for each in bound(topology, launch(mode)))


def test_links_that_lead_nowhere_or_in_circles_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    for link in (tmp_path / "bus/pci/devices").iterdir():
        link.unlink()
        link.symlink_to(link)
    card = tmp_path / "class/infiniband/mlx5_0/device"
    card.unlink()
    card.symlink_to(tmp_path / "gone")
    shutil.rmtree(tmp_path / "devices/system/cpu")
    (tmp_path / "devices/system/cpu").symlink_to(tmp_path / "devices/system/cpu")
    shutil.rmtree(tmp_path / "devices/system/node/node1")
    os.mkfifo(tmp_path / "devices/system/node/node1")
    topology = read(tmp_path, range(64), dict(zip(UUIDS, BUSES, strict=True)) | {"GPU-x": "../../.."})
    assert len(topology.cores) == 64
    assert all(gpu.path == () for gpu in topology.gpus.values())
    assert "mlx5_0" not in [nic.name for nic in topology.nics]


def test_without_adapters_the_network_interfaces_are_named(tmp_path: Path) -> None:
    cards = {"eth10": (BUSES[4], 1), "eth2": (BUSES[0], 0), "eth1": (BUSES[1], 0)}
    sysfs.build(
        tmp_path,
        ["0-7", "8-15"],
        gpus={bus: number // 4 for number, bus in enumerate(BUSES)},
        nics=cards,
        kind="net",
    )
    (tmp_path / "class/net/lo").mkdir()
    topology = read(tmp_path, range(16), dict(zip(UUIDS, BUSES, strict=True)))
    assert bound(topology, launch("NODE", gpus=1))[0].nics == ("eth2", "eth1", "eth10")


def test_this_machine_can_be_read() -> None:
    topology = read()
    assert sorted(cpu for core in topology.cores for cpu in core.cpus) == sorted(os.sched_getaffinity(0))


def test_bus_ids_are_named_as_the_kernel_names_them() -> None:
    assert sysfs_name("00000000:17:00.0") == "0000:17:00.0"
    assert sysfs_name("00010000:E1:00.0") == "10000:e1:00.0"


@given(st.sets(st.integers(0, 8191)))
def test_lists_of_numbers_come_back(numbers: set[int]) -> None:
    assert cpus_in(spans_of(numbers)) == numbers


MODES = st.sampled_from(["NODE", "EXCLUSIVE"])
hosts = st.builds(
    lambda sizes, threads, gpus: (
        tuple(
            Core(tuple(100 * thread + 10 * node + core for thread in range(threads)), node)
            for node, size in enumerate(sizes)
            for core in range(size)
        ),
        gpus,
    ),
    st.lists(st.integers(0, 8), max_size=4),
    st.integers(1, 2),
    st.lists(st.integers(-1, 4), max_size=6),
)


@given(
    hosts,
    st.sampled_from(["NODE", "EXCLUSIVE"]),
    st.integers(1, 8),
    st.integers(0, 40),
    st.sets(st.integers(0, 140)),
)
def test_any_host_gives_every_rank_whole_free_cores_or_a_reason(
    host: tuple[tuple[Core, ...], list[int]], mode: str, processes: int, cpus: int, taken: set[int]
) -> None:
    cores, nodes = host
    gpus = {uuid: Device(uuid, node) for uuid, node in zip(UUIDS, nodes, strict=False)}
    wanted = replace(launch(mode, len(nodes), processes, cpus), gpus=tuple(gpus))
    found = bound(Topology(cores, gpus), wanted, frozenset(taken))
    assert found == bound(Topology(cores, gpus), wanted, frozenset(taken)), "the same again"
    held: set[int] = set()
    for each in found:
        mine = cpus_in(each.cpus)
        assert mine == {cpu for core in cores if set(core.cpus) & mine for cpu in core.cpus}, "whole cores"
        assert mine or each.note
        if each.exclusive:
            assert not mine & taken
            assert not mine & held
            held |= mine
    assert len({each.exclusive for each in found}) == 1, "all or none"
    if cpus and held:
        assert len(held) >= cpus // processes * processes
