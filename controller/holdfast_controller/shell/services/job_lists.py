"""The jobs that a list is made of, in the order in which its pages take them."""

from __future__ import annotations

import bisect
from collections.abc import AsyncGenerator, Callable, Sequence
from operator import attrgetter

from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import Jobs, Known
from holdfast_controller.shell.calls.job_filter import ENDED, read_filter, searched
from holdfast_controller.shell.calls.slices import Slices
from holdfast_controller.shell.driver import Driver

PAGE = 100
BEFORE = "<"
"""Begins the token of a page of the newest jobs that ``PAGE_BYTES`` cut: the next one has those before it."""
_FILTERED_AT_ONCE = 64
"""Jobs that are held against a filter of the most terms in a millisecond or two."""
_READ_AT_ONCE = 50
"""Ended jobs that are read from the store together, before it is known whether the page has room for all."""


_number = attrgetter("number")
"""Not a function of ours: ten thousand calls of one hold the loop for 5 ms."""


async def matching(
    driver: Driver, request: job_pb2.ListJobsRequest, sees: Callable[[str], bool], slices: Slices
) -> AsyncGenerator[Job, None]:
    """The jobs that are asked for, whole. Raises ``InvalidInput``. Close it after use."""
    (filtered, states), found_in = read_filter(request.filter), searched(request.search)
    at_once = min(request.page_size or PAGE, _READ_AT_ONCE)
    jobs, arrays, found = driver.cluster.jobs, set[str](), list[str]()
    listed = _listed(jobs, request, states)
    for first in range(0, len(listed), _FILTERED_AT_ONCE):
        await slices.rest()
        # The search first, which costs least.
        some = [
            each
            for each in filtered(found_in(listed[first : first + _FILTERED_AT_ONCE]))
            if not each.deleted and sees(each.project)
        ]
        for known in some:
            if request.one_per_array and known.element is not None:
                if known.element.array in arrays:
                    continue
                arrays.add(known.element.array)
            found.append(known.id)
            if len(found) == at_once:
                async for job in _whole(driver, found):
                    yield job
                found.clear()
    async for job in _whole(driver, found):
        yield job


async def _whole(driver: Driver, names: Sequence[str]) -> AsyncGenerator[Job, None]:
    await driver.bring(names)
    for name in names:
        if (job := driver.cluster.jobs.get(name)) is not None:  # it may be deleted meanwhile
            yield job


def _listed(jobs: Jobs, request: job_pb2.ListJobsRequest, states: frozenset[str]) -> list[Known]:
    """The jobs from which a page is taken, in the order in which it takes them: behind the page's token.

    Those in these ``states`` are enough.
    """
    if not any(count for (_, state), count in jobs.by_state.items() if state.name in states):
        known: list[Known] = []
    elif not states & ENDED:
        # Of those that go on in order; ended ones that were read again lie among them, and match nothing.
        known = list(jobs.whole.values())
        if request.page_token:
            known.sort(key=_number)
    else:
        known = list(jobs.heads())
    if not request.newest:
        return known[bisect.bisect_right(known, _start(request.page_token), key=_number) :]
    if request.page_token and not request.page_token.startswith(BEFORE):
        raise InvalidInput([Violation("pageToken", "is not of a list of the newest", "leave one of them out")])
    if before := _start(request.page_token.removeprefix(BEFORE)):
        del known[bisect.bisect_left(known, before, key=_number) :]
    known.reverse()
    return known


def _start(page_token: str) -> int:
    if page_token and not (page_token.isascii() and page_token.isdecimal()):
        raise InvalidInput([Violation("pageToken", f"{page_token!r} is not one of ours", "list again without")])
    return int(page_token or 0)
