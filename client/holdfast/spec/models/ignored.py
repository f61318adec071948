"""Parts of managed training services' jobs that a bare host has nothing like, or only a directory for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.spec.models.base import Model
from holdfast.spec.models.scalars import Text, Whole

Kept = Annotated[str, Text(max_chars=4096)]


class OutputDirectory(Model):
    """The directory or URI for a job's results."""

    output_uri_prefix: Annotated[
        str,
        Text(
            max_chars=4096,
            empty=False,
            pattern=r"(/|file:///|(?!file:)[A-Za-z][A-Za-z0-9+.-]*://).*",
            must='be an absolute path such as "/data/out" or a URI such as "file:///data/out"',
        ),
    ] = Field(examples=["/data/out"])
    """An absolute path or a URI; AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR are below it."""


class NfsMount(Model):
    """A directory of an NFS server. Kept; nothing is mounted."""

    server: Kept = ""
    """The server's name or address."""
    path: Kept = ""
    """The directory there."""
    mount_point: Kept = ""
    """Below /mnt/nfs."""


class DiskSpec(Model):
    """A virtual machine's boot disk. Kept; a worker uses its host's disks."""

    boot_disk_type: Kept = ""
    """Such as pd-ssd."""
    boot_disk_size_gb: Annotated[int, Whole(0, 2**31 - 1)] = 0
    """In GB."""
