"""Notifications of the cluster: gathered, held back, never a flood, none lost. All times are virtual."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.unit.controller.examples import EVENTS

from holdfast._base.health import Health
from holdfast._base.xids import Repair
from holdfast_controller.core import digest
from holdfast_controller.core import events as ev
from holdfast_controller.core.digest import SETTLE_S, SPACING_S, Batch, Digest
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.messages.cluster import CLUSTER_TELLING, news_of
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.accounts.subscription import ClusterNotice
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Gpu, GpuFault, Inventory
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.core.views.certificate_ends import warnings_due

DAY_S = 86_400.0


def entry(number: int, subject: str = "host/a", kind: str = "HOST_LOST", sink: str = "cluster:ops") -> OutboxEntry:
    return OutboxEntry(number, sink, subject, kind, "{}")


def sent(batches: Iterable[Batch]) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Of each message its receiver, and subject, newest entry and changes of its lines."""
    return [
        (batch.sink, [(line.newest.subject, line.newest.sequence, line.changes) for line in batch.lines])
        for batch in batches
    ]


def test_what_happens_together_is_one_message() -> None:
    gathered = Digest()
    for number in range(100):
        assert gathered.put(entry(number, f"host/{number}"), "lost", 0.05 * number) == []
    assert gathered.next_due() == SETTLE_S
    assert gathered.take(SETTLE_S - 0.1) == []
    (batch,) = gathered.take(SETTLE_S)
    assert [line.newest.sequence for line in batch.lines] == list(range(100))
    assert (len(gathered), gathered.next_due()) == (0, None)


def test_the_next_message_waits_a_minute_and_for_the_last_one() -> None:
    gathered = Digest()
    gathered.put(entry(1, "host/a"), "lost", 0)
    gathered.take(SETTLE_S)
    gathered.put(entry(2, "host/b"), "lost", 11)
    assert gathered.next_due() is None, "the first may still fail, and be tried again for hours"
    gathered.settled("cluster:ops")
    assert gathered.next_due() == SETTLE_S + SPACING_S
    assert sent(gathered.take(SETTLE_S + SPACING_S)) == [("cluster:ops", [("host/b", 2, 1)])]


def test_a_flapping_host_is_in_a_dozen_messages_a_day_and_hides_no_other() -> None:
    gathered, number, messages = Digest(), 0, []
    now = 0.0
    while now < DAY_S:
        kind = "HOST_RETURNED" if number % 2 else "HOST_LOST"
        gathered.put(entry(number, "host/flaps", kind), f"{number}", now)
        if number == 500:
            gathered.put(entry(number + 1, "host/other"), "lost", now)
        for batch in gathered.take(now):
            messages.append((now, batch))
            gathered.settled(batch.sink)
        number, now = number + 2 if number == 500 else number + 1, now + 40.0
    flapping = [line for _, batch in messages for line in batch.lines if line.newest.subject == "host/flaps"]
    assert len(flapping) <= 12
    (other,) = [at for at, batch in messages for line in batch.lines if line.newest.subject == "host/other"]
    assert other - 500 * 40.0 <= 2 * SPACING_S
    assert sum(line.changes for line in flapping) > 0.7 * number, "those left out are counted"


def test_a_held_subject_keeps_its_first_and_its_newest_entry() -> None:
    gathered = Digest()
    gathered.put(entry(1), "lost", 0)
    gathered.take(SETTLE_S)
    gathered.settled("cluster:ops")
    assert gathered.put(entry(2), "back", 20) == []
    assert gathered.put(entry(3), "lost", 21) == []
    assert gathered.put(entry(4), "back", 22) == [entry(3)]
    assert gathered.next_due() == SETTLE_S + digest.FIRST_HOLD_S
    (batch,) = gathered.take(SETTLE_S + digest.FIRST_HOLD_S)
    assert batch.entries == [entry(2), entry(4)]
    assert (batch.lines[0].first, batch.lines[0].newest, batch.lines[0].changes) == (entry(2), entry(4), 3)


def test_a_quiet_subject_is_no_longer_held() -> None:
    gathered, now = Digest(), 0.0
    for number, pause in enumerate((0, 320, 620, 1e5)):
        now += pause
        gathered.put(entry(number), f"{number}", now)
        due = gathered.next_due()
        assert due is not None
        assert due == pytest.approx(now + SETTLE_S, abs=20)
        assert len(gathered.take(due)) == 1
        gathered.settled("cluster:ops")
    gathered.put(entry(9), "again", now + 20)
    assert gathered.next_due() == now + SETTLE_S + digest.FIRST_HOLD_S, "it begins again"


def test_the_same_again_and_an_end_of_nothing_are_left_out() -> None:
    gathered = Digest()
    well = entry(1, "host/a/gpus", "GPU_RECOVERED")
    assert gathered.put(well, "well", 0, answers=True) == [well]
    bad = entry(2, "host/a/gpus", "GPU_FAULT")
    assert gathered.put(bad, "GPU 3: lost", 0) == []
    gathered.take(SETTLE_S)
    gathered.settled("cluster:ops")
    again = entry(3, "host/a/gpus", "GPU_FAULT")
    assert gathered.put(again, "GPU 3: lost", 50) == [again]
    assert gathered.put(well, "well", 60, answers=True) == []
    assert len(gathered) == 1


def test_receivers_have_messages_of_their_own() -> None:
    gathered = Digest()
    gathered.put(entry(1, sink="cluster:a"), "lost", 0)
    gathered.put(entry(1, sink="cluster:b"), "lost", 0)
    assert [sink for sink, _ in sent(gathered.take(SETTLE_S))] == ["cluster:a", "cluster:b"]
    gathered.settled("cluster:a")
    gathered.put(entry(2, "host/b", sink="cluster:a"), "lost", 50)
    gathered.put(entry(2, "host/b", sink="cluster:b"), "lost", 50)
    assert [sink for sink, _ in sent(gathered.take(80))] == ["cluster:a"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "MAX_SUBJECTS", 3)
    gathered, now = Digest(), 0.0
    for number in range(20):
        gathered.put(entry(number, f"cause/{number}"), "x", now)
        now += 200
        gathered.take(now)
        gathered.settled("cluster:ops")
    assert len(gathered._receivers["cluster:ops"].subjects) <= 3


def test_the_history_of_a_cluster_is_told_in_the_words_of_the_contract() -> None:
    cluster, told = Cluster(), []
    for event in EVENTS:
        fold(cluster, event)
        job = cluster.jobs.get(getattr(event, "job_id", ""))
        news = news_of(event, message_of(event, job))
        if news is not None:
            assert isinstance(event, CLUSTER_TELLING)
            if not news.answers:
                told.append((news.kind.name, news.subject))
    assert set(told) >= {
        ("HOST_LOST", "host/h2"),
        ("HOST_RETURNED", "host/h2"),
        ("COMMON_CAUSE", "cause//data"),
        ("GPU_FAULT", "host/h1/gpu/0"),
        ("RESTORED", "controller/restore"),
        ("ORPHAN_FOUND", "host/h1/orphans"),
        ("CERTIFICATE", "certificate/ca"),
        ("HOSTS_SILENT", "cluster/hosts"),
    }


def test_cordons_of_an_admin_are_no_news_to_admins() -> None:
    def kind(by: str) -> ClusterNotice | None:
        news = news_of(ev.HostCordoned(host="a", at=Wall(0), reason="GPU 3: Xid 79", by=by), "a cordoned: GPU 3")
        return news.kind if news else None

    assert kind("ann") is None
    assert kind("holdfast") is ClusterNotice.HOST_CORDONED


def test_gpus_are_told_by_what_is_wrong_with_them() -> None:
    def told(*problems: str, unread: str = "") -> tuple[str, str]:
        gpus = tuple(Gpu(f"u{i}", i, "H100", 80, problem) for i, problem in enumerate(problems))
        joined = ev.HostJoined(
            host="a",
            at=Wall(0),
            address="a",
            boot_id="",
            agent_version="",
            inventory=Inventory(1, 1, gpus, 1, unread),
        )
        news = news_of(joined, "joined")
        assert news is not None
        return news.kind.name, news.message

    assert told("", "") == ("GPU_RECOVERED", "a: its GPUs are well again")
    assert told("", "Xid 79", "gone") == ("GPU_FAULT", "a: GPU 1: Xid 79; GPU 2: gone")
    assert told("", unread="NVML hangs") == ("GPU_FAULT", "a: NVML hangs")
    assert told(*["gone"] * 8)[1].endswith("GPU 3: gone and 4 more")


def test_the_end_of_what_was_notified_is_told_also_by_a_controller_that_has_not_told_of_it() -> None:
    def told(event: ev.Event) -> bool:
        news = news_of(event, "")
        assert news is not None
        return bool(Digest().put(entry(1, news.subject, news.kind.name), "", 0, answers=news.answers)) is False

    for had in (True, False):
        well = ev.HostJoined(
            host="a",
            at=Wall(0),
            address="a",
            boot_id="",
            agent_version="",
            inventory=Inventory(1, 1),
            had_gpu_problems=had,
        )
        assert told(well) is had
    for health in Health:
        passed = ev.HostCheckPassed(host="a", at=Wall(0), check="disk", health=health)
        assert told(passed) is (health is not Health.INFORM)


def test_a_faulty_gpu_is_told_and_its_repair_unless_an_admin_did_it() -> None:
    fault = GpuFault("Xid 95", Repair.RESET, Wall(0))
    broken = ev.GpuCondemned(host="a", at=Wall(0), gpu="u3", index=3, fault=fault)
    told = news_of(broken, message_of(broken, None))
    assert told is not None and (told.kind, told.subject) == (ClusterNotice.GPU_FAULT, "host/a/gpu/3")
    assert told.message == "a GPU 3: Xid 95; it gets no new work before a reset of the GPU"
    for by, kind in (("holdfast", ClusterNotice.GPU_RECOVERED), ("ann", None)):
        well = ev.GpuCleared(host="a", at=Wall(1), gpu="u3", index=3, causes=("Xid 95",), by=by, why="it was reset")
        news = news_of(well, message_of(well, None))
        assert (news.kind if news else None) is kind


def test_a_certificate_is_warned_of_once_for_each_of_its_times() -> None:
    ends = {"own": 100 * DAY_S, "ca": 100 * DAY_S}
    warned: list[ev.CertificateEnding] = []
    found = []
    for hour in range(60 * 24, 101 * 24):
        due = warnings_due(ends, warned, Wall(hour * 3600.0), DAY_S)
        warned += due
        found += [(event.certificate, (event.ends_at - event.at) / DAY_S) for event in due]
    assert found == [("ca", 30.0), ("own", 3.0), ("ca", 3.0), ("own", 0.0), ("ca", 0.0)]
    assert warnings_due({"own": 200 * DAY_S}, warned, Wall(198 * DAY_S), DAY_S) != [], "the next one is another"


def test_a_host_that_renews_its_certificate_is_never_warned_of() -> None:
    issued, warned, found = 0.0, list[ev.CertificateEnding](), []
    for hour in range(24 * 10):
        now = Wall(hour * 3600.0)
        if now - issued >= DAY_S * 2 / 3 and hour < 24 * 8:
            issued = now
        due = warnings_due({"host/a": issued + DAY_S}, warned, now, DAY_S)
        warned += due
        found += [message_of(event, None) for event in due]
    words = "see its agent's log for why it isn't renewed"
    assert found == [f"the certificate of a ends in 4 h: {words}", f"the certificate of a has ended: {words}"]
