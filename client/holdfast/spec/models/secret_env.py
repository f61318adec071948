"""Variables whose values stand nowhere in the job: where they come from, and what may not be done with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from holdfast._base.expand import references
from holdfast._base.secret import NAME_PATTERN, NAME_RULE
from holdfast.spec.models.base import Model
from holdfast.spec.parse.scalars import Many, Refused, Text
from holdfast.spec.rules.violation import Broken, Fields

if TYPE_CHECKING:
    from holdfast.spec.models.job import JobSpec

VariableName = Annotated[
    str,
    Text(
        max_chars=1024,
        empty=False,
        pattern="[A-Za-z_][A-Za-z0-9_]*",
        must="be letters, digits and underscores, not starting with a digit",
    ),
]


class SecretName(Text):
    """The name of a secret. What is none is not shown: it may be the secret itself."""

    def read(self, value: object) -> str:
        try:
            return super().read(value)
        except Refused as refused:
            if not isinstance(value, str):
                raise
            raise Refused(f"must be {NAME_RULE}", "this is the name of a secret, never its value") from refused


class SecretEnvVar(Model):
    """One environment variable whose value is secret: from the controller's store, or from a file on the hosts."""

    name: VariableName = Field(examples=["WANDB_API_KEY"])
    """Letters, digits and underscores."""
    secret: Annotated[str, SecretName(max_chars=63, pattern=NAME_PATTERN)] = Field(default="", examples=["wandb"])
    """A secret that was kept with `holdfast secret set`: your own, or that of the job's project."""
    file: Annotated[str, Text(max_chars=4096, pattern="/.*", must='be an absolute path such as "/etc/keys/x"')] = ""
    """Absolute path of a file on each host, of at most 64 KiB, read as the account that the ranks run as."""


SecretEnv = Annotated[tuple[SecretEnvVar, ...], Many(0, 100)]


def broken(task: Fields) -> Iterator[Broken]:
    """Every broken rule of a task's secret variables, at places counted from the task."""
    secrets = task.get("secret_env") or ()
    plain = {v["name"]: index for index, v in enumerate(task.get("env") or ()) if v and v.get("name")}
    first: dict[str, int] = {}
    for index, variable in enumerate(secrets):
        if variable is None:
            continue
        yield from _source(variable, index)
        name = variable.get("name")
        if not name:
            continue
        by = f"env[{plain[name]}]" if name in plain else ""
        if first.setdefault(name, index) != index:
            by = f"secretEnv[{first[name]}]"
        if by:
            yield Broken(("secret_env", index, "name"), f"{name} is set already by {by}", "set it once")
    yield from _shown(task, set(first))


def _source(variable: Fields, index: int) -> Iterator[Broken]:
    secret, file = variable.get("secret", ""), variable.get("file", "")
    if secret is None or file is None or bool(secret) != bool(file):
        return
    problem = "names both a secret and a file" if secret else "says nothing of where its value comes from"
    yield Broken(("secret_env", index), problem, "write secret: NAME or file: /PATH")


def _shown(task: Fields, names: set[str]) -> Iterator[Broken]:
    """References to a secret: what they stand in is seen by everybody on the host, or is kept with the job."""
    texts: list[tuple[tuple[str | int, ...], Any]] = []
    for field in ("command", "args"):
        texts += [((field, index), text) for index, text in enumerate(task.get(field) or ())]
    for index, variable in enumerate(task.get("env") or ()):
        texts.append((("env", index, "value"), (variable or {}).get("value")))
    for place, text in texts:
        for name in sorted(names & set(references(text or ""))):
            fix = f"have the program read {name} from its environment"
            yield Broken(place, f"refers to {name}, which is secret and is put into no other text", fix)


def secret_variables(job: JobSpec) -> Iterator[tuple[str, SecretEnvVar]]:
    """(path of the field, variable) of every secret variable of the job."""
    for index, pool in enumerate(job.worker_pool_specs):
        tasks = {
            "processSpec": pool.process_spec,
            "containerSpec": pool.container_spec,
            "pythonPackageSpec": pool.python_package_spec,
        }
        for kind, task in tasks.items():
            for number, variable in enumerate(task.secret_env if task is not None else ()):
                yield f"jobSpec.workerPoolSpecs[{index}].{kind}.secretEnv[{number}]", variable
