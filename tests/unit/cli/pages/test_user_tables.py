"""What admins see of the audit log."""

from __future__ import annotations

import pytest

from holdfast.cli.cluster.user_tables import write_audit
from holdfast.cli.kit import table
from holdfast.v1 import access_pb2


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("There is no host 'h9'.", "There is no host 'h9'."),
        ("The request has 1 problem:\n  ttl: too long (use 30m)", "ttl: too long (use 30m)"),
        ("The job has 2 problems:\n  a: wrong\n  b: worse", "a: wrong; b: worse"),
    ],
)
def test_why_is_the_problem_and_not_the_count_of_problems(
    capsys: pytest.CaptureFixture[str], message: str, shown: str
) -> None:
    write_audit([access_pb2.AuditEntry(who="user/ann", outcome="INVALID_ARGUMENT", message=message)], wide=False)
    assert capsys.readouterr().out.splitlines()[1].endswith(f"  {shown}")


def test_the_wide_table_leaves_nothing_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda: 80)
    entry = access_pb2.AuditEntry(who="user/ann", outcome="NOT_FOUND", message="There is no host " + "h" * 60)
    write_audit([entry], wide=False)
    assert "…" in capsys.readouterr().out
    write_audit([entry], wide=True)
    assert entry.message in capsys.readouterr().out
