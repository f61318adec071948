"""Hosts as they were printed last: of a thousand in a list few have changed since, but for when they were heard.

To print a host takes more than to make its message. A text is used again as long as the message is the same in all but
``last_seen``, which is put in each time.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast._sdk import json_view
from holdfast.v1 import host_pb2
from holdfast_controller.shell.rest.printed import text_of

KEPT = 4_096
"""Hosts; some 3 kB each."""
_NEVER_SEEN = text_of({"lastSeen": None})[1:-1]


class HostTexts:
    """The texts of one server, by host. What they say is the same for all who may see a host."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[bytes, str, str]] = OrderedDict()
        """The message, and its text before and after the time at which the host was heard."""

    def text(self, message: host_pb2.Host) -> str:
        """The message as JSON; its ``last_seen`` is taken out."""
        seen = f'"lastSeen":"{message.last_seen.ToJsonString()}"' if message.HasField("last_seen") else _NEVER_SEEN
        message.ClearField("last_seen")
        written = message.SerializeToString(deterministic=True)
        held = self._held.pop(message.name, None)  # by more than one thread
        if held is None or held[0] != written:
            # Within a text its quotes would be escaped, so it is found once.
            before, _, after = text_of(json_view.host(message)).partition(_NEVER_SEEN)
            held = written, before, after
        self._held[message.name] = held
        if len(self._held) > KEPT:
            self._held.popitem(last=False)
        return f"{held[1]}{seen}{held[2]}"
