"""How hostile a world is: drawn once per seed, so that some worlds are calm and some brutal."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Weights:
    """Probabilities for each message, commit, process, … and times in seconds. The moves of a plan come apart."""

    latency_s: float = 0.005
    slow: float = 0.0
    """A message takes seconds."""
    drop: float = 0.0
    """A message is lost, and its stream with it; of calls only the message."""
    duplicate: float = 0.0
    commit_s: float = 0.002
    commit_slow: float = 0.0
    commit_unanswered: float = 0.0
    commit_fails: float = 0.0
    unkillable: float = 0.0
    """A process outlives KILL for a while."""
    deaf: float = 0.0
    """A process ignores TERM."""
    helpers: float = 0.0
    """A rank leaves a process behind."""
    reap_slow: float = 0.0
    """An exit is recorded a while after it."""
    user_error: float = 0.0
    hang: float = 0.0
    cannot_prepare: float = 0.0
    host_unfit: float = 0.0
    epilog_fails: float = 0.0
    gpu_slow: float = 0.0
    """A GPU is not free at once."""
    blind: float = 0.0
    """The GPU driver doesn't answer a look."""
    crash: float = 0.0
    """A process dies right before an effect of its own."""

    def calm(self) -> Weights:
        """Once everything is healed."""
        return Weights()


def draw(dice: random.Random) -> Weights:
    """The weights of one world: each fault is off in half of the worlds, and rare or frequent in the others."""
    if dice.random() < 0.1:
        return Weights()
    scale = dice.choice([0.3, 1.0, 3.0])
    most = Weights(
        slow=0.01,
        drop=0.002,
        duplicate=0.02,
        commit_slow=0.05,
        commit_unanswered=0.002,
        commit_fails=0.002,
        unkillable=0.05,
        deaf=0.1,
        helpers=0.1,
        reap_slow=0.1,
        user_error=0.1,
        hang=0.05,
        cannot_prepare=0.01,
        host_unfit=0.01,
        epilog_fails=0.01,
        gpu_slow=0.1,
        blind=0.05,
        crash=0.0005,
    )
    drawn = {
        field.name: min(getattr(most, field.name) * scale, 0.5) if dice.random() < 0.5 else 0.0
        for field in fields(Weights)
        if not field.name.endswith("_s")
    }
    return replace(Weights(), latency_s=dice.choice([0.0005, 0.005, 0.1]), **drawn)
