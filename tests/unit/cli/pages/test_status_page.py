"""The status page: short when all is well, and what is wrong within the terminal's width."""

from __future__ import annotations

from typing import Any

from holdfast.cli.cluster.status_page import page
from holdfast.v1 import access_pb2, cluster_pb2

NOW = 1_700_000_000.0
DAY_S = 86_400.0


def status(**fields: Any) -> cluster_pb2.GetStatusResponse:
    found = cluster_pb2.GetStatusResponse(cluster="lab", version="1.2.0", epoch=7, **fields)
    found.started.FromSeconds(int(NOW - 3 * DAY_S - 4 * 3600))
    return found


def thing(kind: str, subject: str, message: str, since_s: float | None = None) -> cluster_pb2.Attention:
    made = cluster_pb2.Attention(
        kind=cluster_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}"), subject=subject, message=message
    )
    if since_s is not None:
        made.since.FromSeconds(int(NOW - since_s))
    return made


def lines(found: cluster_pb2.GetStatusResponse, width: int | None = 80, **more: Any) -> list[str]:
    return list(page(found, NOW, width=width, colour=False, **({"certificate_ends": None} | more)))


def test_cluster_that_is_well_takes_seven_lines() -> None:
    counts = {
        "hosts": {"ready": 3, "lost": 0},
        "gpus": {"used": 8, "free": 16},
        "jobs": {"RUNNING": 2, "FAILED": 1},
    }
    assert lines(status(**counts)) == [
        "lab  controller 1.2.0, up 3d 4h, term 7",
        "  hosts      3   3 ready",
        "  GPUs      24   8 used, 16 free",
        "  jobs       2   2 running",
        "  ended      1   1 failed",
        "",
        "Nothing needs attention.",
    ]


def test_who_leads_and_who_stands_by_is_said_where_controllers_share_a_database() -> None:
    def said(*standbys: str) -> str:
        place = cluster_pb2.Leadership(database="PostgreSQL database h at db1", leader="ctl1", standbys=standbys)
        return lines(status(hosts={"ready": 1}, leadership=place))[1]

    assert said() == "  leads    ctl1; none stands by; PostgreSQL database h at db1"
    assert said("ctl2") == "  leads    ctl1; ctl2 stands by; PostgreSQL database h at db1"
    assert said("ctl2", "ctl3\x1b[2J") == "  leads    ctl1; ctl2, ctl3?[2J stand by; PostgreSQL database h at db1"


def test_what_the_next_failover_would_cost_is_said_below_who_leads() -> None:
    details = [
        cluster_pb2.Standby(machine="ctl2", behind_events=40, differing_settings="quotas+1"),
        cluster_pb2.Standby(machine="ctl3", behind_events=12_000),
    ]
    place = cluster_pb2.Leadership(
        database="d", leader="ctl1", risk="No replica is\nthere.", standby_details=details
    )
    assert [line.strip() for line in lines(status(hosts={"ready": 1}, leadership=place))[2:5]] == [
        "ctl2 has another controller.toml: quotas+1 (its log names all keys)",
        "ctl3 is 12,000 events behind: its takeover reads them first",
        "No replica is there.",
    ]
    assert lines(status(leadership=cluster_pb2.Leadership(database="d", leader="ctl1")))[2].startswith("  hosts")


def test_cluster_without_hosts_says_how_they_join() -> None:
    assert lines(status())[-1] == "No hosts yet: holdfast host token create"


def test_what_needs_attention_is_named_with_its_age() -> None:
    things = [
        thing("HOST_SILENT", "host/h1", "nothing is heard from it", 42),
        thing("VERSIONS", "controller", "old"),
    ]
    assert lines(status(hosts={"silent": 1}, attention=things, attention_more=3))[5:] == [
        "Needs attention",
        "  host h1     42s  nothing is heard from it",
        "  controller       old",
        "  … and 3 more",
    ]


def test_long_names_leave_room_for_what_is_the_matter() -> None:
    things = [thing("JOB_WAITS", f"job/{'very-long-' * 8}x", f"waits: {'needs 8 GPUs on one host ' * 6}end", 7200)]
    found = lines(status(hosts={"ready": 1}, attention=things), width=80)
    assert all(len(line) <= 80 for line in found)
    first, *more = found[found.index("Needs attention") + 1 :]
    assert "… " in first and "waits: needs 8 GPUs" in first
    assert len(more) == 2 and more[-1].endswith(" …") and more[0].startswith(" " * 30)
    whole = lines(status(hosts={"ready": 1}, attention=things), width=None)
    assert whole[-1].endswith(f"  {things[0].message}") and "…" not in whole[-1]


def test_the_message_of_the_day_stands_above_what_needs_attention() -> None:
    message = access_pb2.Motd(text="No work on Friday:\n" + "the power is off " * 6, by="ann")
    message.time.FromSeconds(int(NOW - 7200))
    found = lines(status(hosts={"ready": 1}, motd=message), width=60)
    at = found.index("message of the day, from ann, 2h ago:")
    assert found[at - 1] == ""
    assert found[at + 1] == "  No work on Friday:"
    assert found[at + 2].startswith("  the power is off the power") and all(len(line) <= 60 for line in found)
    assert found[-2:] == ["", "Nothing needs attention."]


def test_words_of_others_cannot_drive_the_terminal() -> None:
    things = [thing("HOST_CORDONED", "host/h1", "cordoned: \x1b[2Jboo\nsecond line")]
    assert lines(status(hosts={"cordoned": 1}, attention=things))[-1] == "  host h1  cordoned: ?[2Jboo second line"


def test_own_certificate_is_told_of_when_it_was_not_renewed() -> None:
    assert lines(status(hosts={"ready": 1}), certificate_ends=NOW + 30 * DAY_S)[-1] == "Nothing needs attention."
    told = lines(status(hosts={"ready": 1}), certificate_ends=NOW + DAY_S)[-1]
    assert told == "  you  your certificate ends in 1d"


def test_state_of_a_newer_controller_is_shown_too() -> None:
    assert lines(status(hosts={"ready": 1, "asleep": 2}))[1] == "  hosts      3   1 ready, 2 asleep"
