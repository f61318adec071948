"""Switches of the simulated parts, by which a planted bug makes them do what they never may."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Bugs:
    """All off in a sound world. Bugs of the cores are planted in the cores: see ``planted``."""

    acts_before_commit: bool = False
    """The controller's driver."""
    answers_unconfirmed: bool = False
    """The controller's driver, where there is nothing to write."""
    ignores_epoch: bool = False
    """The database."""
    forks_before_intent: bool = False
    """The shim."""
    tells_before_sync: bool = False
    """The shim."""
    invents_codes: bool = False
    """The agent's files."""
