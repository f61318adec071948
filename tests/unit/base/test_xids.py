"""What an Xid asks for."""

from __future__ import annotations

import pytest

from holdfast._base.xids import TABLE, XidAction, action_of


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        (13, XidAction.RESTART),
        (31, XidAction.RESTART),
        (94, XidAction.RESTART),
        (48, XidAction.REPLACE),
        (79, XidAction.REPLACE),
        (119, XidAction.REPLACE),
        (43, XidAction.IGNORE),
        (45, XidAction.IGNORE),
        (63, XidAction.IGNORE),
        (999, XidAction.IGNORE),
    ],
)
def test_xid_asks_for_what_the_catalogue_says(xid: int, action: XidAction) -> None:
    assert action_of(xid) is action


def test_what_our_own_kill_logs_is_never_anybody_s_fault() -> None:
    assert not {43, 45} & TABLE.keys()
