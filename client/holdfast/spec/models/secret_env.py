"""Variables whose values stand nowhere in the job: where they come from, and what may not be done with them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast._base.secret import NAME_PATTERN, NAME_RULE
from holdfast.spec.models.base import Model
from holdfast.spec.models.scalars import Many, Text
from holdfast.spec.wording import Refused

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
