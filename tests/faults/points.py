"""Every failpoint of the daemons, and what has to have happened in the canonical story for it to be passed."""

from __future__ import annotations

from dataclasses import dataclass

NEW_CONTROLLER = "controller.commit.after"
DEAD_SHIM = "shim.started.after"


@dataclass(frozen=True, slots=True)
class Point:
    """One place in a daemon. ``after`` is a point whose death leads there; empty: the story does so by itself."""

    name: str
    after: str = ""
    in_story: bool = True
    """False for what only a long log or a deleted job reaches; another test does."""

    @property
    def actor(self) -> str:
        """``controller``, ``agent`` or ``shim``."""
        return self.name.partition(".")[0]


POINTS = (
    # The controller: its term, each transaction, whatever leaves it.
    Point("controller.epoch.before", after=NEW_CONTROLLER),
    Point("controller.epoch.after", after=NEW_CONTROLLER),
    Point("controller.commit.before"),
    Point("controller.commit.written"),
    Point("controller.commit.after"),
    Point("controller.snapshot.before", in_story=False),
    Point("controller.snapshot.written", in_story=False),
    Point("controller.sweep.before", in_story=False),
    Point("controller.sweep.written", in_story=False),
    Point("controller.sweep.after", in_story=False),
    Point("controller.reply.before"),
    Point("controller.send.before"),
    Point("controller.send.after"),
    Point("controller.welcome.before", after=NEW_CONTROLLER),
    Point("controller.assignment.before"),
    Point("controller.exit_ack.before"),
    # The agent: what it remembers, the shims that it forks and orders about, whatever leaves it.
    Point("agent.epoch.before", after=NEW_CONTROLLER),
    Point("agent.epoch.written", after=NEW_CONTROLLER),
    Point("agent.epoch.synced", after=NEW_CONTROLLER),
    Point("agent.epoch.after", after=NEW_CONTROLLER),
    Point("agent.hello.before", after=NEW_CONTROLLER),
    Point("agent.hello.after", after=NEW_CONTROLLER),
    Point("agent.write.before"),
    Point("agent.write.after"),
    Point("agent.attempt.before"),
    Point("agent.attempt.after"),
    Point("agent.fork.before"),
    Point("agent.fork.after"),
    Point("agent.assign.before"),
    Point("agent.assign.after"),
    Point("agent.launch.before"),
    Point("agent.launch.after"),
    Point("agent.stop.before"),
    Point("agent.stop.after"),
    Point("agent.report.before"),
    Point("agent.report.after"),
    Point("agent.exit.before"),
    Point("agent.exit.after"),
    Point("agent.acked.before"),
    Point("agent.acked.after"),
    Point("agent.note.before"),
    Point("agent.note.written"),
    Point("agent.note.after"),
    Point("agent.ends.before", after=DEAD_SHIM),
    Point("agent.ends.written", after=DEAD_SHIM),
    Point("agent.ends.after", after=DEAD_SHIM),
    Point("agent.forget.before"),
    Point("agent.forget.after"),
    Point("agent.output.before", in_story=False),
    Point("agent.output.after", in_story=False),
    # The shim: its directory, the intent, the forks, each sync, what it tells.
    Point("shim.assign.before"),
    Point("shim.assign.after"),
    Point("shim.intent.before"),
    Point("shim.intent.synced"),
    Point("shim.intent.after"),
    Point("shim.sync.before"),
    Point("shim.sync.after"),
    Point("shim.fork.before"),
    Point("shim.fork.after"),
    Point("shim.started.before"),
    Point("shim.started.after"),
    Point("shim.exit.before"),
    Point("shim.exit.after"),
    Point("shim.term.before"),
    Point("shim.term.after"),
    Point("shim.quit.before"),
    # Passed in each turn of its loop: tests/integration/shim/test_peers.py.
    Point("shim.clock.after", in_story=False),
    Point("shim.heard.after", in_story=False),
    # Of jobs with warm starts alone: tests/integration/shim/warm/test_warm_release.py.
    Point("shim.parked.after", in_story=False),
    Point("shim.park.before", in_story=False),
    Point("shim.keeper.before", in_story=False),
    Point("shim.keeper.after", in_story=False),
    Point("shim.release.before", in_story=False),
    Point("shim.handover.before", in_story=False),
    Point("shim.handover.after", in_story=False),
    Point("shim.release.after", in_story=False),
    # Of jobs whose ranks go on in process: tests/integration/shim/warm/test_in_process.py.
    Point("shim.unwind.after", in_story=False),
    Point("shim.survivor.after", in_story=False),
)
BY_NAME = {point.name: point for point in POINTS}
