"""The changes that a container makes to how a rank starts: its command, its variables, how it names its GPUs.

The image's own command and variables are taken as they are; ``$(NAME)`` is expanded only in the user's.
"""

from __future__ import annotations

from holdfast._session.assignment import Launch
from holdfast._session.reports import WorkerId
from holdfast_agent.core.model.launch import Container

OF_THE_HOLDER = frozenset({"HOME", "HOSTNAME", "TERM"})
"""Variables that a container's engine sets for the process that holds it open, and not for its ranks."""


def image_argv(container: Container, launch: Launch, users: tuple[str, ...]) -> tuple[str, ...]:
    """The user's command and arguments (``users``, expanded) with what the image has in place of a missing part.

    As with other engines: a command replaces the image's entry point and drops its arguments, arguments alone
    replace the image's. Raises ``ValueError`` where neither names a program.
    """
    if launch.task.command:
        return users
    argv = (*container.entrypoint, *(users or container.command))
    if not argv:
        raise ValueError(f"the image {launch.task.image} names no command to run, and neither does the job")
    return argv


def of_image(container: Container | None, home: str) -> dict[str, str]:
    """Variables that the image sets, with HOME and SHELL as defaults. Empty without a container."""
    if container is None:
        return {}
    set_by_image = {name: value for name, value in container.env if name not in OF_THE_HOLDER}
    return {"HOME": home, "SHELL": "/bin/sh", **set_by_image}


def in_container(container: Container, gpus: tuple[str, ...], known_as: tuple[str, ...]) -> dict[str, str]:
    """Variables that Holdfast sets for ranks in a container. ``known_as``: CUDA's name for each GPU on the host.

    Only its own GPUs are in the container, and CUDA counts them from 0 there. MIG instances keep their UUIDs.
    """
    env = {"HOLDFAST_CONTAINER": container.id}
    if gpus:
        plain = all(name.isdigit() for name in known_as)
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(gpus))) if plain else gpus)
    return env


def container_name(key: WorkerId, state: int) -> str:
    """The name of a worker's container; ``state`` is a number that differs between the agents of one machine."""
    return f"holdfast-{key.job}-{key.worker}-{state:08x}"
