"""The job's settings in a recording: none may be lost on the way to its replay."""

from __future__ import annotations

from dataclasses import fields

from holdfast.cli.hangs.hang import replay
from holdfast.cli.hangs.hang_record import DURATIONS, settings_of
from holdfast.hang.thresholds import HangSettings
from holdfast.v1 import job_pb2, spec_pb2

NAMES = {*DURATIONS, "step_pattern"}


def test_every_setting_of_a_job_file_is_recorded_and_is_an_option_of_the_replay() -> None:
    """All but the action: a replay acts on nothing."""
    assert {field.name for field in spec_pb2.HangDetection.DESCRIPTOR.fields} - {"action"} == NAMES
    assert {field.name.removesuffix("_s") for field in fields(HangSettings)} - {"action"} == NAMES
    assert {option.name for option in replay.params} >= NAMES


def test_settings_that_a_job_leaves_to_the_detector_stay_unset() -> None:
    job = job_pb2.CustomJob()
    assert settings_of(job) == HangSettings()
    job.job_spec.fault_tolerance.hang_detection.lone_work_timeout.FromSeconds(90)
    assert settings_of(job) == HangSettings(lone_work_timeout_s=90.0)
