"""A step that is read from counts, or learned, is for display and the ledger: no rule and no budget looks at it."""

from __future__ import annotations

import ast
from pathlib import Path

from holdfast.hang.pipeline.features import OutputFeatures

ROOT = Path(__file__).parents[4]
SHOWN = {"bar_step", "step_total"}
READERS = {
    "agent/holdfast_agent/shell/hangs/feature_reporter.py",  # series
    "client/holdfast/cli/pages/job_page.py",
    "client/holdfast/cli/pages/job_tables.py",
    "client/holdfast/_api/job_view.py",
    "controller/holdfast_controller/core/goodput/progress.py",  # the ledger
    "controller/holdfast_controller/core/lifecycle/slowness.py",  # a sentence and a notification
    "controller/holdfast_controller/core/views/training.py",
    "controller/holdfast_controller/shell/convert/features_from_proto.py",
}
LEARNED = {
    "client/holdfast/hang/pipeline/learned_step.py",
    "client/holdfast/hang/pipeline/step_count.py",
    "client/holdfast/hang/worker_watch.py",
}


def sources(*words: str) -> dict[str, ast.AST]:
    """Our files in which any of ``words`` stands: to parse all takes many seconds."""
    paths = [path for part in ("agent", "client/holdfast", "controller") for path in (ROOT / part).rglob("*.py")]
    texts = {path: path.read_text() for path in paths if not path.stem.endswith("_pb2")}
    return {
        str(path.relative_to(ROOT)): ast.parse(text)
        for path, text in texts.items()
        if any(word in text for word in words)
    }


def test_only_views_the_ledger_and_series_read_a_step_of_counts() -> None:
    assert set(OutputFeatures.__dataclass_fields__) >= SHOWN
    found = {
        path
        for path, tree in sources(*SHOWN).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in SHOWN and isinstance(node.ctx, ast.Load)
    }
    assert found == READERS


def test_only_the_worker_watch_reads_what_counts_and_learns() -> None:
    modules = {"holdfast.hang.pipeline.learned_step", "holdfast.hang.pipeline.step_count"}
    found = {
        path
        for path, tree in sources("learned_step", "step_count").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in modules
    }
    assert found <= LEARNED and "client/holdfast/hang/worker_watch.py" in found
