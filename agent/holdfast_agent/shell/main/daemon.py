"""Puts the agent's parts together, runs them in one task group, and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from holdfast import __version__
from holdfast._base.addresses import Addresses
from holdfast._daemon import log, log_file
from holdfast._daemon.instance_lock import only_one
from holdfast._daemon.loop_watch import LoopWatch
from holdfast._daemon.sd_notify import Supervisor
from holdfast._security.tls import TlsFiles
from holdfast._session.reports import WorkerId
from holdfast.errors import ConfigError, StoreError
from holdfast.hang.records.recording import WorkerSample
from holdfast.v1 import agent_pb2
from holdfast_agent.core.gpu.signals import Xid
from holdfast_agent.core.launch import pip_config
from holdfast_agent.core.launch.environment import DEFAULT_PATH, HostFacts
from holdfast_agent.core.launch.scopes import SLICE
from holdfast_agent.gpu.reader import BorrowedGpus, GpuSource, NvmlSource, SimulatedSource
from holdfast_agent.shell import config
from holdfast_agent.shell.base import inventory, topology
from holdfast_agent.shell.cgroups import cgroups, scopes
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.containers import containers
from holdfast_agent.shell.doctor.self_checks import SelfChecks
from holdfast_agent.shell.driver.driver import Driver
from holdfast_agent.shell.driver.executor import Parts
from holdfast_agent.shell.evidence import Examiner
from holdfast_agent.shell.gpus.fault_file import FaultFile
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.gpus.release import GpuFreeing
from holdfast_agent.shell.hangs.feature_reporter import FeatureReporter
from holdfast_agent.shell.main import host_shutdown, reload
from holdfast_agent.shell.main.metrics import Metrics
from holdfast_agent.shell.main.renewal import Renewal
from holdfast_agent.shell.main.status_socket import LocalStatus
from holdfast_agent.shell.output.archive import Archive
from holdfast_agent.shell.output.log_index import LogSampler
from holdfast_agent.shell.packages.as_user import EnvironmentsByUser
from holdfast_agent.shell.packages.bundles import BundleCache
from holdfast_agent.shell.packages.code import Code
from holdfast_agent.shell.prepare.launch_order import Means, why_shm_is_shared
from holdfast_agent.shell.prepare.name_check import Peers
from holdfast_agent.shell.prepare.ports import Ports
from holdfast_agent.shell.prepare.preflight import Fitness
from holdfast_agent.shell.prepare.prepare import Preparation
from holdfast_agent.shell.sampling.history import SampleHistory
from holdfast_agent.shell.sampling.listeners import Listeners
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.series import SeriesKeeper, SeriesReports
from holdfast_agent.shell.session.injections import Injections
from holdfast_agent.shell.session.link import Link
from holdfast_agent.shell.session.rank_shells import Limits, RankShells
from holdfast_agent.shell.session.terminal_input import TerminalInput
from holdfast_agent.shell.session.transfer import Transfer
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shell.shims.spawner import Spawner
from holdfast_agent.shell.shims.worker_files import EpochFile, WorkerFiles
from holdfast_agent.shell.users import trusted_dirs

CGROUP_FILE = "cgroup"
"""Path of the agent's cgroups, in its state_dir, for those who end it and its workers together."""
FIRST_GPU_READING_S = 3.0
"""A driver that takes longer to answer at first must not keep the host away from its controller."""


def run(settings: Config, file: Path | None = None) -> int:
    """Run until SIGTERM or SIGINT; workers are left alone. ``file`` holds the settings, to be read again upon SIGHUP.

    Raises ``ConfigError`` for what can't work, ``WrongState`` where another agent runs on the same state, and
    ``StoreError`` when what has to be durable can't be made so.
    """
    log.configure(settings.log_level, log_file.handler(settings.log_file, settings.log_file_mb))
    # Workers' users must be able to reach their scratch directory and output, and nothing else of ours.
    cache_dir = settings.packages_dir
    modes = {settings.state_dir: 0o711, settings.state_dir / "workers": 0o700, settings.log_dir: 0o711}
    for directory, mode in {**modes, cache_dir: 0o711}.items():
        try:
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
            _hide_names(directory)
        except OSError as error:
            raise ConfigError(f"Cannot create {directory}: {error.strerror}.") from error
    if os.geteuid() == 0 and not settings.allow_root_workers:
        named = {"state_dir": settings.state_dir, "log_dir": settings.log_dir, "[packages] cache_dir": cache_dir}
        for name, folder in named.items():
            trusted_dirs.check(name, folder)
    TlsFiles(settings.ca, settings.cert, settings.key).read()
    failures: list[BaseException] = []
    options = {"use_uvloop": _has_uvloop()}
    with only_one(settings.state_dir, "agent"):
        try:
            anyio.run(_main, settings, file, failures, backend="asyncio", backend_options=options)
        except* StoreError as group:
            failures.insert(0, _first(group))
    if failures:
        raise failures[0]
    return 0


def _hide_names(directory: Path) -> None:
    """Take the right to list it from others: the names in it are those of all jobs. Raises ``OSError``."""
    status = directory.stat()
    if status.st_mode & stat.S_IROTH and status.st_uid == os.geteuid():
        directory.chmod(stat.S_IMODE(status.st_mode) & ~stat.S_IROTH)


def _first(error: BaseException) -> BaseException:
    """The first of a group, however deep."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


async def _main(settings: Config, file: Path | None, failures: list[BaseException]) -> None:
    supervisor = Supervisor()
    log.info("agent.started", version=__version__, host=settings.name, pid=os.getpid())
    facts = HostFacts(
        name=settings.name,
        log_dir=str(settings.log_dir),
        scratch_dir=str(settings.state_dir / "scratch"),
        user=config.worker_user(settings),
        cpu_count=inventory.cpu_count(),
        data_interface=settings.data_interface,
        site_env=config.read_env_file(settings.env_file),
        has_epilog=bool(settings.hooks.epilog),
        local_ranks=(settings.guard.first_local_rank, settings.guard.local_ranks),
        topology=topology.read(settings.simulated_topology or topology.SYSFS),
    )
    address = settings.address or inventory.host_address(settings.data_interface)
    if config.check_certificate(settings).ends_at < time.time():
        # The workers here still need their agent, so it starts.
        log.warning("certificate.expired", file=str(settings.cert), fix="join again: holdfast-agent join")
    source: GpuSource = BorrowedGpus(NvmlSource()) if settings.guard.pid else NvmlSource()
    if settings.simulated_gpus:
        source = SimulatedSource(settings.name, settings.simulated_gpus, settings.simulated_signals)
    spawner = Spawner(settings.state_dir / "shims.log", single=settings.max_workers == 1)
    driver: Driver | None = None
    asked = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            _end_on_failure(tasks.cancel_scope, failures)
            driver = _assemble(settings, facts, address, source, spawner, tasks, supervised=supervisor.present)
            await tasks.start(_end_on_signal, tasks.cancel_scope, driver, supervisor, asked)
            tls = TlsFiles(settings.ca, settings.cert, settings.key)
            renewal = Renewal(settings.enrolment, tls, lambda: driver.connected)
            await _live(driver, spawner, renewal, tasks)
            link = driver.parts.link
            checks = SelfChecks(settings, file, link.send, source, driver.parts.gpus)
            driver.on_session = checks.on_session
            tasks.start_soon(checks.run)
            watch = LoopWatch(lambda stall: link.stood_still(stall.seconds), beat_s=0.1)
            metrics = Metrics(settings, driver.meter, driver.gauges, driver.parts.shims.__len__, watch.series)
            tasks.start_soon(metrics.run)
            if file is not None:
                await tasks.start(reload.run, file, settings, functools.partial(_change, driver, metrics, checks))
            tasks.start_soon(LocalStatus(settings.state_dir, settings.controller, driver).run)
            supervisor.tell(READY=1)
            log_file.ready()
            watch.start()
            tasks.start_soon(supervisor.keep_telling, driver.status)
    finally:
        supervisor.tell(STOPPING=1)
        if driver is not None:
            driver.parts.shims.close()
            driver.parts.hangs.close()
            driver.means.cgroups.leave()
        spawner.close()
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await source.aclose()
    if not asked.is_set() and not failures:
        # A CancelledError that no scope had sent ends a task group as if by order.
        failures.append(RuntimeError("A task of the agent was cancelled that nothing had asked to end."))
    log.info("agent.stopped")


def _change(driver: Driver, metrics: Metrics, checks: SelfChecks, settings: Config) -> None:
    """Have the running parts follow settings that were read again; see ``reload.LIVE``."""
    log.set_level(settings.log_level)
    parts = driver.parts
    parts.preparation.hooks, parts.preparation.fitness.minimums = settings.hooks, settings.checks
    parts.peers.wanted = settings.checks.peer_names
    parts.transfer.shells.change(Limits(settings.shells, settings.shell_idle))
    metrics.readers = settings.metrics_readers
    checks.settings = settings


def _assemble(
    settings: Config,
    facts: HostFacts,
    address: str,
    source: GpuSource,
    spawner: Spawner,
    tasks: anyio.abc.TaskGroup,
    *,
    supervised: bool,
) -> Driver:
    epoch = EpochFile(settings.state_dir / "epoch")
    epoch.reserve()
    tls = TlsFiles(settings.ca, settings.cert, settings.key)
    files = WorkerFiles(settings.state_dir / "workers", facts)
    shared, found = why_shm_is_shared(settings), cgroups.find(settings)
    log.info("shm.mode", mode="shared" if shared else "private", reason=shared)
    log.info("cgroups.mode", root=found.root, reason=found.why)
    with contextlib.suppress(OSError):  # without it, a dev cluster's stop leaves empty cgroups
        (settings.state_dir / CGROUP_FILE).write_text(found.root)
    scoped = scopes.find(settings, cgroups.top(), supervised=supervised, pids=cgroups.most_pids())
    log.info("scopes.mode", slice=SLICE if scoped.tree else "", reason=scoped.why)
    means = Means(not shared, found, settings.labels, scoped, int(settings.umask, 8))
    driver = Driver(facts, epoch.read(), address, tasks, means)
    shims = Shims(files, spawner, driver.on_shim_message, driver.on_shim_lost, settings.guard.pid)
    boxes = containers.find(settings.containers, settings.name, settings.state_dir)
    log.info("containers.mode", error=boxes.problem)
    host = inventory.message(settings.guard.turn or facts.cpu_count, settings.max_workers, boxes.problem)
    addresses = Addresses(settings.controller)
    link = Link(addresses, tls, driver)
    examiner = Examiner(lambda: driver.facts, source)
    history = SampleHistory(settings.state_dir / "workers")
    series = SeriesKeeper(SeriesReports())
    workers = settings.state_dir / "workers"
    hangs = FeatureReporter(facts.name, workers, examiner, history, series, driver.worker, link.send)
    listeners = Listeners()

    def on_sample(sample: WorkerSample) -> None:
        hangs.on_sample(sample)
        listeners.on_sample(sample)

    accounts = config.accounts(settings, facts.user)
    archive = Archive(settings.state_dir / "archive", facts, accounts, functools.partial(_tell_of_archive, link))
    kept = FaultFile(settings.state_dir / "gpu_faults.json")

    def on_names(names: dict[str, str]) -> None:
        buses = {gpu.uuid: gpu.bus_id for gpu in gpus.known}
        driver.on_gpus(names, topology.read(settings.simulated_topology or topology.SYSFS, bus_ids=buses))

    gpus = GpuWatch(source, host, kept, on_names, driver.on_gpu_faults)
    freeing = GpuFreeing(source, files, settings.state_dir / "gpu_unused.json")
    fitness = Fitness(settings.checks, gpus, freeing, driver.unused, fresh_shm=not shared)
    ports = Ports(settings.ports, settings.name)
    parts = Parts(
        files=files,
        epoch=epoch,
        gpus=gpus,
        freeing=freeing,
        sampler=LogSampler(facts, settings.log_limit_mb << 20),
        preparation=Preparation(
            files,
            shims,
            ports,
            accounts,
            settings.allow_root_workers,
            fitness,
            settings.hooks,
            boxes,
            archive,
            _code(settings, addresses, facts, tls, [key.job for key in files.found()]),
            driver.on_preparation_takes_long,
            scoped,
            found,
        ),
        peers=Peers(wanted=settings.checks.peer_names),
        shims=shims,
        link=link,
        transfer=Transfer(
            addresses,
            tls,
            facts,
            driver.is_over,
            hangs.examine,
            listeners,
            history,
            accounts,
            TerminalInput(workers),
            series.reports,
            RankShells(workers, shims, Limits(settings.shells, settings.shell_idle)),
            Injections(workers, shims),
            lambda: driver.epoch,
        ),
        sampling=Sampler(
            facts,
            source,
            driver.watched,
            on_sample,
            tools=examiner.tools,
            on_tick=lambda took_s, late: driver.meter.sampled(took_s, late=late),
        ),
        hangs=hangs,
        series=series,
    )
    driver.equip(parts)
    activity, hangs.gpus = parts.sampling.gpus, parts.sampling.gpus.host
    activity.host.borrowed = bool(settings.guard.pid)

    def on_xids(xids: Sequence[Xid]) -> None:
        gpus.hear(xids)
        activity.hear(xids)

    source.on_xids = activity.hear if activity.host.borrowed else on_xids
    if not activity.host.borrowed:
        activity.on_read = gpus.notice_lost
    return driver


def _tell_of_archive(link: Link, key: WorkerId, problem: str) -> bool:
    report = agent_pb2.ArchiveReport(job_id=key.job, worker=key.worker, problem=problem)
    return link.send(agent_pb2.SessionRequest(archive=report))


def _code(settings: Config, addresses: Addresses, facts: HostFacts, tls: TlsFiles, jobs: list[str]) -> Code:
    """The store of packaged code, after the half-done work of earlier runs was removed."""
    wanted = settings.packages
    directory = settings.packages_dir
    bundles = BundleCache(addresses, tls, directory / "bundles", wanted.bundles_mb << 20, wanted.fetch_timeout)
    search_path = facts.site_env.get("PATH", DEFAULT_PATH)
    variables = pip_config.settings_of(os.environ, facts.site_env)
    environments = EnvironmentsByUser(directory, wanted, variables, search_path)
    code = Code(settings.state_dir / "unpacking", wanted, bundles, environments)
    code.clean(jobs)
    return code


async def _live(driver: Driver, spawner: Spawner, renewal: Renewal, tasks: anyio.abc.TaskGroup) -> None:
    parts = driver.parts
    with anyio.move_on_after(FIRST_GPU_READING_S):
        await parts.gpus.read()
    await driver.adopt()
    try:
        spawner.warm()
    except OSError as error:
        # A full disk, or no process to be had: what runs here needs its agent all the same.
        log.warning("shim_pool.refill_failed", error=str(error))
    tasks.start_soon(driver.remove_orphan_containers)
    parts.preparation.archive.recover(driver.known())
    tasks.start_soon(parts.preparation.archive.run)
    tasks.start_soon(parts.gpus.run)
    tasks.start_soon(parts.sampler.run)
    tasks.start_soon(parts.sampling.run)
    tasks.start_soon(parts.hangs.stacks.run)
    tasks.start_soon(parts.series.run)
    tasks.start_soon(parts.transfer.run)
    tasks.start_soon(parts.link.run)
    tasks.start_soon(renewal.run)


async def _end_on_signal(
    scope: anyio.CancelScope,
    driver: Driver,
    supervisor: Supervisor,
    asked: anyio.Event,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Workers are left alone, unless it is the host that ends."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            asked.set()
            log.info("agent.stopping", signal=signal.Signals(number).name)
            if supervisor.present and await anyio.to_thread.run_sync(host_shutdown.is_under_way):
                log.info("host.shutdown_started")
                await driver.wind_down()
            else:
                await driver.parts.link.end(agent_pb2.SessionRequest(agent_stopping=agent_pb2.AgentStopping()))
            scope.cancel()
            return


def _end_on_failure(scope: anyio.CancelScope, failures: list[BaseException]) -> None:
    """A fault in a callback ends the agent, as one in a task does: a supervisor starts it again, workers run on."""

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.warning("agent.callback_failed", message=context.get("message"), error=repr(error))
        if isinstance(error, Exception):
            failures.append(error)
            scope.cancel()

    asyncio.get_running_loop().set_exception_handler(failed)
