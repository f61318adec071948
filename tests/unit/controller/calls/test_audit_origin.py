"""A caller without a certificate, who has as many addresses as a /64 network of IPv6."""

from __future__ import annotations

from pathlib import Path

from holdfast_controller.core.access.audit import Entry, Trail
from holdfast_controller.shell.base.audit import Audit


def test_refusals_of_one_network_of_ipv6_share_an_allowance(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    for number in range(100):
        entry = Entry(1.0, "", f"2001:db8::{number:x}", "EnrolmentService/Enrol", "", "UNAUTHENTICATED", "no")
        audit.refused(entry, Trail.UNKNOWN)
    assert audit.only_counted == 80
    audit.refused(Entry(1.0, "", "2001:db8:1::1", "EnrolmentService/Enrol"), Trail.UNKNOWN)
    assert audit.only_counted == 80
