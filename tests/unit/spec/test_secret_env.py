"""Variables whose values stand nowhere in the job: what may be written of them, and what no message shows."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from holdfast import spec
from holdfast._base.secret import MAX_BYTES, Secret, taken
from holdfast.errors import InvalidInput, InvalidSpec
from holdfast.spec.models.references import secret_variables

CANARY = "sk-canary/77+=="


def job(kind: str = "processSpec", **task: Any) -> dict[str, Any]:
    required: dict[str, dict[str, Any]] = {
        "processSpec": {"command": ["python", "train.py"]},
        "containerSpec": {"imageUri": "image:1"},
        "pythonPackageSpec": {"packageUris": ["https://files.example/a.tar.gz"], "pythonModule": "m"},
    }
    pool = {"replicaCount": 1, kind: {**required[kind], **task}}
    return {"displayName": "j", "jobSpec": {"workerPoolSpecs": [pool]}}


def problems(data: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        spec.parse(data, what="job.yaml")
    assert CANARY not in str(caught.value)
    return [str(violation) for violation in caught.value.violations]


@pytest.mark.parametrize("kind", ["processSpec", "containerSpec", "pythonPackageSpec"])
@pytest.mark.parametrize("spelling", ["secretEnv", "secret_env"])
def test_every_kind_of_task_takes_secrets_and_prints_their_names(kind: str, spelling: str) -> None:
    variables = [{"name": "KEY", "secret": "wandb"}, {"name": "X", "file": "/etc/keys/x"}]
    read = spec.parse(job(kind, **{spelling: variables}), what="job.yaml")
    assert spec.to_dict(read)["jobSpec"]["workerPoolSpecs"][0][kind]["secretEnv"] == variables
    assert spec.job_from_proto(spec.job_to_proto(read)) == read
    place = f"jobSpec.workerPoolSpecs[0].{kind}.secretEnv"
    assert [path for path, _ in secret_variables(read.job_spec)] == [f"{place}[0]", f"{place}[1]"]


PLACE = "jobSpec.workerPoolSpecs[0].processSpec"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            {"secretEnv": [{"name": "K", "secret": "a", "file": "/a"}]},
            f"{PLACE}.secretEnv[0]: names both a secret and a file (write secret: NAME or file: /PATH)",
        ),
        (
            {"secretEnv": [{"name": "K"}]},
            f"{PLACE}.secretEnv[0]: says nothing of where its value comes from (write secret: NAME or file: /PATH)",
        ),
        (
            {"secretEnv": [{"name": "K", "file": "keys/x"}]},
            f'{PLACE}.secretEnv[0].file: must be an absolute path such as "/etc/keys/x", not "keys/x"',
        ),
        (
            {"env": [{"name": "K", "value": "1"}], "secretEnv": [{"name": "K", "secret": "a"}]},
            f"{PLACE}.secretEnv[0].name: K is set already by env[0] (set it once)",
        ),
        (
            {"secretEnv": [{"name": "K", "secret": "a"}, {"name": "K", "secret": "b"}]},
            f"{PLACE}.secretEnv[1].name: K is set already by secretEnv[0] (set it once)",
        ),
        (
            {"args": ["--key=$(K)", "$$(K)"], "secretEnv": [{"name": "K", "secret": "a"}]},
            f"{PLACE}.args[0]: refers to K, which is secret and is put into no other text"
            " (have the program read K from its environment)",
        ),
        (
            {"env": [{"name": "URL", "value": "https://u:$(K)@h"}], "secretEnv": [{"name": "K", "secret": "a"}]},
            f"{PLACE}.env[0].value: refers to K, which is secret and is put into no other text"
            " (have the program read K from its environment)",
        ),
    ],
)
def test_what_makes_no_sense_or_would_show_a_secret_is_refused(task: dict[str, Any], said: str) -> None:
    assert problems(job(**task)) == [said]


def test_a_value_in_the_place_of_its_name_is_refused_and_not_repeated() -> None:
    [said] = problems(job(secretEnv=[{"name": "K", "secret": CANARY}]))
    assert said.startswith(f"{PLACE}.secretEnv[0].secret: must be letters, digits")
    assert "never its value" in said


def test_a_value_written_as_one_of_env_is_refused_and_not_repeated() -> None:
    [said, *_] = problems(job(secretEnv=[{"name": "K", "value": CANARY}]))
    assert said.startswith(f"{PLACE}.secretEnv[0].value: ")


def test_a_secret_shows_itself_to_nobody_who_does_not_ask_for_it() -> None:
    secret = Secret(CANARY.encode())
    shown = [f"{secret}", f"{secret!r:>9}", "%s %r" % (secret, secret), str([secret]), repr({"k": secret})]  # noqa: UP031
    assert all(CANARY not in text and "***" in text for text in shown)
    assert CANARY not in str(copy.deepcopy([secret]))
    assert secret.reveal() == CANARY.encode()
    assert not hasattr(secret, "__dict__")
    for refused in (lambda: pickle.dumps(secret), lambda: json.dumps(secret), lambda: hash(secret)):
        with pytest.raises(TypeError) as caught:
            refused()
        assert CANARY not in str(caught.value)
    assert secret == Secret(CANARY.encode()) and secret != Secret(b"other") and secret != CANARY


def test_the_line_end_of_a_file_is_no_part_of_the_value() -> None:
    assert taken(b"abc\n") == taken(b"abc\r\n") == taken(b"abc") == Secret(b"abc")
    assert taken(b"a\n\n") == Secret(b"a\n")


@pytest.mark.parametrize("value", [b"", b"\n", CANARY.encode() + b"\0", CANARY.encode() * MAX_BYTES])
def test_values_that_no_variable_holds_are_refused_and_not_repeated(value: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        taken(value)
    assert "canary" not in str(caught.value)
