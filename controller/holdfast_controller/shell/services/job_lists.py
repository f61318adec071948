"""The jobs that a list is made of, in the order in which its pages take them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_blocks import JobBlock
from holdfast_controller.core.model.jobs import Jobs, Known
from holdfast_controller.shell.calls.job_filter import ENDED, Filter, folded, read_filter, searched
from holdfast_controller.shell.calls.slices import Slices
from holdfast_controller.shell.driver import Driver

PAGE = 100
BEFORE = "<"
"""Begins the token of a page of the newest jobs that ``PAGE_BYTES`` cut: the next one has those before it."""
_FILTERED_AT_ONCE = 64
"""Jobs that are held against a filter of the most terms in a millisecond or two."""
_READ_AT_ONCE = 50
"""Ended jobs that are read from the store together, before it is known whether the page has room for all."""


async def matching(
    driver: Driver, request: job_pb2.ListJobsRequest, sees: Callable[[str], bool], slices: Slices
) -> AsyncGenerator[Job, None]:
    """The jobs that are asked for, whole. Raises ``InvalidInput``. Close it after use."""
    wanted, found_in = read_filter(request.filter), searched(request.search)
    if search := folded(request.search):
        wanted = wanted._replace(words=(search, *wanted.words))
    at_once = min(request.page_size or PAGE, _READ_AT_ONCE)
    jobs, arrays, found = driver.cluster.jobs, set[str](), list[str]()
    for listed in _listed(jobs, request, wanted):
        await slices.rest()
        # The search first, which costs least.
        some = [each for each in wanted.found(found_in(listed)) if not each.deleted and sees(each.project)]
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


def _listed(jobs: Jobs, request: job_pb2.ListJobsRequest, wanted: Filter) -> Iterator[Sequence[Known]]:
    """The jobs from which a page is taken, in the order in which it takes them: behind the page's token.

    Those that may be ``wanted`` are enough. They come some at a time, or none. Raises ``InvalidInput``.
    """
    token, newest = request.page_token, request.newest
    if newest and token and not token.startswith(BEFORE):
        raise InvalidInput([Violation("pageToken", "is not of a list of the newest", "leave one of them out")])
    start = _start(token.removeprefix(BEFORE) if newest else token)
    if not any(count for (_, state), count in jobs.by_state.items() if state.name in wanted.states):
        return
    ended = bool(wanted.states & ENDED)
    for block in jobs.blocks.newest_first(start) if newest else jobs.blocks.oldest_first(start):
        known = jobs.heads_in(block, ended=ended) if _may_have(jobs, block, wanted) else []
        if start:
            known = [each for each in known if (each.number < start if newest else each.number > start)]
        if newest:
            known.reverse()
        for first in range(0, len(known), _FILTERED_AT_ONCE):
            yield known[first : first + _FILTERED_AT_ONCE]
        if known:
            start = known[-1].number  # a block may go meanwhile, and its jobs to one that comes later
        else:
            yield ()


def _may_have(jobs: Jobs, block: JobBlock, wanted: Filter) -> bool:
    if not any(count and state._name_ in wanted.states for state, count in block.by_state.items()):
        return False
    if not wanted.words:
        return True
    text = jobs.words_in(block)
    return all(each in text for each in wanted.words)


def _start(page_token: str) -> int:
    if page_token and not (page_token.isascii() and page_token.isdecimal()):
        raise InvalidInput([Violation("pageToken", f"{page_token!r} is not one of ours", "list again without")])
    return int(page_token or 0)
