"""Recoveries and hangs as protobuf enums and messages."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.hang.judge.finding import Rule
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.recovery import Budget, EndReason, RankName, Recover, Related


def end_reason_to_proto(reason: EndReason) -> job_pb2.EndReason.ValueType:
    """The reason that a generation or an attempt ended with."""
    return job_pb2.EndReason.Value(f"END_REASON_{reason.name}")


def recovery_kind_to_proto(recover: Recover | None) -> job_pb2.RecoveryKind.ValueType:
    """The kind of recovery; unspecified for None."""
    return job_pb2.RecoveryKind.Value(f"RECOVERY_KIND_{recover.name if recover else 'UNSPECIFIED'}")


def budget_to_proto(budget: Budget) -> job_pb2.FailureBudget.ValueType:
    """The budget that a failure is charged to; unspecified where none is."""
    return job_pb2.FailureBudget.Value(f"FAILURE_BUDGET_{budget.value or 'UNSPECIFIED'}")


def hang_rule_to_proto(rule: Rule) -> job_pb2.HangRule.ValueType:
    """The rule that found a hang."""
    return job_pb2.HangRule.Value(f"HANG_RULE_{rule.name}")


def hang_outcome_to_proto(outcome: HangOutcome | None) -> job_pb2.HangOutcome.ValueType:
    """The outcome of a hang; unspecified while it is open."""
    return job_pb2.HangOutcome.Value(f"HANG_OUTCOME_{outcome.value if outcome else 'UNSPECIFIED'}")


def rank_names_to_proto(ranks: Iterable[RankName]) -> list[job_pb2.RankName]:
    """The ranks with their workers, in the order given."""
    return [job_pb2.RankName(worker=each.worker, rank=each.rank) for each in ranks]


def related_to_proto(related: Related) -> job_pb2.Related:
    """The ranks, host, job or user that a recovery is about."""
    return job_pb2.Related(
        ranks=rank_names_to_proto(related.ranks), host=related.host, job=related.job, user=related.user
    )
