"""What NCCL's RAS says of ranks that lag, in the words that its releases have used."""

from __future__ import annotations

from holdfast.hang.pipeline.nccl_ras import Mismatch, mismatch

HEAD = """NCCL version 2.27.3
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

"""
GROUPS = (
    HEAD
    + """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 10.0.0.1
  Rank 2 -- GPU 2 managed by process 483074 on node 10.0.0.1
  Rank 7 -- GPU 7 managed by process 483079 on node 10.0.0.1
"""
)
ALONE = (
    HEAD
    + """#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 5 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
"""
)


def test_ranks_that_lag_are_those_below_the_highest_operation() -> None:
    assert mismatch(GROUPS, 32) == Mismatch(((6650, 26), (6649, 6)), frozenset({0, 2, 7}))
    assert mismatch(ALONE, 8) == Mismatch(((64, 7), (60, 1)), frozenset({5}))


def test_rank_that_launched_nothing_lags() -> None:
    text = ALONE.replace("has launched up to operation 60", "has not launched any operations")
    assert mismatch(text, 8) == Mismatch(((64, 7), (0, 1)), frozenset({5}))


def test_rank_that_is_ahead_does_not_lag() -> None:
    text = ALONE.replace("operation 60", "operation 65")
    assert mismatch(text, 8) == Mismatch(((65, 1), (64, 7)), frozenset())


def test_communicators_of_a_part_of_the_job_and_agreeing_ones_say_nothing() -> None:
    assert mismatch(ALONE, 32) is None
    assert mismatch(HEAD, 32) is None
    assert mismatch("", 8) is None
    assert mismatch(ALONE.replace(" 64", " " + "6" * 5000).replace("7 ranks", "7" * 5000 + " ranks"), 8) is None
    assert mismatch(HEAD + ALONE.removeprefix(HEAD).replace("#0-0", "  0-0"), 8) is None
    both = ALONE + GROUPS.removeprefix(HEAD).replace("#0-0", "#1-0")
    assert mismatch(both, 32) == mismatch(GROUPS, 32)
