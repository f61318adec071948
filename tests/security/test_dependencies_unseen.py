"""A job of a project that the caller may not see is, as one to run after, a job that isn't there."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast_controller.shell.services.spec_checks import check_dependencies

POOL = {"replicaCount": 1, "processSpec": {"command": ["true"]}}


def test_its_refusal_is_that_of_an_id_that_names_no_job() -> None:
    world = World(hosts=1)
    world.submit("hidden", gang(1, project="secret"))
    world.submit("seen", gang(1, project="vision"))
    after = [{"job": name} for name in ("seen", "hidden")]
    job = spec.parse({"jobSpec": {"workerPoolSpecs": [POOL], "scheduling": {"after": after}}, "displayName": "x"})
    with pytest.raises(InvalidSpec) as refused:
        check_dependencies(job.job_spec, world.cluster, {"vision"}.__contains__)
    assert [str(each) for each in refused.value.violations] == [
        "jobSpec.scheduling.after[1].job: there is no job 'hidden' (name one that has not been deleted, by its whole"
        " id: holdfast ps --all)"
    ]
    check_dependencies(job.job_spec, world.cluster, lambda project: True)
