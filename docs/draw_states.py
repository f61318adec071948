"""Draw ``docs/internals/states.md`` from the transition tables: ``python docs/draw_states.py [--check]``."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from holdfast_agent.core.worker import states
from holdfast_controller.core.model import job_state

PAGE = Path(__file__).with_name("internals") / "states.md"
HEAD = """# States
Generated from the transition tables by `python docs/draw_states.py`; a test keeps this page current. A transition
that is not shown here is an error in the code.
"""


State = TypeVar("State", bound=enum.Enum)


def diagram(table: Mapping[State, Iterable[State]], start: State) -> str:
    """One table as a Mermaid state diagram."""
    order = list(type(start))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.name}"]
    for state, following in table.items():
        targets = sorted(following, key=order.index)
        lines += [f"    {state.name} --> {target.name}" for target in targets]
        if not targets:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join([*lines, "```"])


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            "## Job (`controller/holdfast_controller/core/model/job_state.py`)",
            diagram(job_state.TRANSITIONS, job_state.JobState.QUEUED),
            "",
            "## A worker on its host (`agent/holdfast_agent/core/worker/states.py`)",
            diagram(states.TRANSITIONS, states.StateKind.EMPTY),
            "",
        ]
    )


if __name__ == "__main__":
    if "--check" in sys.argv and PAGE.read_text() != page():
        sys.exit("docs/internals/states.md is out of date: run python docs/draw_states.py")
    if "--check" not in sys.argv:
        PAGE.write_text(page())
