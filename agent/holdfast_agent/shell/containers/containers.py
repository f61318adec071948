"""The containers of this host's workers: one each, from a worker's first preparation until it is forgotten.

A container is found by its name and labels, so that an agent that has lost its memory takes up what is there. One
of an earlier placement, of another image, or that nothing holds open any more is removed and made again.
"""

from __future__ import annotations

import glob
import os
import shutil
import zlib
from collections.abc import Collection
from dataclasses import field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast._session.assignment import Assignment, Launch
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.containers import container_name
from holdfast_agent.core.launch.environment import HostFacts, output_directory
from holdfast_agent.core.model.gpus import SIMULATED
from holdfast_agent.core.model.launch import Container
from holdfast_agent.shell.containers import mounts
from holdfast_agent.shell.containers.output_mount import Unreachable, entered_by, is_mounted
from holdfast_agent.shell.containers.podman import EngineFailed, EngineSilent, Held, Image, Podman
from holdfast_agent.shim.processes import Process

AGENT, JOB, WORKER, ATTEMPT, IMAGE = (f"holdfast.{name}" for name in ("agent", "job", "worker", "attempt", "image"))
CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
_ENVIRON_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class ContainerSettings:
    """The settings of ``[containers]`` in agent.toml."""

    enabled: bool = True
    """Whether jobs may run in containers here."""
    podman: str = "podman"
    """The program, by its name or path."""
    init: str = "catatonit"
    """What holds a container open, by its name or path; has to be linked statically."""
    mounts: tuple[str, ...] = ()
    """Directories of the host's that every container sees."""
    pull_timeout: float = 3600.0
    """Seconds that the pull of an image may take."""


class CannotHave(Exception):
    """There can be no container, and why, as a sentence without the host's name or a full stop."""

    def __init__(self, problem: str, *, host_fault: bool = False) -> None:
        super().__init__(problem)
        self.host_fault = host_fault


@dataclass
class Containers:
    """The containers of one agent. ``problem`` says why this host has none; then ``ensure`` must not be called."""

    settings: ContainerSettings
    engine: Podman | None
    problem: str
    state: int
    """Tells the agents of one machine apart."""
    _at_hand: dict[WorkerId, tuple[int, str, Container]] = field(default_factory=dict)
    _made: set[WorkerId] = field(default_factory=set)
    """Workers that have, or may have, a container."""

    def at_hand(self, desired: Assignment) -> Container | None:
        """The placement's own container if it is known and open, without a question to the engine; else None."""
        attempt, image, container = self._at_hand.get(desired.key, (0, "", None))
        launch = desired.launch
        if container is None or launch is None or (attempt, image) != (desired.attempt, launch.task.image):
            return None
        return container if _is_open(container) else None

    async def ensure(self, desired: Assignment, facts: HostFacts) -> Container:
        """The placement's own, made if need be; pulls the image where the host lacks it. Raises ``CannotHave``."""
        launch = desired.launch
        assert launch is not None, "only a launch names an image"
        if self.engine is None:
            raise CannotHave(self.problem, host_fault=True)
        results = await anyio.to_thread.run_sync(_results, launch, facts)
        if problem := cdi_problem(launch.gpus):
            raise CannotHave(problem)  # of the host's making, but it is good for all other work
        try:
            image = await self._image(self.engine, launch.task.image)
        except EngineFailed as error:
            host_fault = error.no_room or isinstance(error, EngineSilent)
            raise CannotHave(f"the image {launch.task.image}: {error}", host_fault=host_fault) from error
        try:
            held = await self._held(self.engine, desired, launch, facts, results)
            container = _entered(held, image)
        except (EngineFailed, OSError) as error:
            raise CannotHave(f"no container can be made: {error}", host_fault=True) from error
        self._at_hand[desired.key] = (desired.attempt, launch.task.image, container)
        return container

    async def remove(self, key: WorkerId) -> None:
        """The worker's container, if it has one; what can't be removed now is at the agent's next start."""
        if self.engine is None or key not in self._made:
            return
        self._made.discard(key)
        self._at_hand.pop(key, None)
        await _try_to_remove(self.engine, container_name(key, self.state))

    async def remove_orphans(self, known: Collection[WorkerId]) -> None:
        """Remove containers that an earlier run of this agent has left for workers that are not ``known`` any more."""
        if self.engine is None:
            return
        try:
            for held in await self.engine.labelled(AGENT, f"{self.state:08x}"):
                key = WorkerId(held.labels.get(JOB, ""), held.labels.get(WORKER, ""))
                if key in known:
                    self._made.add(key)
                else:
                    log.info("container.orphan_removed", name=held.name)
                    await self.engine.remove(held.id)
        except EngineFailed as error:
            log.warning("container.orphan_search_failed", error=str(error))

    async def _image(self, engine: Podman, uri: str) -> Image:
        found = await engine.image(uri)
        if found is None:
            log.info("image.pull_started", image=uri)
            await engine.pull(uri, self.settings.pull_timeout)
            found = await engine.image(uri)
        if found is None:
            raise EngineFailed("it was pulled and is not there")
        return found

    async def _held(
        self, engine: Podman, desired: Assignment, launch: Launch, facts: HostFacts, results: tuple[str, str] | None
    ) -> Held:
        name = container_name(desired.key, self.state)
        labels = {
            AGENT: f"{self.state:08x}",
            JOB: desired.key.job,
            WORKER: desired.key.worker,
            ATTEMPT: str(desired.attempt),
            IMAGE: launch.task.image,
        }
        self._made.add(desired.key)
        found = await engine.find(name)
        if found is not None:
            if found.pid and all(found.labels.get(label) == value for label, value in labels.items()):
                return found
            await engine.remove(name)
        seen = [*mounts.for_worker(facts, desired.key, launch), *map(mounts.site_mount, self.settings.mounts)]
        try:
            await engine.hold(name, launch.task.image, labels, seen, launch.gpus)
            held = await engine.find(name)
            if held is None or not held.pid:
                raise EngineFailed("it ended at once")
            if results:
                # It may lie on a file server that hangs, for which nothing that calls this off is to wait.
                look = partial(is_mounted, held.pid, *results)
                if not await anyio.to_thread.run_sync(look, abandon_on_cancel=True):
                    raise CannotHave(f"the base output directory {results[0]} was replaced meanwhile")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _try_to_remove(engine, name)
            raise
        return held


def find(settings: ContainerSettings, host: str, state_dir: Path) -> Containers:
    """The containers of this host's agent, with the problem where it can run none. Starts nothing."""
    state = zlib.crc32(f"{host} {state_dir.resolve()}".encode())
    program, init = shutil.which(settings.podman), shutil.which(settings.init)
    problem = ""
    if not settings.enabled:
        problem = "[containers] enabled = false"
    elif program is None:
        problem = f"{settings.podman} is not installed"
    elif init is None:
        problem = f"{settings.init} is not installed"
    elif os.geteuid() != 0:
        problem = "its agent is not root"
    engine = None if problem or program is None or init is None else Podman(program, init)
    return Containers(settings, engine, problem, state)


def cdi_problem(gpus: Collection[str], directories: Collection[str] = CDI_DIRECTORIES) -> str:
    """Why these GPUs can't be given to a container; empty where nothing is known against it."""
    if not gpus:
        return ""
    if any(uuid.startswith(SIMULATED) for uuid in gpus):
        return "its GPUs are simulated, and no container can be given one; leave acceleratorCount out to try things"
    specs = [path for directory in directories for path in sorted(glob.glob(f"{glob.escape(directory)}/*"))]
    said = "\n".join(_read(path) for path in specs if path.endswith((".yaml", ".yml", ".json")))
    how = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
    if "nvidia.com/gpu" not in said:
        return f"no CDI specification of NVIDIA's GPUs in {' or '.join(directories)}; make one: {how}"
    missing = [uuid for uuid in gpus if uuid not in said]
    return f"the CDI specification does not name the GPU {missing[0]}; make it again: {how}" if missing else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


async def _try_to_remove(engine: Podman, name: str) -> None:
    try:
        await engine.remove(name)
    except EngineFailed as error:
        log.warning("container.remove_failed", name=name, error=str(error))


def _results(launch: Launch, facts: HostFacts) -> tuple[str, str] | None:
    """Path and identity of the job's results directory on this host; None for none. Raises ``CannotHave``."""
    path = output_directory(launch.output_uri)
    if not os.path.isabs(path):
        return None
    try:
        return path, entered_by(facts.user, path)
    except Unreachable as problem:
        raise CannotHave(str(problem), host_fault=problem.host_fault) from problem


def _is_open(container: Container) -> bool:
    try:
        process = Process(container.pid)
    except OSError:
        return False
    return process.start_ticks == container.start_ticks and not process.dead


def _entered(held: Held, image: Image) -> Container:
    """The container as ranks will enter it. Raises ``OSError`` where nothing holds it open any more."""
    start_ticks = Process(held.pid).start_ticks
    with open(f"/proc/{held.pid}/environ", "rb") as file:
        text = file.read(_ENVIRON_MAX_BYTES).decode("utf-8", "surrogateescape")
    pairs = (variable.partition("=") for variable in text.split("\0"))
    return Container(
        id=held.id,
        pid=held.pid,
        start_ticks=start_ticks,
        env=tuple((name, value) for name, equals, value in pairs if equals),
        entrypoint=image.entrypoint,
        command=image.command,
        working_directory=image.working_directory,
    )
