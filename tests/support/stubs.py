"""Typed stubs for asynchronous channels: the generated classes know synchronous ones only."""

from __future__ import annotations

from typing import cast

import grpc.aio

from holdfast.v1 import (
    access_pb2_grpc,
    agent_pb2_grpc,
    bundle_pb2_grpc,
    cluster_pb2_grpc,
    enrolment_pb2_grpc,
    hang_pb2_grpc,
    host_pb2_grpc,
    job_pb2_grpc,
    schedule_pb2_grpc,
    secret_pb2_grpc,
    web_pb2_grpc,
)


def access_stub(channel: grpc.aio.Channel) -> access_pb2_grpc.AccessServiceAsyncStub:
    return cast("access_pb2_grpc.AccessServiceAsyncStub", access_pb2_grpc.AccessServiceStub(channel))


def agent_stub(channel: grpc.aio.Channel) -> agent_pb2_grpc.AgentServiceAsyncStub:
    return cast("agent_pb2_grpc.AgentServiceAsyncStub", agent_pb2_grpc.AgentServiceStub(channel))


def bundle_stub(channel: grpc.aio.Channel) -> bundle_pb2_grpc.BundleServiceAsyncStub:
    return cast("bundle_pb2_grpc.BundleServiceAsyncStub", bundle_pb2_grpc.BundleServiceStub(channel))


def cluster_stub(channel: grpc.aio.Channel) -> cluster_pb2_grpc.ClusterServiceAsyncStub:
    return cast("cluster_pb2_grpc.ClusterServiceAsyncStub", cluster_pb2_grpc.ClusterServiceStub(channel))


def enrolment_stub(channel: grpc.aio.Channel) -> enrolment_pb2_grpc.EnrolmentServiceAsyncStub:
    return cast("enrolment_pb2_grpc.EnrolmentServiceAsyncStub", enrolment_pb2_grpc.EnrolmentServiceStub(channel))


def hang_stub(channel: grpc.aio.Channel) -> hang_pb2_grpc.HangServiceAsyncStub:
    return cast("hang_pb2_grpc.HangServiceAsyncStub", hang_pb2_grpc.HangServiceStub(channel))


def host_stub(channel: grpc.aio.Channel) -> host_pb2_grpc.HostServiceAsyncStub:
    return cast("host_pb2_grpc.HostServiceAsyncStub", host_pb2_grpc.HostServiceStub(channel))


def job_stub(channel: grpc.aio.Channel) -> job_pb2_grpc.JobServiceAsyncStub:
    return cast("job_pb2_grpc.JobServiceAsyncStub", job_pb2_grpc.JobServiceStub(channel))


def schedule_stub(channel: grpc.aio.Channel) -> schedule_pb2_grpc.ScheduleServiceAsyncStub:
    return cast("schedule_pb2_grpc.ScheduleServiceAsyncStub", schedule_pb2_grpc.ScheduleServiceStub(channel))


def secret_stub(channel: grpc.aio.Channel) -> secret_pb2_grpc.SecretServiceAsyncStub:
    return cast("secret_pb2_grpc.SecretServiceAsyncStub", secret_pb2_grpc.SecretServiceStub(channel))


def web_stub(channel: grpc.aio.Channel) -> web_pb2_grpc.WebServiceAsyncStub:
    return cast("web_pb2_grpc.WebServiceAsyncStub", web_pb2_grpc.WebServiceStub(channel))
