"""Who may be told, and that no URL is ever shown whole."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.examples import EVENTS

from holdfast import spec
from holdfast._base.job_file.choices import NotificationEvent
from holdfast.errors import ConfigError, InvalidSpec
from holdfast.spec.rules.notifications import redacted
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.messages.notice import TELLING, notice_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.shell.base.config import ChannelConfig
from holdfast_controller.shell.notify.allowed_hosts import AllowedHosts
from holdfast_controller.shell.notify.channels import Channels, without_secrets

SECRET = "s3cret"
INSIDE = (
    *("127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:10.0.0.1", "2002:7f00:1::"),
    "64:ff9b::a00:1",
)
POOL = {"replicaCount": 1, "processSpec": {"command": ["x"]}}


def job_spec(*notifications: dict[str, Any]) -> spec.JobSpec:
    return spec.parse({"workerPoolSpecs": [POOL], "notifications": list(notifications)}).job_spec


def refused(channels: Channels, *notifications: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        channels.check(job_spec(*notifications))
    return [str(violation) for violation in caught.value.violations]


def test_jobs_may_name_only_what_an_admin_has_allowed() -> None:
    ops = ChannelConfig("ops", f"https://u:{SECRET}@hooks.example/x")
    channels = Channels((ops,), ("hooks.example", "*.corp.example", "other.example:8443", "*.ports.example:9000"))
    fine = (
        "https://hooks.example/a",
        "http://hooks.example/",
        "https://hooks.example.:443/",
        "https://a.b.corp.example/",
    )
    for url in (
        *fine,
        "https://other.example:8443/x",
        "http://other.example:8443/",
        "https://a.ports.example:9000/",
    ):
        channels.check(job_spec({"url": url}))
    channels.check(job_spec({"channel": "ops"}))
    assert refused(channels, {"channel": "dev"}) == [
        "jobSpec.notifications[0].channel: there is no channel 'dev' (channels: ops)"
    ]
    for host in ("127.0.0.1", "169.254.169.254", "corp.example", "evilhooks.example", "hooks.example.evil"):
        (said,) = refused(channels, {"url": f"https://{host}/{SECRET}"})
        assert (
            said.startswith(f"jobSpec.notifications[0].url: jobs may not have {host} called") and SECRET not in said
        )
    assert "other.example" in refused(channels, {"url": "https://other.example/"})[0]
    for url in ("http://hooks.example:99/", "https://hooks.example:80/", "https://a.corp.example:22/"):
        (said,) = refused(channels, {"url": url})
        host = url.split("/")[2]
        assert f"jobs may not have {host} called" in said
        assert f'ask an admin to add "{host}" to notification_hosts in controller.toml' in said
    assert refused(channels, {"url": "https://a.ports.example/"})


@pytest.mark.parametrize(
    "entry",
    ["", "https://hooks.example", "hooks.example/x", "hooks.example:0", "a:b", "*", "h:99999", "10.0.0.0/33"],
)
def test_an_entry_that_is_no_host_is_refused_when_the_controller_starts(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"notification_hosts: .* is no host\.\s+Write \"hooks"):
        Channels((), (entry,))


@pytest.mark.parametrize(
    ("address", "named", "may"),
    [
        ("93.184.216.34", (), True),
        ("2606:2800:220:1::1", (), True),
        *((inside, (), False) for inside in INSIDE),
        ("10.1.2.3", ("10.0.0.0/8",), True),
        ("10.1.2.3", ("10.1.2.3",), True),
        ("10.1.2.3", ("10.1.2.3:8443",), True),
        ("10.1.2.4", ("10.1.2.3",), False),
        ("fd00::1", ("[fd00::1]:8443",), True),
        ("::ffff:10.0.0.1", ("10.0.0.0/8",), True),
    ],
)
def test_names_may_resolve_to_public_addresses_and_to_named_ones(
    address: str, named: tuple[str, ...], may: bool
) -> None:
    assert AllowedHosts(("hooks.example", *named)).may_call(address) is may


def test_nobody_may_be_named_unless_an_admin_says_so() -> None:
    said = refused(Channels(), {"channel": "ops"}, {"url": "https://hooks.example/"})
    assert len(said) == 2 and "ask an admin" in said[0] and "notification_hosts" in said[1]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (ChannelConfig("a b", "https://x"), "a name has letters"),
        (ChannelConfig("a", SECRET), "its url is none"),
        (ChannelConfig("a", f"https://x/{SECRET}", ("BROKEN",)), "no event is called 'BROKEN'"),
    ],
)
def test_bad_channels_are_named_without_their_urls(config: ChannelConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        Channels((config,))
    assert SECRET not in str(caught.value) and SECRET not in repr(config)
    with pytest.raises(ConfigError, match="two of this name"):
        Channels((ChannelConfig("a", "https://x"), ChannelConfig("a", "https://y")))


def test_services_need_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    Channels((ChannelConfig("mail", "mailto://u:p@example.com"),))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    Channels((ChannelConfig("hook", "https://hooks.example"),))
    for config in (ChannelConfig("m", "mailto://u:p@x"), ChannelConfig("s", "https://x", service=True)):
        with pytest.raises(ConfigError, match="needs apprise"):
            Channels((config,))


def test_urls_are_shown_without_what_may_be_secret() -> None:
    for url, shown in (
        (f"https://u:{SECRET}@hooks.example:8/{SECRET}?{SECRET}#{SECRET}", "https://hooks.example:8/***"),
        (f"slack://{SECRET}/b", "slack://***"),
        (SECRET, "***"),
        (f"https://h:99999999/{SECRET}", "https://***"),
    ):
        assert redacted(url) == shown
    given = job_spec({"url": f"https://hooks.example/{SECRET}", "events": ["FAILED"]})
    assert SECRET not in repr(given)
    message = without_secrets(spec.to_proto(given))
    assert message.notifications[0].url == "https://hooks.example/***"
    with pytest.raises(InvalidSpec, match="is shortened, as jobs are shown"):
        spec.from_proto(message)


def test_each_notification_names_one_receiver() -> None:
    for one, problem in (
        ({}, "names nobody"),
        ({"channel": "a", "url": "https://x"}, "both a channel and a url"),
        ({"url": "ftp://x/"}, "must be an http or https URL"),
        ({"url": "https://"}, "must be an http or https URL"),
        ({"channel": "a", "events": ["EXPLODED"]}, "must be STARTED or"),
        ({"channel": "a", "when": "now"}, "is no known field"),
    ):
        with pytest.raises(InvalidSpec, match=problem):
            job_spec(one)


def test_a_history_is_told_in_the_words_of_the_contract() -> None:
    cluster, told = Cluster(), []
    for event in EVENTS:
        fold(cluster, event)
        job = cluster.jobs.get(getattr(event, "job_id", ""))
        if job is not None and (notice := notice_of(event, job)) is not None:
            assert isinstance(event, TELLING)
            told.append(notice.name)
    assert told == [
        "STARTED",
        "RESTARTED",
        "HANGED",
        "HANGED",
        "RESTARTED",
        "HANGED",
        "RESTARTED",
        "RECOVERED",
        "RESTARTED",
        "CANCELLED",
        "UNSURE",
        "MAINTENANCE",
        "UNDERUSED",
        "STRAGGLER",
        "CANCELLED",
    ]


def test_an_attempt_that_ends_is_told_by_its_reason() -> None:
    cluster = Cluster()
    for event in EVENTS:
        fold(cluster, event)
    job = cluster.jobs["a"]
    for reason, leaving, notice in (
        (EndReason.PREEMPTED, Leaving.RETRY, NotificationEvent.PREEMPTED),
        (EndReason.DRAINED, Leaving.RETRY, NotificationEvent.DRAINED),
        (EndReason.NONZERO_EXIT, Leaving.RETRY, NotificationEvent.RESTARTED),
        (EndReason.PAUSED, Leaving.PAUSE, None),
    ):
        assert (
            notice_of(ev.AttemptEnded(job_id="a", at=Wall(1.0), leaving=leaving, end_reason=reason), job) is notice
        )


def test_every_key_of_the_settings_is_on_a_page() -> None:
    docs = Path(__file__).parents[4] / "docs/users"
    page = (docs / "notifications.md").read_text() + (docs / "http.md").read_text()
    keys = [f"notifications[].{field.name}" for field in fields(ChannelConfig)]
    keys += ["http_port", "notification_hosts", "notification_retry_for"]
    assert [key for key in keys if f"| `{key}` |" not in page] == []
    events = (docs / "notifications.md").read_text().partition("## In the cluster")[0]
    assert [notice.name for notice in NotificationEvent if f"`{notice.name}`" not in events] == []
