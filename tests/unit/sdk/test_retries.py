"""Which calls the SDK repeats: what the contract says of each, and nothing by hand."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

import holdfast.v1
from holdfast._sdk.transport import OPTIONS

MODULES = sorted(file.stem for file in Path(holdfast.v1.__file__).parent.glob("*_pb2.py"))
NEVER_REPEATED = {
    # Each makes something new, or answers a repetition with NOT_FOUND although the first one worked.
    "AccessService/CreateToken",
    "AccessService/RemoveHost",
    "AccessService/RemoveUser",
    "EnrolmentService/Enrol",
    "EnrolmentService/Renew",
    "EnrolmentService/SignIn",
    "SecretService/RemoveSecret",
    "ScheduleService/CreateSchedule",
    "ScheduleService/RemoveSchedule",
    "ScheduleService/RemoveTemplate",
    "ClusterService/CreateReservation",
    "ClusterService/DeleteReservation",
    "WebService/CreateLogin",
    "WebService/EndSession",
    "WebService/Relay",
    # Keys would be typed twice.
    "JobService/WriteTerminal",
    "JobService/InjectFault",
    "JobService/WriteShell",
    # It begins a program.
    "JobService/OpenShell",
    # It stops the ranks for a moment.
    "HangService/TakeStacks",
    # They go on where they stood by means of their own.
    "AgentService/Session",
    "AgentService/Transfer",
    "BundleService/UploadBundle",
}


def methods() -> dict[str, MethodDescriptor]:
    files = [importlib.import_module(f"holdfast.v1.{module}").DESCRIPTOR for module in MODULES]
    services = [service for file in files for service in file.services_by_name.values()]
    return {f"{service.name}/{method.name}": method for service in services for method in service.methods}


def test_each_call_says_whether_it_may_be_repeated() -> None:
    silent = [name for name, each in methods().items() if not each.GetOptions().HasField("idempotency_level")]
    assert not silent
    unknown = MethodOptions.IDEMPOTENCY_UNKNOWN
    unsafe = {name for name, each in methods().items() if each.GetOptions().idempotency_level == unknown}
    assert unsafe == NEVER_REPEATED


def test_a_call_that_acts_once_by_its_request_id_may_be_repeated() -> None:
    for name, method in methods().items():
        if "request_id" in method.input_type.fields_by_name:
            assert method.GetOptions().idempotency_level == MethodOptions.IDEMPOTENT, name


def test_the_client_repeats_those_and_no_streams() -> None:
    config = json.loads(str(dict(OPTIONS)["grpc.service_config"]))
    (policy,) = config["methodConfig"]
    repeated = {f"{each['service'].rpartition('.')[2]}/{each['method']}" for each in policy["name"]}
    streams = {name for name, each in methods().items() if each.client_streaming or each.server_streaming}
    of_hosts_and_newcomers = {"EnrolmentService/GetAuthority", "EnrolmentService/GetProvider"}
    assert repeated == methods().keys() - NEVER_REPEATED - streams - of_hosts_and_newcomers
    assert {"ClusterService/GetStatus", "HostService/DismissWork", "SecretService/SetSecret"} <= repeated
