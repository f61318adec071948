"""The addresses: what each takes, the gRPC method that it stands for, and how the answer is printed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from google.protobuf.message import Message
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast._base import projects
from holdfast._sdk import json_view
from holdfast.errors import HoldfastError, InvalidInput, NotFound, Violation
from holdfast.v1 import cluster_pb2, host_pb2, job_pb2
from holdfast_controller.shell.rest import body, streams
from holdfast_controller.shell.rest.calls import Aborted, Asked, Calls
from holdfast_controller.shell.rest.context import Endpoint as Endpoint
from holdfast_controller.shell.rest.context import bounded as bounded
from holdfast_controller.shell.rest.context import context_of
from holdfast_controller.shell.rest.errors import Refusal, on_error
from holdfast_controller.shell.rest.guards import Bounds, Guards
from holdfast_controller.shell.rest.host_texts import listed_hosts
from holdfast_controller.shell.rest.printed import Json, answered, listed, listed_rows
from holdfast_controller.shell.rest.read_mask import masked, parse_mask
from holdfast_controller.shell.rest.reference import in_its_form
from holdfast_controller.shell.rest.schedule_routes import ScheduleGate

JOBS = "/holdfast.v1.JobService/"
HOSTS = "/holdfast.v1.HostService/"
CLUSTER = "/holdfast.v1.ClusterService/"
ANY = "-"
"""As a project: whatever it is."""
_CUSTOM_JOBS = "/v1/projects/{project}/locations/{location}/customJobs"
_VERBS: dict[str, tuple[str, type[Message]]] = {
    "cancel": (f"{JOBS}CancelJob", job_pb2.CancelJobRequest),
    "restart": (f"{JOBS}RestartJob", job_pb2.RestartJobRequest),
    "pause": (f"{JOBS}PauseJob", job_pb2.PauseJobRequest),
    "resume": (f"{JOBS}ResumeJob", job_pb2.ResumeJobRequest),
}
_GOODPUT_BY = {
    name.removeprefix("GOODPUT_BY_").lower(): number for name, number in cluster_pb2.GoodputBy.items() if number
}


def routes(calls: Calls) -> list[Route]:
    """Every address, each for one gRPC method."""
    gate = Gate(calls)
    found: list[Route] = []
    for base in (_CUSTOM_JOBS, "/v1/jobs"):
        one = f"{base}/{{id}}"
        found += [
            Route(base, bounded(gate.create), methods=["POST"]),
            Route(base, bounded(gate.list_jobs), methods=["GET"]),
            Route(f"{one}:watch", gate.watch, methods=["GET"]),
            Route(f"{one}/series", bounded(gate.series), methods=["GET"]),
            Route(f"{one}:logs", gate.logs, methods=["GET"]),
            *(Route(f"{one}:{verb}", bounded(gate.change(verb)), methods=["POST"]) for verb in _VERBS),
            Route(one, bounded(gate.get_job), methods=["GET"]),
            Route(f"{one}/goodput", bounded(gate.job_goodput), methods=["GET"]),
        ]
    return [
        *found,
        *ScheduleGate(calls).routes(),
        Route(f"{_CUSTOM_JOBS}/{{id}}", bounded(gate.delete), methods=["DELETE"]),
        Route("/metrics", bounded(gate.metrics), methods=["GET"]),
        Route("/v1/goodput", bounded(gate.goodput), methods=["GET"]),
        Route("/v1/shares", bounded(gate.shares), methods=["GET"]),
        Route("/v1/quotas", bounded(gate.quotas), methods=["GET"]),
        Route("/v1/reservations", bounded(gate.reservations), methods=["GET"]),
        Route("/v1/status", bounded(gate.status), methods=["GET"]),
        Route("/v1/hosts", bounded(gate.list_hosts), methods=["GET"]),
        Route("/v1/hosts/{name}", bounded(gate.get_host), methods=["GET"]),
        Route("/v1/hosts/{name}/events", bounded(gate.host_events), methods=["GET"]),
    ]


class Gate:
    """The endpoints. Each raises what ``errors.answer`` prints."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, request: Request) -> Response:
        given = body.parameters(request, ("requestId", "validateOnly", "template"))
        project, template, patch = _project(request), body.single(given, "template"), ""
        if template:
            job, patch = job_pb2.CustomJob(), await body.patch(request)
        else:
            job = await body.job(request)
        if project not in ("", ANY):
            if job.project not in ("", project):
                problem = f"is {job.project!r}, while the address names {project!r}"
                raise InvalidInput([Violation("project", problem, "leave it out of the body")])
            job.project = project
        only = body.truth(given, "validateOnly")
        if only:
            asked = job_pb2.DryRunJobRequest(job=job, template=template, patch=patch)
            return Json(json_view.plain(await self._one(request, f"{JOBS}DryRunJob", asked)))
        message = job_pb2.CreateJobRequest(
            request_id=body.single(given, "requestId"), job=job, template=template, patch=patch
        )
        made = await self._one(request, f"{JOBS}CreateJob", message)
        return Json(_printed(request, made.job) | {"warnings": list(made.warnings)})

    async def get_job(self, request: Request) -> Response:
        given = body.parameters(request, ("readMask", "exitsOfNewest", "foldExits", "withoutWorkers"))
        mask = parse_mask(body.single(given, "readMask"))
        fold, without = body.truth(given, "foldExits"), body.truth(given, "withoutWorkers")

        async def show(found: job_pb2.GetJobResponse) -> Response:
            job = _of_project(request, found.job)
            return await answered(job, lambda: masked(printed(job), mask))

        def printed(job: job_pb2.CustomJob) -> json_view.Json:
            found = _printed(request, job, workers=not without)
            found |= {"hostCount": job.host_count} if without else {}
            return found | json_view.exit_groups(job) if fold else found

        newest = body.whole(given, "exitsOfNewest") or 0
        asked = job_pb2.GetJobRequest(
            id=request.path_params["id"], exits_of_newest=newest, fold_exits=fold, without_workers=without
        )
        return await self._shown(request, f"{JOBS}GetJob", asked, show)

    async def job_goodput(self, request: Request) -> Response:
        body.parameters(request, ())
        await self._check_project(request)
        job_id = request.path_params["id"]

        async def show(found: job_pb2.GetGoodputResponse) -> Response:
            return Json(json_view.goodput(job_id, found))

        return await self._shown(request, f"{JOBS}GetGoodput", job_pb2.GetGoodputRequest(id=job_id), show)

    async def goodput(self, request: Request) -> Response:
        given = body.parameters(request, ("by", "since", "until"))
        by = body.single(given, "by") or "project"
        if by not in _GOODPUT_BY:
            raise InvalidInput([Violation("by", f"must be one of {', '.join(_GOODPUT_BY)}", "or left out")])
        message = cluster_pb2.SumGoodputRequest(by=_GOODPUT_BY[by])
        for name in ("since", "until"):
            body.set_time(message, given, name)

        async def show(found: cluster_pb2.SumGoodputResponse) -> Response:
            return await answered(found, lambda: json_view.goodput_sums(by, found))

        return await self._shown(request, f"{CLUSTER}SumGoodput", message, show)

    async def list_jobs(self, request: Request) -> Response:
        names = ("pageSize", "pageToken", "filter", "readMask", "view", "search", "newest", "onePerArray")
        given = body.parameters(request, names)
        mask, row = parse_mask(body.single(given, "readMask")), _is_row(given)
        message = job_pb2.ListJobsRequest(
            page_size=body.whole(given, "pageSize") or 0,
            page_token=body.single(given, "pageToken"),
            filter=_filter(body.single(given, "filter"), _project(request)),
            newest=body.truth(given, "newest"),
            view=job_pb2.JOB_VIEW_ROW if row else job_pb2.JOB_VIEW_UNSPECIFIED,
            search=body.single(given, "search"),
            one_per_array=body.truth(given, "onePerArray"),
        )
        key = "customJobs" if "project" in request.path_params else "jobs"

        async def show(found: job_pb2.ListJobsResponse) -> Response:
            jobs, token = found.jobs, found.next_page_token
            if row:
                return await listed_rows(key, jobs, token)
            return await listed(key, jobs, lambda job: masked(_printed(request, job, workers=False), mask), token)

        if row:
            return await self._shown(request, f"{JOBS}ListJobs", message, show)
        # Whole jobs have secret-looking values for their owners alone.
        return await show(await self._one(request, f"{JOBS}ListJobs", message))

    def change(self, verb: str) -> Endpoint:
        """The endpoint of a verb that takes nothing but the job. As there, customJobs answer ``{}``."""
        method, message = _VERBS[verb]

        async def endpoint(request: Request) -> Response:
            body.parameters(request, ())
            await body.no_body(request)
            await self._check_project(request)
            changed = await self._one(request, method, message(id=request.path_params["id"]))
            return Json({} if "project" in request.path_params else _printed(request, changed.job))

        return endpoint

    async def delete(self, request: Request) -> Response:
        """Delete a job that has ended. Answers with an operation that is done, as the reference has it."""
        body.parameters(request, ())
        await body.no_body(request)
        await self._check_project(request)
        job_id = request.path_params["id"]
        await self._one(request, f"{JOBS}DeleteJob", job_pb2.DeleteJobRequest(id=job_id))
        project, location = request.path_params["project"], request.path_params["location"]
        return Json(
            {
                "name": f"projects/{project}/locations/{location}/operations/delete-{job_id}",
                "done": True,
                "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
            }
        )

    async def watch(self, request: Request) -> Response:
        given = body.parameters(request, ("cursor",))
        message = job_pb2.WatchJobRequest(id=request.path_params["id"], cursor=body.cursor(request, given))
        await self._check_project(request)
        form = streams.events_form(request)
        return await streams.response(request, self._calls, f"{JOBS}WatchJob", message, context_of(request), form)

    async def series(self, request: Request) -> Response:
        names = ("rank", "figure", "since", "until", "points", "recording", "pageToken", "bands")
        given = body.parameters(request, names)
        message = job_pb2.GetSeriesRequest(
            id=request.path_params["id"],
            ranks=body.numbers(given, "rank"),
            figures=[part for value in given.get("figure", ()) for part in value.split(",")],
            points=body.whole(given, "points") or 0,
            recording=body.single(given, "recording"),
            page_token=body.single(given, "pageToken"),
            bands=body.truth(given, "bands"),
        )
        body.set_time(message, given)
        body.set_time(message, given, "until")
        await self._check_project(request)

        async def show(found: job_pb2.GetSeriesResponse) -> Response:
            return await answered(found, lambda: json_view.series(found))

        return await self._shown(request, f"{JOBS}GetSeries", message, show)

    async def logs(self, request: Request) -> Response:
        names = ("worker", "rank", "generation", "follow", "tailLines", "since")
        parts = ("stream", "offset", "endOffset", "contains", "ignoreCase")
        given = body.parameters(request, (*names, *parts))
        tail = body.whole(given, "tailLines")
        message = job_pb2.StreamLogsRequest(
            id=request.path_params["id"],
            workers=[part for value in given.get("worker", ()) for part in value.split(",")],
            ranks=body.numbers(given, "rank"),
            generation=body.whole(given, "generation") or 0,
            follow=body.truth(given, "follow"),
            tail_lines=tail,
            streams=body.log_streams(given),
            offset=body.whole(given, "offset", most=2**63 - 1) or 0,
            end_offset=body.whole(given, "endOffset", most=2**63 - 1) or 0,
            contains=body.single(given, "contains"),
            ignore_case=body.truth(given, "ignoreCase"),
        )
        body.set_time(message, given)
        await self._check_project(request)
        form = streams.logs_form(request, message)
        return await streams.response(request, self._calls, f"{JOBS}StreamLogs", message, context_of(request), form)

    async def metrics(self, request: Request) -> Response:
        message = cluster_pb2.GetMetricsRequest(accept=request.headers.get("accept", ""))
        found = await self._one(request, f"{CLUSTER}GetMetrics", message)
        return Response(found.text, headers={"Content-Type": found.content_type, "Cache-Control": "no-store"})

    async def status(self, request: Request) -> Response:
        return await self._whole(request, "GetStatus", json_view.status)

    async def quotas(self, request: Request) -> Response:
        return await self._whole(request, "ListQuotas", json_view.plain)

    async def reservations(self, request: Request) -> Response:
        return await self._whole(request, "ListReservations", json_view.plain)

    async def shares(self, request: Request) -> Response:
        return await self._whole(request, "ListShares", json_view.plain)

    async def _whole(self, request: Request, call: str, view: Callable[[Any], Any]) -> Response:
        body.parameters(request, ())
        asked: Message = getattr(cluster_pb2, f"{call}Request")()

        async def show(found: Any) -> Response:
            return await answered(found, lambda: view(found))

        return await self._shown(request, CLUSTER + call, asked, show)

    async def list_hosts(self, request: Request) -> Response:
        given = body.parameters(request, ("pageSize", "pageToken"))
        size, token = body.whole(given, "pageSize") or 0, body.single(given, "pageToken")
        message = host_pb2.ListHostsRequest(page_size=size, page_token=token)

        return await self._shown(request, f"{HOSTS}ListHosts", message, listed_hosts)

    async def get_host(self, request: Request) -> Response:
        body.parameters(request, ())
        message = host_pb2.GetHostRequest(name=request.path_params["name"])

        async def show(found: host_pb2.GetHostResponse) -> Response:
            return Json(json_view.host(found.host))

        return await self._shown(request, f"{HOSTS}GetHost", message, show)

    async def host_events(self, request: Request) -> Response:
        given = body.parameters(request, ("since", "pageSize", "pageToken", "newest"))
        message = host_pb2.ListHostEventsRequest(
            name=request.path_params["name"],
            page_size=body.whole(given, "pageSize") or 0,
            page_token=body.single(given, "pageToken"),
            newest=body.truth(given, "newest"),
        )
        body.set_time(message, given)

        async def show(found: host_pb2.ListHostEventsResponse) -> Response:
            return await listed("events", found.events, json_view.host_event, found.next_page_token)

        return await self._shown(request, f"{HOSTS}ListHostEvents", message, show)

    async def _job(self, request: Request) -> job_pb2.CustomJob:
        """The job that the address names. Raises ``NotFound`` for one of another project too."""
        message = job_pb2.GetJobRequest(id=request.path_params["id"])
        return _of_project(request, (await self._one(request, f"{JOBS}GetJob", message)).job)

    async def _check_project(self, request: Request) -> None:
        """Raises ``NotFound`` where the address names a project, and the job is of another."""
        if _project(request) not in ("", ANY):
            await self._job(request)

    async def _one(self, request: Request, method: str, message: Message) -> Any:
        return await self._calls.one(method, message, context_of(request))

    async def _shown(
        self, request: Request, method: str, message: Message, show: Callable[[Any], Awaitable[Response]]
    ) -> Response:
        address = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        after = getattr(request.state, "after", None)
        asked = Asked(address, request.headers.get("accept-encoding", ""), request.app.state.bounds, after)
        return await self._calls.shown(method, message, context_of(request), show, asked)


def _of_project(request: Request, job: job_pb2.CustomJob) -> job_pb2.CustomJob:
    """The job, unless the address names another project than its own. Raises ``NotFound``."""
    project = _project(request)
    if project not in ("", ANY, job.project):
        raise NotFound(f"There is no job {job.id!r} in project {project!r}.")
    return job


def _is_row(given: dict[str, list[str]]) -> bool:
    view = body.single(given, "view")
    if view not in ("", "ROW"):
        raise InvalidInput([Violation("view", "must be ROW, or be left out")])
    return view == "ROW"


def _project(request: Request) -> str:
    """The project that the address names, empty for the short addresses. Raises ``InvalidInput``."""
    project: str = request.path_params.get("project", "")
    if project and project != ANY and not projects.is_project(project):
        fix = f"or {ANY} for any"
        raise InvalidInput([Violation("project", f"must {projects.MUST}", fix)])
    return project


def _filter(given: str, project: str) -> str:
    if project in ("", ANY):
        return given
    return f"project={project} AND {given}" if given.strip() else f"project={project}"


def _printed(request: Request, job: job_pb2.CustomJob, *, workers: bool = True) -> json_view.Json:
    """The job as ``job show -o json`` prints it, at the addresses of the reference in the form that it has there."""
    printed = json_view.job(job, workers=workers)
    if "project" in request.path_params:
        return in_its_form(printed, request.path_params["location"])
    return printed


def application(calls: Calls, names: Callable[[], Collection[str]], more: Collection[Route] = ()) -> Starlette:
    """The ASGI application behind its guards, with ``more`` addresses.

    ``names`` gets those by which callers may ask for us.
    """
    raised = (Aborted, HoldfastError, Refusal, HTTPException, Exception)
    app = Starlette(
        routes=[*more, *routes(calls)],
        middleware=[Middleware(Guards, names=names)],
        exception_handlers=dict.fromkeys(raised, on_error),
    )
    app.router.redirect_slashes = False
    app.state.bounds = Bounds()
    return app
