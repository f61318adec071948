"""Values of secrets on their way from the controller to the shims: in memory, and nowhere else.

They come with the order to run, so with every launch, and again whenever the agent says hello. What is taken
out of a message here is in no other object of the agent: neither the core nor any log line can show it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast._base.secret import Secret
from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2


class SecretValues:
    """The secret values of each worker's newest order, by variable."""

    def __init__(self) -> None:
        self._held: dict[WorkerId, tuple[int, dict[str, Secret]]] = {}

    def take(self, order: agent_pb2.Assignment) -> None:
        """Keep the order's values in place of earlier ones, and leave none in it."""
        key = WorkerId(order.job_id, order.worker)
        generation, _ = self._held.pop(key, (0, {}))
        values = {each.name: Secret(each.value) for each in order.launch.secrets}
        if values and order.generation >= generation:
            self._held[key] = order.generation, values
        if order.HasField("launch"):
            order.launch.ClearField("secrets")

    def of(self, key: WorkerId, generation: int) -> Mapping[str, Secret]:
        """The secret values for a launch, by variable; empty where none have come."""
        held, values = self._held.get(key, (0, {}))
        return values if held == generation else {}
