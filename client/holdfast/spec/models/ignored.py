"""Parts of managed training services' jobs that a bare host has nothing like, or only a directory for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.spec.models.base import Model
from holdfast.spec.models.scalars import Many, Text, Whole

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


class LustreMount(Model):
    """A file system of a Lustre server. Kept; nothing is mounted."""

    instance_ip: Kept = ""
    """The server's address."""
    volume_handle: Kept = ""
    """The server's own name for it."""
    filesystem: Kept = ""
    """The file system there."""
    mount_point: Kept = ""
    """Below /mnt/lustre."""


class ReservationAffinity(Model):
    """Machines that were reserved before. Kept; a job has the hosts that are there."""

    reservation_affinity_type: Kept = ""
    """Such as ANY_RESERVATION."""
    key: Kept = ""
    """The label of a reservation."""
    values: Annotated[tuple[Kept, ...], Many(0, 100)] = ()
    """Its names."""


class DnsPeeringConfig(Model):
    """Names that another network answers for. Kept; hosts resolve names as they always do."""

    domain: Kept = ""
    """The names' ending."""
    target_project: Kept = ""
    """The project of the network."""
    target_network: Kept = ""
    """The network."""


class PscInterfaceConfig(Model):
    """A network of a cloud that machines are attached to. Kept; ranks use their host's network."""

    network_attachment: Kept = ""
    """The attachment."""
    dns_peering_configs: Annotated[tuple[DnsPeeringConfig, ...], Many(0, 100)] = ()
    """Names that the network answers for."""


class EncryptionSpec(Model):
    """The key that a managed service encrypts a job's data with. Kept; nothing is encrypted for a job."""

    kms_key_name: Kept = ""
    """The key's name."""


class DiskSpec(Model):
    """A virtual machine's boot disk. Kept; a worker uses its host's disks."""

    boot_disk_type: Kept = ""
    """Such as pd-ssd."""
    boot_disk_size_gb: Annotated[int, Whole(0, 2**31 - 1)] = 0
    """In GB."""
