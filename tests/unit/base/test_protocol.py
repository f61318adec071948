"""Which versions work together, and what is said to those that don't."""

from __future__ import annotations

import pytest

from holdfast._session import protocol
from holdfast._session.protocol import Speaker, mismatch


@pytest.mark.parametrize(
    ("controller", "agent", "works"),
    [
        (1, 1, True),
        (2, 1, True),
        (1, 2, True),
        (2, 0, True),
        (0, 2, True),
        (3, 0, False),
        (0, 3, False),
        (3, 1, False),
        (1, 3, False),
        (7, 8, True),
        (7, 9, False),
    ],
)
def test_neighbours_work_together_and_no_others(controller: int, agent: int, works: bool) -> None:
    found = mismatch(Speaker("2.0", controller), Speaker("1.0", agent), "host-0")
    assert (found is None) is works


def test_the_sentence_names_both_sides_and_whom_to_upgrade() -> None:
    old = mismatch(Speaker("0.3", 3), Speaker("0.1", 0), "host-0")
    assert str(old) == (
        "The agent of host-0 is 0.1 (protocol 1), the controller is 0.3 (protocol 3): they are too far apart. "
        "Upgrade the agent of host-0; what runs there runs on."
    )
    new = mismatch(Speaker("", 0), Speaker("0.3", 3), "host-0")
    assert str(new) == (
        "The agent of host-0 is 0.3 (protocol 3), the controller is of an unknown version (protocol 1): they are "
        "too far apart. Upgrade the controller first; what runs there runs on."
    )


def test_this_version_works_with_those_that_did_not_say_theirs() -> None:
    assert protocol.agree(protocol.PROTOCOL, protocol.UNSAID)
