"""Reservations by the command line: what is refused and audited, and that a killed controller has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

import pytest
from tests.integration.controller.cluster import WITHIN_S
from tests.integration.controller.daemon.commands.test_motd import User
from tests.integration.controller.process import Process, ended
from tests.support.stubs import access_stub, host_stub

from holdfast.v1 import access_pb2, host_pb2

pytestmark = pytest.mark.anyio
CREATE = ("reservation", "create", "conf", "--project", "vision", "--for", "2h")


async def test_a_reservation_outlives_a_kill_of_the_controller_and_is_audited(
    daemon: Process, tmp_path: Path
) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    ann = User("ann", controller, tmp_path / "ann")
    nothing = await ann.types("reservation", "list")
    assert nothing.status == 0 and "No host is reserved." in nothing.err
    refused = await ann.types(*CREATE, "--count", "4")
    assert refused.status == 2 and "count: asks for 4 hosts, and there are none" in refused.err
    async with controller.agent("host-0"):
        for planned in ((*CREATE, "--count", "1", "--from"), ("host", "drain", "host-0", "--at")):
            past = await ann.types(*planned, "1970-01-01T00:00:00Z")
            assert past.status == 2 and "start: lies " in past.err, "the first second there is isn't now"
        made = await ann.types(*CREATE, "--count", "1", "--from", "+1h", "--reason", "a deadline")
    assert (made.status, made.out.split()) == (0, ["conf"]) and "it has host-0 from " in made.err
    again = await ann.types(*CREATE, "--count", "1", "--from", "+1h")
    assert again.status == 2 and "name: there is a reservation 'conf'" in again.err

    people = access_stub(controller.channel("user/ann"))
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    entries = [each for each in found.entries if each.call == "ClusterService/CreateReservation"]
    assert {(each.target, each.outcome) for each in entries} == {
        ("reservation/conf", "OK"),
        ("reservation/conf", "INVALID_ARGUMENT"),
    }
    await controller.close()
    process.kill()
    await ended(process)

    controller = ann.controller = await daemon.ready(daemon.start())
    (kept,) = json.loads((await ann.types("reservation", "list", "-o", "json")).out)
    assert (kept["project"], kept["count"], kept["createdBy"]) == ("vision", 1, "ann")
    assert (kept["chosenHosts"], kept["lack"]) == ([], "1 of 1 hosts"), "the host has not connected again"
    shown = (await ann.types("reservation", "show", "conf")).out
    assert "Reason      a deadline" in shown and "Lacks       1 of 1 hosts" in shown
    deleted = await ann.types("reservation", "delete", "conf")
    assert deleted.status == 0 and "its hosts are open to all" in deleted.err
    for words in (("reservation", "delete", "conf"), ("reservation", "show", "conf")):
        gone = await ann.types(*words)
        assert gone.status != 0 and "There is no reservation 'conf'" in gone.err
    await controller.close()


async def gpu_states(watched: AsyncIterable[host_pb2.WatchHostsResponse]) -> AsyncIterator[str]:
    """The state of a host's first GPU, each time that it has changed."""
    last = ""
    async for each in watched:
        state = host_pb2.GpuState.Name(each.host.inventory.gpus[0].state)
        if state != last:
            last = state
            yield state


async def test_hosts_are_reserved_for_a_user_by_conditions_and_who_watches_hosts_sees_it_begin_and_end(
    daemon: Process, tmp_path: Path
) -> None:
    controller = await daemon.ready(daemon.start())
    ann = User("ann", controller, tmp_path / "ann")
    create = ("reservation", "create", "conf", "--user", "bob", "--host-selector", "gpu in (h100,h200),!old")
    async with controller.agent("host-0", labels={"gpu": "h200"}):
        watched = host_stub(controller.channel("user/ann")).WatchHosts(host_pb2.WatchHostsRequest())
        states = gpu_states(watched)
        assert await anext(states) == "GPU_STATE_FREE"
        made = await ann.types(*create, "--from", "+1s", "--for", "2h")
        assert made.status == 0 and "it has host-0 " in made.err
        assert await anext(states) == "GPU_STATE_RESERVED", "an hour that comes wakes who watches"
        (kept,) = json.loads((await ann.types("reservation", "list", "-o", "json")).out)
        assert (kept["user"], kept["project"], kept["match"]) == ("bob", "", "gpu in (h100,h200),!old")
        assert "user/bob" in (await ann.types("reservation", "list")).out
        await ann.types("reservation", "delete", "conf")
        assert await anext(states) == "GPU_STATE_FREE"
        watched.cancel()
    for words, problem in (
        ((*create[:3], "--count", "1", "--for", "2h"), "Say whose jobs the hosts are for"),
        ((*create[:5], "--host-selector", "gpu in (", "--for", "2h"), "is no condition on a label"),
        ((*create[:5], "--host-selector", "a=x,!a", "--for", "2h"), "match: holds for no host"),
    ):
        refused = await ann.types(*words)
        assert refused.status == 2 and problem in refused.err, refused.err
    await controller.close()


async def test_a_user_whom_nobody_knows_is_pointed_out_until_somebody_does(daemon: Process, tmp_path: Path) -> None:
    controller = await daemon.ready(daemon.start())
    ann = User("ann", controller, tmp_path / "ann")
    async with controller.agent("host-0"):
        create = ("reservation", "create", "conf", "--for", "2h", "--count", "1", "--user")
        made = await ann.types(*create, "bbo")
        assert made.status == 0 and "no user bbo is known here yet: see holdfast user list" in made.err
        shown = await ann.types("reservation", "show", "conf")
        assert "user/bbo (no such user: see holdfast user list)" in shown.out
    await ann.types("user", "add", "bbo")
    assert "no such user" not in (await ann.types("reservation", "show", "conf")).out
    await ann.types("reservation", "delete", "conf")
    async with controller.agent("host-0"):
        assert "is known here" not in (await ann.types(*create, "ann")).err
    await controller.close()


async def test_an_end_has_to_be_named(daemon: Process, tmp_path: Path) -> None:
    controller = await daemon.ready(daemon.start())
    ann = User("ann", controller, tmp_path / "ann")
    endless = await ann.types("reservation", "create", "conf", "--project", "vision", "--count", "1")
    assert endless.status == 2 and "Say when it ends: --until TIME, or --for DURATION." in endless.err
    both = await ann.types(*CREATE, "--count", "1", "--until", "+3h")
    assert both.status == 2 and "Write --for or --until, not both." in both.err
    past = await ann.types(*CREATE, "--hosts", "host-9", "--from", "2020-01-01 10:00")
    assert past.status == 2 and "start: lies " in past.err and "leave it out to begin now" in past.err
    await controller.close()
