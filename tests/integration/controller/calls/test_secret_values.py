"""Keys and passwords in a job's variables: its owner reads them, and others see that they are set."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.support.stubs import access_stub, job_stub

from holdfast._base.job_file.secret_names import looks_secret
from holdfast.errors import InvalidSpec
from holdfast.v1 import access_pb2, job_pb2, spec_pb2
from holdfast_controller.shell.base.config import ControllerConfig

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(config: ControllerConfig) -> ControllerConfig:
    return dataclasses.replace(config, admins=("ann",))


SECRET = """WANDB_API_KEY HF_TOKEN AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN DB_PASSWORD PGPASSWORD MYSQL_PWD API_KEY
    apikey GITHUB_PAT OPENAI_API_KEY SENTRY_DSN CLIENT_SECRET GOOGLE_CREDENTIALS KEY TOKEN hf_token SSH_PASSPHRASE"""
OTHER = """PATH PWD OLDPWD HOME MONKEY KEYBOARD TOKENIZERS_PARALLELISM MAX_TOKENS KEYS BATCH_SIZE AUTHOR COMPASS"""


def test_variables_are_secret_by_their_names() -> None:
    assert [name for name in SECRET.split() if not looks_secret(name)] == []
    assert [name for name in OTHER.split() if looks_secret(name)] == []


async def test_only_the_owner_reads_the_values(controller: Controller) -> None:
    people = access_stub(controller.channel("user/ann"))
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_ADMIN)
    await people.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)
    asked = job()
    task = asked.job_spec.worker_pool_specs[0].process_spec
    task.env.extend([spec_pb2.EnvVar(name="HF_TOKEN", value="hf_123"), spec_pb2.EnvVar(name="LR", value="0.1")])
    mine, his = (job_stub(controller.channel(f"user/{who}")) for who in ("ann", "bob"))
    created = (await mine.CreateJob(job_pb2.CreateJobRequest(job=asked), timeout=WITHIN_S)).job

    def values(shown: job_pb2.CustomJob) -> list[str]:
        return [each.value for each in shown.job_spec.worker_pool_specs[0].process_spec.env]

    for jobs, token in ((mine, "hf_123"), (his, "***"), (mine, "hf_123")):
        got = (await jobs.GetJob(job_pb2.GetJobRequest(id=created.id), timeout=WITHIN_S)).job
        listed = (await jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)).jobs[0]
        assert values(got) == values(listed) == [token, "0.1"]
    again = job_pb2.CreateJobRequest(job=job())
    again.job.job_spec.CopyFrom(listed.job_spec)
    again.job.job_spec.worker_pool_specs[0].process_spec.env[0].value = "***"
    _, error = await refusal(his.CreateJob(again))
    assert isinstance(error, InvalidSpec)
    assert "HF_TOKEN has no value but ***, as jobs are shown" in str(error.violations[0])
    stopped = (await his.CancelJob(job_pb2.CancelJobRequest(id=created.id), timeout=WITHIN_S)).job
    assert values(stopped) == ["***", "0.1"]
    events = his.WatchJob(job_pb2.WatchJobRequest(id=created.id), timeout=WITHIN_S)
    assert "hf_123" not in json.dumps([str(event) async for event in events])
