"""Rules of a job's notifications, and how a URL is shown that may hold a secret."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from holdfast.spec.wording import Broken, Fields

HIDDEN = "***"
"""Printed in place of the hidden part."""


def broken(job: Fields) -> Iterator[Broken]:
    """Every broken rule of the job's notifications, at places counted from the spec. No URL is in the words."""
    for index, one in enumerate(job.get("notifications") or ()):
        if one is None or one.get("channel", "") is None or one.get("url", "") is None:
            continue
        place = ("notifications", index)
        if bool(one.get("channel")) == bool(one.get("url")):
            problem = "names both a channel and a url" if one.get("url") else "names nobody"
            yield Broken(place, problem, "write a channel of the cluster or a url")
        elif one.get("url") and (problem := _problem(one["url"])):
            yield Broken((*place, "url"), problem, "write it whole, such as https://hooks.example/training")


def parts(url: str) -> SplitResult | None:
    """The URL in its parts, if it is one with a host."""
    try:
        found = urlsplit(url)
        return found if found.hostname and (found.port is None or found.port > 0) else None
    except ValueError:
        return None


def redacted(url: str) -> str:
    """The part of a URL that may be shown: ``https://hooks.example/***``; of other schemes not even the host."""
    found = parts(url)
    if found is None or found.scheme not in ("http", "https"):
        scheme, colon, _ = url.partition("://")
        return f"{scheme}://{HIDDEN}" if colon and scheme.isalnum() else HIDDEN
    host = f"[{found.hostname}]" if ":" in (found.hostname or "") else found.hostname
    return f"{found.scheme}://{host}{f':{found.port}' if found.port else ''}/{HIDDEN}"


def _problem(url: str) -> str:
    found = parts(url)
    if found is None or found.scheme not in ("http", "https"):
        return "must be an http or https URL"
    if found.path == f"/{HIDDEN}":
        return "is shortened, as jobs are shown"
    return ""
