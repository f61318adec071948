"""The store of a command that changes it while no controller is at work."""

from __future__ import annotations

from holdfast.errors import WrongState
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.store.store import Store, store_at


def store_alone(settings: ControllerConfig) -> Store:
    """The cluster's store; to open it raises ``WrongState`` where a controller leads, on whichever machine."""
    return store_at(settings.database, settings.database_url, _refuse)


def _refuse(leader: str) -> None:
    raise WrongState(
        f"The controller on {leader} is at work there.",
        fix="Stop every controller of the cluster first: systemctl stop holdfast-controller",
    )
