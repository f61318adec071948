"""The SDK's lists of jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from holdfast._sdk.transport import Calling
from holdfast.v1 import job_pb2

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2_grpc


class ListCalls(Calling):
    """A part of ``Client``."""

    _jobs: job_pb2_grpc.JobServiceAsyncStub

    async def list_jobs(
        self, filter: str = "", *, page_size: int = 0, one_per_array: bool = False
    ) -> AsyncGenerator[job_pb2.CustomJob]:
        """All jobs that match, oldest first, without their workers; pages are fetched as they are needed.

        With ``one_per_array`` one element stands for all of its array that match.
        """
        token = ""
        arrays: set[str] = set()
        while True:
            request = job_pb2.ListJobsRequest(
                filter=filter, page_size=page_size, page_token=token, one_per_array=one_per_array
            )
            page = await self._unary(self._jobs.ListJobs, request)
            for job in page.jobs:
                if one_per_array and job.array.id:
                    if job.array.id in arrays:
                        continue
                    arrays.add(job.array.id)
                yield job
            token = page.next_page_token
            if not token:
                return

    async def newest_jobs(
        self, count: int, filter: str = "", *, one_per_array: bool = False
    ) -> list[job_pb2.CustomJob]:
        """The newest ``count`` (at most 1000) jobs that match, oldest first, without their workers.

        With ``one_per_array`` one element stands for all of its array that match.
        """
        found: list[job_pb2.CustomJob] = []
        token = ""
        while len(found) < count:
            left = count - len(found)
            request = job_pb2.ListJobsRequest(
                filter=filter, page_size=min(left, 1000), newest=True, page_token=token, one_per_array=one_per_array
            )
            page = await self._unary(self._jobs.ListJobs, request)
            arrays = {job.array.id for job in found if job.array.id}
            found[:0] = [job for job in page.jobs if not (one_per_array and job.array.id in arrays)]
            token = page.next_page_token
            if not token or not page.jobs:
                break
        return found

    async def job_rows(
        self, count: int, filter: str = "", *, search: str = "", newest: bool = True
    ) -> tuple[list[job_pb2.CustomJob], bool]:
        """Rows of the newest or the oldest ``count`` jobs that match, those first, and whether there are more.

        A row has what a list shows: no spec, no workers, no history. ``search`` is a text in id, name, owner,
        project, a label's value or the name of a host.
        """
        found: list[job_pb2.CustomJob] = []
        token = ""
        while True:
            request = job_pb2.ListJobsRequest(
                filter=filter,
                search=search,
                view=job_pb2.JOB_VIEW_ROW,
                newest=newest,
                page_size=min(count - len(found), 1000),
                page_token=token,
            )
            page = await self._unary(self._jobs.ListJobs, request)
            found += page.jobs
            # A page without a job leads nowhere: it is not followed for ever.
            if len(found) >= count or not page.next_page_token or not page.jobs:
                return found[:count], bool(page.next_page_token)
            token = page.next_page_token
