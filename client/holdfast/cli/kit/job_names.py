"""Jobs as people name them: by id, by the beginning of an id, or by display name.

The controller knows ids alone. A command sends the word as it was typed, so a full id costs no further call; only
when there is no such job is the list asked for those that the word may mean.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast._base.printable import one_line
from holdfast._base.proto_values import short_name
from holdfast.cli.kit.job_filters import quoted
from holdfast.errors import HoldfastError, InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

T = TypeVar("T")

SHOWN = 10
"""Candidates that an error names."""
RECENT = 100
"""Jobs among which a misspelt name is looked for."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


async def on_job(client: Client, word: str, call: Callable[[str], Awaitable[T]]) -> tuple[str, T]:
    """The id of the job, or the array, that ``word`` names, and the answer to ``call`` for that id.

    An id counts before all else, then a display name, then the beginning of an id. Raises ``NotFound`` where
    ``word`` names no job that the caller may see, or several, which it lists.
    """
    unknown = NotFound(f"There is no job {word!r}.", fix="See: holdfast ps --all")
    if _ID.fullmatch(word):
        try:
            return word, await call(word)
        except NotFound as error:
            unknown = error
    job_id = await _meant(client, word, unknown)
    return job_id, await call(job_id)


async def job_of(client: Client, word: str) -> job_pb2.CustomJob:
    """The job that ``word`` names, with its workers. Raises ``NotFound`` as ``on_job`` does."""
    return (await on_job(client, word, client.get_job))[1]


async def jobs_of(client: Client, word: str) -> list[job_pb2.CustomJob]:
    """The job that ``word`` names, or all elements of the array that it names. Raises ``NotFound``."""
    try:
        return [await job_of(client, word)]
    except NotFound:
        elements = await _elements(client, word)
        if not elements:
            raise
        return elements


async def _id_of(client: Client, word: str) -> str:
    """The id of the job, or of the array, that ``word`` names. Raises ``NotFound``."""
    try:
        return (await job_of(client, word)).id
    except NotFound:
        elements = await _elements(client, word)
        if not elements:
            raise
        return elements[0].array.id


async def _elements(client: Client, word: str) -> list[job_pb2.CustomJob]:
    """The elements of the array that ``word`` names; empty where it names none."""
    try:
        array = await _meant(client, word, NotFound(""))
        return [job async for job in client.list_jobs(f"array={quoted(array)}")]
    except (NotFound, InvalidInput):  # the latter of a controller that knows no arrays
        return []


async def name_dependencies(client: Client, job: job_pb2.CustomJob) -> None:
    """Writes the ids of the jobs and arrays that ``job`` waits for in place of the words that name them."""
    for each in job.job_spec.scheduling.after:
        try:
            each.job = await _id_of(client, each.job)
        except NotFound:
            if ":" not in each.job:
                raise
            fix = "The end that is waited for is ok, any or failed: --after JOB:any"
            raise NotFound(f"There is no job {each.job!r}.", fix=fix) from None


async def _meant(client: Client, word: str, unknown: NotFound) -> str:
    of_name = f"name={quoted(word)}"
    if _ID.fullmatch(word) and await _is_array(client, word):
        return word
    for filter in (of_name, f"id:{word}*") if _ID.fullmatch(word) else (of_name,):
        try:
            listed = await client.newest_jobs(SHOWN + 1, filter, one_per_array=True)
        except InvalidInput:
            break  # a controller that is older than filters by id
        found = [job for job in listed if job.display_name == word or job.id.startswith(word)]
        if len(found) == 1 and found[0].array.id and _named(found[0], word) == found[0].id:
            # It may be the beginning of the ids of several elements of one array.
            listed = await client.newest_jobs(SHOWN + 1, filter)
            found = [job for job in listed if job.id.startswith(word) or job.display_name == word]
        if len(found) == 1:
            return _named(found[0], word)
        if found:
            raise _several(word, found)
    if unknown.message and (near := await _alike(client, word)):
        unknown.fix = f"Did you mean {near}? {unknown.fix}".strip()
    raise unknown


async def _alike(client: Client, word: str) -> str:
    """The name or id of a recent job that ``word`` may be a slip for; empty where there is none."""
    try:
        listed = await client.newest_jobs(RECENT, one_per_array=True)
    except HoldfastError:
        return ""  # that there is no such job is what the user has to know
    known = [name for job in reversed(listed) for name in (job.display_name, job.id, job.array.id) if name]
    return next(map(one_line, difflib.get_close_matches(word, dict.fromkeys(known), n=1, cutoff=0.75)), "")


async def _is_array(client: Client, word: str) -> bool:
    """Whether ``word`` is the whole id of an array: it counts before names and the beginnings of other ids."""
    try:
        return bool(await client.newest_jobs(1, f"array={quoted(word)}", one_per_array=True))
    except InvalidInput:
        return False  # a controller that knows no arrays


def _named(job: job_pb2.CustomJob, word: str) -> str:
    """The id that ``word`` means where it finds this job: its array's, unless it goes on behind that."""
    of_array = job.array.id and (job.display_name == word or job.array.id.startswith(word))
    return job.array.id if of_array else job.id


def _several(word: str, found: list[job_pb2.CustomJob]) -> NotFound:
    from holdfast.cli.kit.durations import age
    from holdfast.v1 import job_pb2

    now = time.time()
    lines = [
        f"{_named(job, word)}  {short_name(job_pb2.JobState, job.state)},"
        f" {age(now - job.create_time.seconds)} old: {job.display_name}"
        for job in reversed(found[-SHOWN:])
    ]
    count = f"more than {SHOWN}" if len(found) > SHOWN else str(len(found))
    head = f"{word!r} may mean any of {count} jobs; the newest first:"
    return NotFound("\n".join([head, *lines]), fix="Give the whole id, or more of it.")
