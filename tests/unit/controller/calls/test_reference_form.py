"""Jobs at the addresses of the reference, as its clients read them."""

from __future__ import annotations

from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

from holdfast import spec
from holdfast._sdk import json_view
from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.shell.rest.reference import in_its_form


def a_job() -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(id="train-1", display_name="train", project="vision", state=job_pb2.JOB_STATE_FAILED)
    job.job_spec.scheduling.strategy = spec_pb2.SCHEDULING_STRATEGY_SPOT
    job.job_spec.worker_pool_specs.add(replica_count=1).process_spec.command.append("true")
    job.error.CopyFrom(job_pb2.JobError(code=3, message="It failed.", details=["ValueError: bad", "exit 1"]))
    return job


def test_an_error_is_a_status_of_google_s_and_a_strategy_has_its_name() -> None:
    found = in_its_form(json_view.job(a_job()), "here")
    assert found["name"] == "projects/vision/locations/here/customJobs/train-1"
    assert found["jobSpec"]["scheduling"]["strategy"] == "SPOT"
    read = json_format.ParseDict(found["error"], status_pb2.Status(), ignore_unknown_fields=True)
    details = [error_details_pb2.DebugInfo.FromString(each.value).detail for each in read.details]
    assert (read.code, read.message, details) == (3, "It failed.", ["ValueError: bad", "exit 1"])
    assert found["error"]["exitCode"] is None


def test_such_a_job_can_be_submitted_again_and_our_own_form_stays() -> None:
    printed = json_view.job(a_job())
    again = spec.parse(in_its_form(printed, "here"))
    assert again.job_spec.scheduling.strategy is spec.SchedulingStrategy.SPOT
    assert printed["jobSpec"]["scheduling"]["strategy"] == "SCHEDULING_STRATEGY_SPOT"
    assert printed["error"]["details"] == ["ValueError: bad", "exit 1"]


def test_a_job_without_either_is_printed_as_it_is() -> None:
    job = a_job()
    job.ClearField("error")
    job.job_spec.ClearField("scheduling")
    found = in_its_form(json_view.job(job), "here")
    assert (found["error"], "scheduling" in found["jobSpec"]) == (None, False)
