"""Pictures and counts that are kept of hosts: each is what would be made anew, whatever has happened meanwhile."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bench.costs.metrics import model

from holdfast.v1 import host_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Allocation, Liveness, Orphan
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.views.overview import CountHost, Overview, count_host, counting
from holdfast_controller.shell.convert import kept_hosts
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.convert.kept_hosts import KeptHosts
from holdfast_controller.shell.store.recent_changes import RecentChanges


class Site:
    """A model of some hosts and jobs, whose events are published as they are folded."""

    def __init__(self) -> None:
        self.cluster: Cluster = model(12, 8)
        self.changes = RecentChanges(0)
        self.hosts = KeptHosts(cast("Any", SimpleNamespace(cluster=self.cluster, changes=self.changes)))
        self.spares: set[str] = set()

    def tell(self, event: ev.Event, entity: str) -> None:
        fold(self.cluster, event)
        self.changes.extend([(self.changes.newest + 1, entity)])

    def listed(self) -> list[host_pb2.Host]:
        self.hosts.look()
        return [self.hosts.picture(host, self.spares).message for host in self.cluster.hosts.values()]

    def check(self) -> None:
        for host, found in zip(self.cluster.hosts.values(), self.listed(), strict=True):
            anew = host_to_proto(self.cluster, host, self.spares)
            anew.ClearField("last_seen")
            assert found == anew
        assert self.counted(self.hosts.count) == self.counted(count_host)

    def counted(self, count: CountHost) -> Overview:
        self.hosts.look()
        pieces = counting(self.cluster, Now(Mono(9.0), Wall(9.0)), count)
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                found: Overview = done.value
                return found


def test_a_picture_is_made_again_only_once_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    site, made = Site(), list[str]()

    def noted(cluster: Cluster, host: Any, kept: Any) -> host_pb2.Host:
        made.append(host.name)
        return host_to_proto(cluster, host, kept)

    monkeypatch.setattr(kept_hosts, "host_to_proto", noted)
    first = site.listed()
    assert made == list(site.cluster.hosts)
    site.cluster.presence_of("host-3").last_seen_wall = Wall(99.0)
    assert all(one is other for one, other in zip(site.listed(), first, strict=True))
    site.tell(ev.HostCordoned(host="host-3", at=Wall(5.0), reason="fan", by="ann"), "host/host-3")
    site.listed()
    assert made[8:] == ["host-3"]
    site.tell(ev.JobEnding(job_id="job-1", at=Wall(6.0), outcome=JobState.FAILED), "job/job-1")
    site.listed()
    assert made[9:] == ["host-1"], "of a job that has changed its hosts may show more than their own fields"


def test_a_host_is_counted_again_only_once_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    site, counted = Site(), list[str]()

    def noted(cluster: Cluster, host: Any, kept: Any) -> Any:
        counted.append(host.name)
        return count_host(cluster, host, kept)

    monkeypatch.setattr(kept_hosts, "count_host", noted)
    for _ in range(2):
        site.counted(site.hosts.count)
    assert counted == list(site.cluster.hosts)
    site.tell(ev.JobEnding(job_id="job-1", at=Wall(6.0), outcome=JobState.FAILED), "job/job-1")
    site.cluster.presence_of("host-3").liveness = Liveness.LOST
    assert site.counted(site.hosts.count) == site.counted(count_host)
    assert counted[8:] == ["host-1", "host-3"]


@pytest.mark.parametrize("seed", range(20))
def test_a_kept_picture_or_count_is_what_would_be_made_anew(seed: int) -> None:
    site, draw = Site(), random.Random(seed)
    for _ in range(60):
        name = draw.choice(list(site.cluster.hosts))
        host, presence = site.cluster.hosts[name], site.cluster.presence_of(name)
        act = draw.randrange(9)
        match act:
            case 0:
                presence.liveness = draw.choice(list(Liveness))
            case 1:
                presence.session = draw.choice([None, 1])
            case 2:
                site.spares ^= {name}
            case 3:
                host.labels["rack"] = draw.choice("abc")
            case 4:
                host.orphans[f"x/{draw.randrange(3)}"] = Orphan(
                    "x", "w", 1, (host.inventory.gpus[0].uuid,), Wall(1.0)
                )
            case 5:
                host.allocations[f"job-{draw.randrange(8)}/0"] = Allocation(1, 1, (host.inventory.gpus[1].uuid,))
            case 6:
                host.throttled = {"hello": Wall(3.0)} if draw.random() < 0.5 else {}
            case 7:
                job = f"job-{draw.randrange(4)}"
                site.cluster.jobs[job].placement.fenced.symmetric_difference_update({0})
                site.changes.extend([(site.changes.newest + 1, f"job/{job}")])
            case _:
                cordoned = ev.HostCordoned(host=name, at=Wall(5.0), reason=draw.choice("xy"), by="ann")
                site.tell(cordoned, f"host/{name}")
        if act in (3, 4, 5, 6):
            site.cluster.host_changed(name)  # as who folds an event that changes these does
        if draw.random() < 0.5:
            site.check()
    site.check()
