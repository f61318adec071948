"""How the cluster stands: each host and GPU in one state, and what needs attention in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.unit.controller.job_examples import GANG

from holdfast._api.results import host_of
from holdfast.cli.hosts.host_tables import free_gpus
from holdfast.hang.judge.finding import Rule
from holdfast.v1 import host_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.events.reservations import ReservationMade
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import HostSelector
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Liveness, Maintenance, Orphan, Place
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.core.views import overview as overview_module
from holdfast_controller.core.views.alerts import MOST_OF_A_KIND, Alert, ControllerStatus, Kind, alerts
from holdfast_controller.core.views.gauges import gauges
from holdfast_controller.core.views.gpu_states import GpuState, kept_hosts
from holdfast_controller.core.views.job_summary import summary_of
from holdfast_controller.core.views.overview import HostState, counting, host_state, overview
from holdfast_controller.shell.convert.host_to_proto import host_to_proto

NOW = Now(Mono(1000.0), Wall(50_000.0))
VERSION = "1.2.0"
DAY_S = 86_400.0


def gpu(host: str, index: int, problem: str = "") -> Gpu:
    return Gpu(f"{host}-{index}", index, "H100", 80 << 30, problem)


@pytest.fixture
def cluster() -> Cluster:
    """h1 to h3, connected and well, with four GPUs each."""
    made = Cluster()
    for name in ("h1", "h2", "h3"):
        gpus = tuple(gpu(name, index) for index in range(4))
        fold(
            made,
            ev.HostJoined(
                host=name,
                at=Wall(1.0),
                address="10.0.0.1",
                boot_id="b",
                agent_version=VERSION,
                inventory=Inventory(64, 1 << 40, gpus),
            ),
        )
        presence = made.presence_of(name)
        presence.session, presence.liveness, presence.last_seen = 1, Liveness.READY, Mono(990.0)
    return made


def submit(cluster: Cluster, job_id: str = "a", at: float = 49_990.0) -> None:
    fold(
        cluster,
        ev.JobSubmitted(
            job_id=job_id,
            at=Wall(at),
            owner="ann",
            request_id="",
            display_name="train",
            labels={},
            gang=GANG,
            spec_json="{}",
        ),
    )


def place(cluster: Cluster, job_id: str = "a") -> None:
    """Two GPUs of h1, and a worker without any on each of the others."""
    submit(cluster, job_id)
    places = (Place("h1", ("h1-0", "h1-1")), Place("h2"), Place("h3"))
    fold(cluster, ev.JobPlaced(job_id=job_id, at=Wall(49_991.0), attempt=1, generation=1, places=places))


def told(cluster: Cluster, sees: bool = True, **beside: object) -> list[Alert]:
    facts = ControllerStatus(VERSION, **({"certificate_ends": {}} | beside))  # type: ignore[arg-type]
    return alerts(cluster, overview(cluster, NOW), lambda _: sees, {}, facts, NOW)[0]


def test_empty_cluster_has_all_states_at_nothing() -> None:
    found = overview(Cluster(), NOW)
    assert set(found.hosts) == set(HostState) and not sum(found.hosts.values())
    assert set(found.gpus) == set(GpuState) and not sum(found.gpus.values())
    assert found.jobs["RUNNING"] == 0
    assert told(Cluster()) == []


def test_each_gpu_counts_once(cluster: Cluster) -> None:
    place(cluster)
    fold(cluster, ev.HostCordoned(host="h2", at=Wall(2.0), reason="fan", by="ann"))
    fold(
        cluster,
        ev.HostJoined(
            host="h3",
            at=Wall(3.0),
            address="x",
            boot_id="b",
            agent_version=VERSION,
            inventory=Inventory(64, 1 << 40, (gpu("h3", 0, "ECC"), gpu("h3", 1))),
        ),
    )
    found = overview(cluster, NOW)
    assert found.gpus == {"used": 2, "free": 3, "unavailable": 4, "unhealthy": 1, "withheld": 0, "reserved": 0}
    assert found.hosts[HostState.CORDONED] == 1 and found.hosts[HostState.READY] == 2


def lost(cluster: Cluster) -> None:
    fold(cluster, ev.HostLost(host="h1", at=Wall(5.0), silent_s=80.0))


def silent(cluster: Cluster) -> None:
    cluster.judge_presence("h1", Liveness.SUSPECT)


def cut_off(cluster: Cluster) -> None:
    cluster.end_session("h1")


def cordoned(cluster: Cluster) -> None:
    fold(cluster, ev.HostCordoned(host="h1", at=Wall(2.0), reason="fan", by="ann"))


def in_maintenance(cluster: Cluster) -> None:
    plan = Maintenance(Wall(2.0), None, "new fans", "ann")
    fold(cluster, ev.MaintenancePlanned(host="h1", at=Wall(1.0), maintenance=plan))
    fold(cluster, ev.MaintenanceBegan(host="h1", at=Wall(2.0)))
    cordoned(cluster)


def unreconciled(cluster: Cluster) -> None:
    cluster.hosts["h1"].unreconciled = True


def refused(cluster: Cluster) -> None:
    fold(cluster, ev.HostRefused(host="h1", at=Wall(6.0), agent_version="9.0", problem="too new"))


def reserved(cluster: Cluster) -> None:
    selector = HostSelector(hosts=frozenset({"h1"}))
    made = Reservation("demo", "vision", start=Wall(2.0), end=Wall(60_000.0), selector=selector)
    fold(cluster, ReservationMade(at=Wall(2.0), reservation=made))


def reserved_later(cluster: Cluster) -> None:
    selector = HostSelector(hosts=frozenset({"h1"}))
    made = Reservation("demo", "vision", start=Wall(55_000.0), end=Wall(60_000.0), selector=selector)
    fold(cluster, ReservationMade(at=Wall(2.0), reservation=made))


def spare(cluster: Cluster) -> None:
    cluster.spares["h1"] = "two"


@pytest.mark.parametrize(
    ("befalls", "state"),
    [
        *[
            (each, GpuState.UNAVAILABLE)
            for each in (lost, silent, cut_off, cordoned, in_maintenance, unreconciled, refused)
        ],
        (reserved, GpuState.RESERVED),
        (spare, GpuState.RESERVED),
        (reserved_later, GpuState.FREE),
    ],
)
def test_only_what_a_job_may_have_now_is_free_in_every_count(
    cluster: Cluster, befalls: Callable[[Cluster], None], state: GpuState
) -> None:
    place(cluster)
    befalls(cluster)
    counted = Counter({GpuState.USED: 2, GpuState.FREE: 8})
    counted[state] += 2
    assert +overview(cluster, NOW).gpus == counted
    shown = host_to_proto(cluster, cluster.hosts["h1"], kept_hosts(cluster, NOW))
    assert [host_pb2.GpuState.Name(gpu.state) for gpu in shown.inventory.gpus] == [
        "GPU_STATE_USED",
        "GPU_STATE_USED",
        *[f"GPU_STATE_{state.name}"] * 2,
    ]
    free = 2 if state is GpuState.FREE else 0
    assert (free_gpus(shown), host_of(shown).gpus_free) == (f"{free}/4", free)


@pytest.mark.parametrize(
    ("befalls", "state"),
    [(reserved, HostState.RESERVED), (spare, HostState.RESERVED), (reserved_later, HostState.READY)],
)
def test_a_host_that_takes_work_of_some_jobs_alone_is_reserved_and_needs_no_attention(
    cluster: Cluster, befalls: Callable[[Cluster], None], state: HostState
) -> None:
    befalls(cluster)
    found = overview(cluster, NOW)
    assert +found.hosts == Counter({HostState.READY: 2}) + Counter({state: 1})
    assert (found.noted, told(cluster)) == ([], [])
    cordoned(cluster)
    assert overview(cluster, NOW).hosts[HostState.RESERVED] == 0


def test_a_gpu_that_unknown_work_holds_is_withheld(cluster: Cluster) -> None:
    cluster.hosts["h1"].orphans["b/workerpool0-0"] = Orphan("b", "workerpool0-0", 3, ("h1-0",), Wall(3.0))
    found = overview(cluster, NOW)
    assert (found.gpus[GpuState.QUARANTINED], found.gpus[GpuState.FREE]) == (1, 11)
    shown = host_to_proto(cluster, cluster.hosts["h1"], ())
    assert (shown.inventory.gpus[0].job_id, free_gpus(shown)) == ("b", "3/4")


def test_a_cluster_that_changes_between_two_pieces_is_counted_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_module, "HOSTS_AT_ONCE", 1)
    for job_id in ("a", "b"):
        submit(cluster, job_id)
    pieces = counting(cluster, NOW)
    next(pieces)  # jobs are counted, and h1
    submit(cluster, "c")
    fold(cluster, ev.JobEnding(job_id="b", at=Wall(49_992.0), outcome=JobState.EXPIRED))
    fold(cluster, ev.JobEnded(job_id="b", at=Wall(49_992.0), state=JobState.EXPIRED))
    fold(cluster, ev.HostRemoved(host="h2", at=Wall(2.0), by="ann"))
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            found = done.value
            break
    assert {state: count for state, count in found.jobs.items() if count} == {"QUEUED": 2}
    assert sum(found.hosts.values()) == 2 and found.gpus[GpuState.FREE] == 8
    assert found.waiting == 2  # the queue as it is by then


def test_gpus_that_nobody_can_read_are_unhealthy_unless_they_are_held(cluster: Cluster) -> None:
    place(cluster)
    blind = Inventory(64, 1 << 40, tuple(gpu("h1", i) for i in range(4)), gpu_problem="the driver hangs")
    fold(
        cluster,
        ev.HostJoined(host="h1", at=Wall(3.0), address="x", boot_id="b", agent_version=VERSION, inventory=blind),
    )
    found = overview(cluster, NOW)
    assert (found.gpus[GpuState.USED], found.gpus[GpuState.UNHEALTHY]) == (2, 2)
    assert [(each.kind, each.message) for each in told(cluster)] == [(Kind.GPU_FAULT, "the driver hangs")]


def test_share_of_a_fenced_worker_is_withheld_until_its_host_frees_it(cluster: Cluster) -> None:
    place(cluster)
    fold(cluster, ev.WorkerFenced(job_id="a", at=Wall(5.0), worker="workerpool0-0"))
    found = overview(cluster, NOW)
    assert (found.gpus[GpuState.QUARANTINED], found.quarantined) == (2, {"h1": 1})
    assert [each.kind for each in told(cluster)] == [Kind.QUARANTINED]
    fold(cluster, ev.HostPlaceFreed(host="h1", at=Wall(6.0), place="a/0"))
    assert overview(cluster, NOW).quarantined == {}


def test_the_first_trouble_of_a_host_names_it(cluster: Cluster) -> None:
    fold(cluster, ev.HostDraining(host="h1", at=Wall(2.0), reason="kernel", by="ann"))
    assert host_state(cluster, cluster.hosts["h1"]) is HostState.DRAINING
    fold(cluster, ev.HostDrained(host="h1", at=Wall(3.0)))
    assert host_state(cluster, cluster.hosts["h1"]) is HostState.DRAINED
    fold(cluster, ev.HostShutdownBegan(host="h1", at=Wall(4.0)))
    assert host_state(cluster, cluster.hosts["h1"]) is HostState.GOING_DOWN
    cluster.presence_of("h1").liveness = Liveness.SUSPECT
    assert host_state(cluster, cluster.hosts["h1"]) is HostState.SILENT
    fold(cluster, ev.HostLost(host="h1", at=Wall(5.0), silent_s=80.0))
    assert host_state(cluster, cluster.hosts["h1"]) is HostState.LOST
    fold(cluster, ev.HostRefused(host="h1", at=Wall(6.0), agent_version="9.0", problem="too new"))
    assert host_state(cluster, cluster.hosts["h1"]) is HostState.REFUSED


def test_silent_host_is_told_first_with_the_time_since_when(cluster: Cluster) -> None:
    fold(cluster, ev.HostCordoned(host="h1", at=Wall(2.0), reason="fan", by="ann"))
    presence = cluster.presence_of("h2")
    presence.liveness, presence.last_seen = Liveness.SUSPECT, Mono(955.0)
    first, second = told(cluster)
    assert (first.kind, first.subject, first.since) == (Kind.HOST_SILENT, "host/h2", 50_000.0 - 45.0)
    assert (second.kind, second.message) == (Kind.HOST_CORDONED, "cordoned: fan")


def test_jobs_are_told_only_to_those_who_may_see_them(cluster: Cluster) -> None:
    submit(cluster, at=50_000.0 - 3600.0)
    waits = told(cluster)
    assert [(each.kind, each.subject) for each in waits] == [(Kind.JOB_WAITS, "job/a")]
    assert waits[0].since == 50_000.0 - 3600.0
    assert told(cluster, sees=False) == []


def test_job_that_waits_for_a_minute_is_no_matter(cluster: Cluster) -> None:
    submit(cluster, at=50_000.0 - 60.0)
    assert told(cluster) == []
    found = overview(cluster, NOW)
    assert (found.waiting, found.oldest_since, found.smallest_gpus) == (1, 50_000.0 - 60.0, GANG.gpus)


def test_hang_that_goes_on_is_told_and_one_that_is_over_is_not(cluster: Cluster) -> None:
    place(cluster)
    rendezvous = Rendezvous("10.0.0.1", 20001, "s", ("10.0.0.1",) * 3, (1, 2, 3))
    fold(cluster, ev.GangLaunched(job_id="a", at=Wall(49_992.0), generation=1, rendezvous=rendezvous))
    started = {index: Started(7, (8,)) for index in range(len(GANG.members))}
    fold(cluster, ev.GangStarted(job_id="a", at=Wall(49_993.0), generation=1, started=started))
    fold(
        cluster,
        ev.HangNoticed(
            job_id="a",
            at=Wall(49_999.0),
            generation=1,
            since=Wall(49_950.0),
            rule=Rule.GPUS_IDLE,
            sentence="no rank has moved for 49 s",
            suspects=(),
            hosts=(),
        ),
    )
    summary = summary_of(cluster, cluster.jobs["a"], QueueView(cluster, [], {}), NOW)
    assert [each.message for each in told(cluster)] == [summary.headline]
    assert summary.health.startswith("Hangs since ") and summary.headline.endswith(": holdfast job restart a")
    fold(cluster, ev.HangOver(job_id="a", at=Wall(49_999.5), note="it moves"))
    assert told(cluster) == []
    cluster.jobs["a"].budgets.hang_restarts = 2
    (message,) = [each.message for each in told(cluster)]
    assert "it was relaunched 2 times in a row because it hung, 3 at most" in message
    assert message.endswith("; see where it hung: holdfast job hangs a")


def test_certificates_letters_and_versions_have_a_line_each(cluster: Cluster) -> None:
    fold(
        cluster,
        ev.HostJoined(
            host="h1",
            at=Wall(3.0),
            address="x",
            boot_id="b",
            agent_version="1.1.0",
            inventory=Inventory(64, 1 << 40),
        ),
    )
    ends = {"own": NOW.wall + 2 * DAY_S, "ca": NOW.wall - 1.0}
    found = told(cluster, certificate_ends=ends, notifications_waiting=7, receivers_failing=1)
    assert [(each.kind.name, each.message) for each in found] == [
        ("CERTIFICATE", "the own certificate ends in 2 days"),
        ("CERTIFICATE", "the ca certificate has ended"),
        ("NOTIFICATIONS", "1 receiver can't be reached; 7 notifications wait"),
        ("VERSIONS", "agents of another version than the controller's 1.2.0: 1 of 1.1.0"),
    ]


def test_of_each_kind_no_more_is_told_than_people_read() -> None:
    cluster = Cluster()
    for number in range(30):
        fold(
            cluster,
            ev.HostJoined(
                host=f"h{number:02}",
                at=Wall(1.0),
                address="x",
                boot_id="b",
                agent_version=VERSION,
                inventory=Inventory(1, 1),
            ),
        )
        fold(cluster, ev.HostLost(host=f"h{number:02}", at=Wall(2.0), silent_s=80.0))
    facts = ControllerStatus(VERSION, {})
    found, more = alerts(cluster, overview(cluster, NOW), lambda _: True, {}, facts, NOW)
    assert (len(found), more) == (MOST_OF_A_KIND, 30 - MOST_OF_A_KIND)


def test_gauges_name_hosts_only_where_something_is_wrong(cluster: Cluster) -> None:
    place(cluster)
    submit(cluster, "b", at=49_000.0)
    fold(cluster, ev.WorkerFenced(job_id="a", at=Wall(5.0), worker="workerpool0-0"))
    presence = cluster.presence_of("h3")
    presence.liveness, presence.session, presence.last_seen = Liveness.SUSPECT, None, Mono(900.0)
    series = gauges(cluster, NOW)
    assert series.of(fam.HOST_SILENT) == {("h3",): 100.0}
    assert series.of(fam.HOST_QUARANTINED) == {("h1",): 1.0}
    assert series.of(fam.SESSIONS) == {(): 2.0}
    assert series.of(fam.QUEUE_OLDEST) == {(): 1000.0}
    assert series.of(fam.QUEUE_SMALLEST) == {(): float(GANG.gpus)}
    assert series.of(fam.LOG_EVENTS) == {(): float(cluster.sequence)}
    assert series.of(fam.AGENTS) == {(VERSION,): 3.0}


def test_nothing_waits_so_no_smallest_job_is_told(cluster: Cluster) -> None:
    series = gauges(cluster, NOW)
    assert series.of(fam.QUEUE_SMALLEST) == {} and series.of(fam.QUEUE_OLDEST) == {(): 0.0}
