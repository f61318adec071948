"""Rules of the host selectors, of the job's and of each pool's, alone and together. Pure, as in ``rules.job``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast._base.identity import is_name
from holdfast._base.job_file.label_match import MATCH_FIX, Condition, contradiction, read_match
from holdfast.spec.wording import Broken, Fields, Place

_JOBS: Place = ("scheduling", "host_selector")
_FIX = "remove it from one of them"


def broken(job: Fields) -> Iterator[Broken]:
    """Every broken rule, at places counted from the spec."""
    scheduling = job.get("scheduling") or {}
    whole: Fields = scheduling.get("host_selector") or {}
    yield from _alone(whole, _JOBS)
    pools: Any = job.get("worker_pool_specs") or ()
    known: list[Fields] = []
    for index, pool in enumerate(pools):
        own = (pool or {}).get("host_selector")
        if own:
            known.append(own)
            place: Place = ("worker_pool_specs", index, "host_selector")
            yield from _alone(own, place)
            yield from _together(own, whole, place)
    if scheduling.get("spares") and not _excluded(*known):
        yield from _for_spares(known)


def _alone(selector: Fields, place: Place) -> Iterator[Broken]:
    for field in ("hosts", "avoid_hosts"):
        for index, host in enumerate(selector.get(field) or ()):
            if host and not is_name(host):  # such as a pattern: the job would wait for it forever
                yield Broken((*place, field, index), f"{host!r} is no name of a host", "write each host by itself")
    wanted = _hosts(selector)
    for index, host in enumerate(selector.get("avoid_hosts") or ()):
        if host in wanted:
            yield Broken((*place, "avoid_hosts", index), f"{host} is in hosts as well", _FIX)
    labels = selector.get("labels") or {}
    for key, value in (selector.get("avoid_labels") or {}).items():
        if value is not None and labels.get(key) == value:
            yield Broken((*place, "avoid_labels", key), "is asked for in labels", _FIX)
    try:
        conditions = read_match(selector.get("match") or "")
    except ValueError as error:
        yield Broken((*place, "match"), str(error), MATCH_FIX)
        return
    key = contradiction(_conditions(selector))
    if key in {each.key for each in conditions}:
        problem = f"holds for no host: what is asked of the label {key} excludes each other"
        yield Broken((*place, "match"), problem, "remove one of the conditions on it")


def _together(own: Fields, whole: Fields, place: Place) -> Iterator[Broken]:
    """Contradictions between what a pool asks for and its job: there may be a host that meets both."""
    if _excluded(own) or _excluded(whole):
        return
    theirs, asked = _hosts(whole), _hosts(own)
    if asked and theirs and not asked & theirs:
        fix = "name some of those, or leave one of the two out"
        yield Broken((*place, "hosts"), "names none of scheduling.hostSelector.hosts", fix)
    elif asked and asked <= set(whole.get("avoid_hosts") or ()):
        yield Broken((*place, "hosts"), "are all in scheduling.hostSelector.avoidHosts", _FIX)
    if key := contradiction([*_conditions(own), *_conditions(whole)]):
        problem = f"holds for no host of scheduling.hostSelector: the two exclude each other by the label {key}"
        yield Broken(place, problem, "remove the condition on it from one of them")


def _for_spares(selectors: list[Fields]) -> Iterator[Broken]:
    """A spare does for any worker, so its host has to meet the selectors of all pools."""
    named = [names for each in selectors if (names := _hosts(each))]
    apart = bool(named) and not set.intersection(*named)
    key = contradiction([condition for each in selectors for condition in _conditions(each)])
    if apart or key:
        why = f": they exclude each other by the label {key}" if key else ""
        problem = f"do for every worker, and no host meets the hostSelector of each of workerPoolSpecs{why}"
        yield Broken(("scheduling", "spares"), problem, "ask for hosts that suit all of them, or for no spares")


def _hosts(selector: Fields) -> set[str]:
    return {host for host in selector.get("hosts") or () if host is not None}


def _conditions(selector: Fields) -> list[Condition]:
    """All that is asked of labels; nothing of what can't be read."""
    labels, unwanted = selector.get("labels") or {}, selector.get("avoid_labels") or {}
    found = [Condition(key, (value,)) for key, value in labels.items() if value is not None]
    found += [Condition(key, (value,), unwanted=True) for key, value in unwanted.items() if value is not None]
    try:
        return [*found, *read_match(selector.get("match") or "")]
    except ValueError:
        return found


def _excluded(*selectors: Fields) -> bool:
    """Whether one of them excludes all hosts by itself, which is said of it alone."""
    return any(contradiction(_conditions(each)) for each in selectors)
