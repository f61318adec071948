"""What an Xid asks for."""

from __future__ import annotations

import pytest

from holdfast._base.xids import TABLE, Repair, XidAction, action_of, in_words, repair_of


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        (13, XidAction.RESTART),
        (31, XidAction.RESTART),
        (94, XidAction.RESTART),
        (48, XidAction.REPLACE),
        (79, XidAction.REPLACE),
        (119, XidAction.REPLACE),
        (144, XidAction.RESTART),
        (150, XidAction.RESTART),
        (43, XidAction.IGNORE),
        (45, XidAction.IGNORE),
        (63, XidAction.IGNORE),
        (999, XidAction.IGNORE),
    ],
)
def test_xid_asks_for_what_the_catalogue_says(xid: int, action: XidAction) -> None:
    assert action_of(xid) is action


@pytest.mark.parametrize(
    ("xid", "fatal", "repair"),
    [
        (145, False, None),
        (145, True, Repair.RESET),
        (79, False, Repair.REBOOT),
        (79, True, Repair.REBOOT),
        (31, True, None),
        (999, True, None),
    ],
)
def test_xid_of_nvlink_asks_for_a_repair_where_it_is_fatal(xid: int, fatal: bool, repair: Repair | None) -> None:
    assert repair_of(xid, fatal=fatal) is repair
    assert in_words(145) == "Xid 145 (NVLink error)"


def test_what_our_own_kill_logs_is_never_anybody_s_fault() -> None:
    assert not {43, 45} & TABLE.keys()
