"""What a dev cluster consists of, from its first start to its growth."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.dev import plan
from holdfast.dev.plan import Cluster, Host
from holdfast.errors import ConfigError

FIRST = range(20000, 20200)
SECOND = range(20200, 20400)
THIRD = range(20400, 20600)


def grow(
    known: Cluster | None = None, hosts: int | None = None, gpus: int | None = None, port: int | None = None
) -> Cluster:
    free = [FIRST, SECOND, THIRD][len(known.hosts) if known else 0 :]
    return plan.grow(
        known, hosts=hosts, gpus=gpus, port=port, free_ports=iter([7001, 7002, 7003, 7004]), free_blocks=iter(free)
    )


def test_first_start_makes_one_host_on_free_ports() -> None:
    assert grow() == Cluster(7001, (Host("host-0", FIRST, 0),), 7002, 7003, 7004)


def test_first_start_takes_what_was_asked_for() -> None:
    asked = grow(hosts=2, gpus=4, port=9000)
    assert asked == Cluster(9000, (Host("host-0", FIRST, 4), Host("host-1", SECOND, 4)), 7001, 7002, 7003)


def test_http_never_gets_the_port_that_was_asked_for() -> None:
    assert grow(port=7001).http_port == 7002


def test_cluster_of_a_time_before_http_and_metrics_and_the_page_stays_without() -> None:
    known = Cluster(7001, (Host("host-0", FIRST, 0),))
    grown = grow(known, hosts=2)
    assert (grown.http_port, grown.metrics_port, grown.web_port) == (0, 0, 0)


def test_no_worker_of_a_host_gets_the_port_of_its_agents_metrics() -> None:
    host = grow().hosts[0]
    assert host.metrics_port not in host.worker_ports
    assert {*host.worker_ports, host.metrics_port} == set(FIRST)


def test_later_start_keeps_everything() -> None:
    known = grow(hosts=2, gpus=4, port=9000)
    assert grow(known) == known
    assert grow(known, hosts=2, gpus=4, port=9000) == known


def test_fewer_hosts_take_none_away() -> None:
    known = grow(hosts=2)
    assert grow(known, hosts=1) == known


def test_added_hosts_resemble_the_newest_one() -> None:
    known = grow(hosts=1, gpus=4)
    assert grow(known, hosts=2).hosts == (*known.hosts, Host("host-1", SECOND, 4))


def test_gpus_count_for_added_hosts_only() -> None:
    known = grow(hosts=1, gpus=4)
    assert grow(known, hosts=2, gpus=0).hosts == (*known.hosts, Host("host-1", SECOND, 0))


def test_another_port_contradicts_the_cluster() -> None:
    with pytest.raises(ConfigError, match="--port 9001: this cluster has listened on 9000"):
        grow(grow(port=9000), port=9001)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hosts": 0}, "--hosts 0"),
        ({"hosts": -1}, "--hosts -1"),
        ({"gpus": -1}, "--gpus -1"),
        ({"port": 0}, "--port 0"),
        ({"port": 65536}, "--port 65536"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        grow(**options)


def test_lack_of_free_ports_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no more free ports"):
        grow(hosts=4)
    with pytest.raises(ConfigError, match="no more free ports"):
        plan.grow(None, hosts=1, gpus=0, port=None, free_ports=iter([]), free_blocks=iter([FIRST]))


def test_blocks_avoid_the_ephemeral_range_and_each_other() -> None:
    ephemeral = range(32768, 61000)
    found = plan.blocks(ephemeral, taken=[range(20100, 20300)])
    assert all(len(b) == plan.PORTS_PER_HOST for b in found)
    assert not any(set(b) & set(ephemeral) or set(b) & set(range(20100, 20300)) for b in found)
    assert len({port for b in found for port in b}) == len(found) * plan.PORTS_PER_HOST
    assert all(1024 < port < 65536 for b in found for port in b)


def test_ports_are_found_even_where_all_are_ephemeral() -> None:
    everything = range(1024, 65536)
    assert FIRST not in plan.blocks(everything, taken=[FIRST])
    assert plan.blocks(everything, taken=[])
    assert plan.controller_ports(everything)


def test_controller_ports_avoid_the_ephemeral_range() -> None:
    assert plan.controller_ports(range(7000, 9990)) == list(range(9990, 10000))


def test_only_what_is_dead_is_started() -> None:
    cluster = grow(hosts=3)
    assert plan.dead(cluster, []) == (True, cluster.hosts)
    assert plan.dead(cluster, ["controller", "host-1"]) == (False, (cluster.hosts[0], cluster.hosts[2]))
    assert plan.dead(cluster, cluster.daemons) == (False, ())
