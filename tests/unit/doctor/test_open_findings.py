"""Findings that stand: reported at once, over only after a while, never flapping."""

from __future__ import annotations

from holdfast.doctor import certificates
from holdfast.doctor.findings import Finding, Status, error, from_view, ok, view, warning
from holdfast.doctor.open_findings import OpenFindings, notable

FULL = error("disk.state_dir", "3 MiB free", "No worker starts here.", notify=True, keeps_work_away=True)
NEARLY = warning("disk.state_dir", "9 GiB free", "It gets full.", notify=True)
SLOW = error("disk.state_dir_sync", "2500 ms", "Exits wait.")
SWAP = warning("memory.swap", "4096 MiB", "It crawls.")


class Clock:
    def __init__(self) -> None:
        self.open = OpenFindings(over_s=180.0)
        self.now = 0.0

    def round(self, *found: Finding, kind: str = "quick", after: float = 60.0) -> list[Finding]:
        self.now += after
        self.open.take(kind, found, wall=1e9 + self.now, mono=self.now)
        return [finding for finding, _ in self.open.all()]


def test_a_finding_is_reported_by_its_first_round() -> None:
    assert Clock().round(FULL) == [FULL]


def test_a_finding_is_over_only_after_a_while_without_it() -> None:
    clock = Clock()
    clock.round(FULL)
    assert clock.round() == [FULL] and clock.round() == [FULL]
    assert clock.round() == []


def test_a_finding_that_comes_and_goes_stands_since_its_first_time() -> None:
    clock = Clock()
    for _ in range(10):
        assert clock.round(FULL) == [FULL]
        assert clock.round() == [FULL]
    assert clock.open.all() == [(FULL, 1e9 + 60.0)]


def test_rounds_of_one_kind_leave_findings_of_the_other_alone() -> None:
    clock = Clock()
    clock.round(SLOW, kind="whole")
    for _ in range(8):
        assert clock.round() == [SLOW]
    assert clock.round(kind="whole") == []


def test_of_one_check_the_worst_finding_is_reported() -> None:
    clock = Clock()
    memory = error("disk.state_dir", "lies in memory", "Nothing survives a reboot.")
    assert clock.round(FULL) == [FULL]
    assert clock.round(memory, kind="whole", after=0.0) == [FULL]
    assert [clock.round() for _ in range(3)][-1] == [memory]


def test_a_finding_that_gets_worse_is_reported_as_such() -> None:
    clock = Clock()
    assert clock.round(NEARLY) == [NEARLY]
    assert clock.round(FULL) == [FULL]
    assert clock.round(NEARLY) == [NEARLY]


def test_errors_are_notable_and_of_warnings_those_that_get_worse() -> None:
    assert notable([ok("disk.log_dir", "plenty"), FULL, NEARLY, SLOW, SWAP]) == [FULL, NEARLY, SLOW]


def test_findings_come_back_from_the_doctors_json() -> None:
    every = [FULL, NEARLY, SLOW, SWAP, Finding("time.ntp", Status.UNKNOWN, "the kernel does not say")]
    assert from_view(view("h1", "1", every)) == every


def test_a_certificate_that_should_have_been_renewed_is_notable() -> None:
    late = certificates.CertificateFacts(
        "ca", "cert", "key", now=100.0, ends_at=110.0, renew_at=20.0, ca_ends_at=1e12, renews=True
    )
    found = [each.check for each in notable(certificates.check(late, again="join again"))]
    assert found == ["certificates.end"]
