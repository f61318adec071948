"""A patch of a template that is wrong is refused, with the field and the version that it was meant for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidInput
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.schedules import Template, TemplateVersion, key_of
from holdfast_controller.shell.services import templated

pytestmark = pytest.mark.anyio
POOL = {"replicaCount": 1, "processSpec": {"command": ["train"]}}
SCHEDULING = {"timeout": "2h"}
JOB = {
    "displayName": "train",
    "jobSpec": {"workerPoolSpecs": [POOL, {**POOL, "replicaCount": 3}], "scheduling": SCHEDULING},
}
SEGMENT = {"size": 3, "within": "rack"}


def cluster() -> Cluster:
    version = TemplateVersion(templated.as_json(spec.parse(JOB)), "ann", Wall(0.0))
    found = Cluster(epoch=1)
    found.templates[key_of("default", "train")] = Template("default", "train", "ann", 1, {1: version})
    return found


async def run(patch: Any) -> job_pb2.CustomJob:
    text = patch if isinstance(patch, str) else json.dumps(patch)
    return await templated.job_of(cluster(), job_pb2.CreateJobRequest(template="train", patch=text))


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"jobspec": {}}, "jobspec: is no known field (did you mean jobSpec?)"),
        ({"": 1}, '[""]: is no known field'),
        ({"jobSpec": {"scheduling": {"timout": "1h"}}}, "jobSpec.scheduling.timout: is no known field"),
        ({"jobSpec": 5}, "jobSpec: must be a mapping of fields to values, not 5"),
        ({"jobSpec": None}, "jobSpec: is missing"),
        ({"jobSpec": {"workerPoolSpecs": None}}, "jobSpec.workerPoolSpecs: is missing"),
        ({"jobSpec": {"workerPoolSpecs": []}}, "jobSpec.workerPoolSpecs: must not be empty"),
        ({"jobSpec": {"workerPoolSpecs": {"replicaCount": 2}}}, "jobSpec.workerPoolSpecs: must be a list"),
        ({"jobSpec": {"workerPoolSpecs": [None]}}, "jobSpec.workerPoolSpecs[0]: must be a mapping"),
        ({"jobSpec": {"scheduling": {"timeout": [1]}}}, "jobSpec.scheduling.timeout: must be a duration"),
        ({"jobSpec": {"notifications": [{"url": 5}]}}, "jobSpec.notifications[0].url: must be text, not 5"),
        ({"labels": 5}, "labels: must be a mapping of names to text, not 5"),
        ({"labels": {"a": {"b": 1}}}, "labels.a: must be text, not a mapping"),
        ({"project": 5}, "project: must be text, not 5"),
    ],
)
async def test_an_unknown_field_or_a_wrong_type_is_named_with_the_template(patch: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await run(patch)
    (found,) = refused.value.violations
    assert str(found).startswith(problem)
    assert "The template train@1 with the patch has 1 problem" in str(refused.value)


@pytest.mark.parametrize(
    ("scheduling", "problem"),
    [
        ({"expectedDuration": "3h"}, "expectedDuration: is 3 h, longer than the timeout of 2 h"),
        ({"timeout": 60, "expectedDuration": "2m"}, "expectedDuration: is 2 min, longer than the timeout of 1 min"),
        ({"placement": {"segment": SEGMENT}}, "placement.segment.size: is 3, which doesn't divide the job's 4"),
        ({"spares": 1, "disableRetries": True}, "spares: are of no use where"),
    ],
)
async def test_what_would_be_invalid_only_together_with_the_template_is_refused(
    scheduling: Any, problem: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await run({"jobSpec": {"scheduling": scheduling}})
    (found,) = refused.value.violations
    assert str(found).startswith(f"jobSpec.scheduling.{problem}")


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("[1]", "patch: must be a JSON object"),
        ("null", "patch: must be a JSON object"),
        ('"labels"', "patch: must be a JSON object"),
        ("{", "is not valid JSON: line 1, column 2"),
        ('{"labels": NaN}', "is not valid JSON: NaN is no number"),
        ('{"a":' * 5_000, "is nested too deeply"),
        ('{"labels": ' + "[" * 900 + "]" * 900 + "}", "is nested more than 64 deep"),
        (" " * 60_001, "patch: has 60,001 characters; at most 60,000 are allowed"),
        ('{"project": "vision"}', "patch: sets the project to 'vision'"),
        ('{"labels": {"a": "1"}, "labels": {"b": "2"}}', "labels: is given twice"),
        ('{"labels": {"a": "1", "a": "2"}}', "labels.a: is given twice"),
        ('{"jobSpec": {"scheduling": {}}, "job_spec": {}}', "jobSpec: is given twice"),
        (
            '{"jobSpec": {"workerPoolSpecs": [{"a_b": 1, "aB": 2}]}}',
            "jobSpec.workerPoolSpecs[0].aB: is given twice",
        ),
    ],
)
async def test_what_is_no_patch_is_refused(patch: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await run(patch)
    (found,) = refused.value.violations
    assert str(found).startswith(problem)


async def test_the_same_names_as_labels_are_two() -> None:
    found = await run({"labels": {"a_b": "1", "aB": "2"}})
    assert dict(found.labels) == {"a_b": "1", "aB": "2"}
