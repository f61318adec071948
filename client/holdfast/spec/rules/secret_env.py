"""Rules of a task's secret variables: one source each, each name once, and in no other text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast._base.job_file.expand import references
from holdfast.spec.wording import Broken, Fields


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
