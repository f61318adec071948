"""Hosts as JSON: to print one takes more than to make its message, so each picture is printed once.

The time at which a host was heard is no part of a picture, and is put in each time.
"""

from __future__ import annotations

from holdfast._base.proto_values import timestamp
from holdfast._sdk import json_view
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.shell.calls.slices import TURNS
from holdfast_controller.shell.convert import kept_hosts
from holdfast_controller.shell.convert.kept_hosts import KeptHost
from holdfast_controller.shell.rest.printed import Listed, text_of, written

_NEVER_SEEN = text_of({"lastSeen": None})[1:-1]


def print_host(host: KeptHost) -> None:
    """Have the text of a picture at hand."""
    if host.text is None:
        # Within a text its quotes would be escaped, so it is found once.
        before, _, after = text_of(json_view.host(host.message)).partition(_NEVER_SEEN)
        host.text = before, after


def host_text(host: KeptHost, heard: Wall) -> str:
    """A picture that was printed, with the time at which the host was heard last."""
    assert host.text is not None, "print_host comes first"
    seen = f'"lastSeen":"{timestamp(heard).ToJsonString()}"' if heard else _NEVER_SEEN
    return f"{host.text[0]}{seen}{host.text[1]}"


async def listed_hosts(found: kept_hosts.Listed) -> Listed:
    """The answer for a page of hosts. Those of whom no more is new than that they were heard count as equal."""
    hosts, slices = found.hosts, TURNS.begin()
    for host, _ in hosts:
        if host.text is None:
            await written(host.message, lambda _, each=host: print_host(each))  # type: ignore[misc]
            await slices.rest()
    entries = [host for host, _ in hosts]
    return Listed("hosts", entries, found.next_page_token, lambda n: host_text(*hosts[n]), ages=True)
