"""Converts a job's spec to the core's gang."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from holdfast import spec
from holdfast._base.job_file.choices import HangAction, RestartScope
from holdfast._base.job_file.label_match import read_match
from holdfast._session.assignment import PackagedCode, SecretVariable, WarmStart
from holdfast.hang.thresholds import HangSettings
from holdfast.spec import DisconnectPolicy, HangDetection, JobSpec, WarmMode, WorkerPoolSpec
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.gang import (
    ANYWHERE,
    Gang,
    HostSelector,
    Pool,
    Retries,
    Strategy,
    Task,
)
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.shell.convert.job_defaults import JobDefaults
from holdfast_controller.shell.notify.channels import subscriptions_of

NO_HOLDERS: Mapping[str, str] = {}
_DEFAULTS = JobDefaults()


def gang_of(
    spec: JobSpec,
    defaults: JobDefaults = _DEFAULTS,
    *,
    project: str = "default",
    holders: Mapping[str, str] = NO_HOLDERS,
) -> Gang:
    """Convert a validated spec to a gang. ``holders``: the owner of each secret that the spec names."""
    scheduling, tolerance = spec.scheduling, spec.fault_tolerance
    policy, warm = tolerance.disconnect_policy or defaults.disconnect_policy, tolerance.warm
    gang = Gang(
        pools=tuple(
            Pool(
                replicas=pool.replica_count,
                task=_task(pool, holders) if pool.replica_count else Task(()),
                processes=pool.processes_per_worker,
                cpus=pool.machine_spec.cpu_count,
                memory_mb=pool.machine_spec.memory_mb,
                gpus=pool.machine_spec.accelerator_count,
                gpu_type=pool.machine_spec.accelerator_type,
                gpu_partition=pool.machine_spec.gpu_partition_size.lower(),
                selector=found if (found := _selector(pool.host_selector)) != ANYWHERE else None,
                machines=defaults.machines(pool.machine_spec.machine_type, at) if pool.replica_count else (),
            )
            for at, pool in enumerate(spec.worker_pool_specs)
        ),
        timeout_s=scheduling.timeout,
        expected_s=scheduling.expected_duration or 0.0,
        grace_s=scheduling.grace_period,
        end_grace_s=scheduling.end_grace,
        max_worker_restarts=tolerance.max_worker_restarts,
        success=spec.success_policy,
        hang=_hang_settings(tolerance.hang_detection, defaults.hang_action),
        max_hang_restarts=tolerance.max_hang_restarts,
        retries=_retries(spec),
        strategy=Strategy[scheduling.strategy.current.name],
        priority=scheduling.priority,
        project=project,
        max_wait_s=scheduling.max_wait_duration,
        waits=scheduling.wait_for_resources,
        after=tuple(Dependency(each.job, each.end) for each in scheduling.after),
        pause_if_unmet=scheduling.pause_if_unmet,
        selector=_selector(scheduling.host_selector),
        replace_when_lost=policy is DisconnectPolicy.STOP_AND_REPLACE,
        replace_if_isolated=policy is DisconnectPolicy.REPLACE_IF_ISOLATED,
        warning=_warning(scheduling.warning_signal),
        subscriptions=subscriptions_of(spec),
        output_uri=spec.base_output_directory.output_uri_prefix if spec.base_output_directory else "",
        progress_total=spec.progress_total,
        spares=scheduling.spares,
        numa_binding=scheduling.numa_binding,
        underuse=defaults.underuse_policy(scheduling.underuse, project),
        warm=None
        if warm.mode is WarmMode.OFF
        else WarmStart(warm.preload, warm.never, warm.mode is WarmMode.IN_PROCESS),
    )
    near = defaults.locality(scheduling.placement, sum(pool.replicas for pool in gang.pools), gang.gpus)
    gang = replace(gang, near=near) if near is not None else gang
    return gang.running_as(spec.run_as) if spec.run_as else gang


def _task(pool: WorkerPoolSpec, holders: Mapping[str, str]) -> Task:
    """The task that the pool's ranks run."""
    kind = pool.process_spec or pool.container_spec or pool.python_package_spec
    assert kind is not None, "a validated pool has one of the three"
    task = Task(
        command=(),
        args=kind.args,
        env=tuple((variable.name, variable.value) for variable in kind.env),
        secrets=tuple(
            SecretVariable(each.name, file=each.file, secret=each.secret, holder=holders.get(each.secret, ""))
            for each in kind.secret_env
        ),
    )
    match kind:
        case spec.ProcessSpec(packaged_code=code):
            return replace(
                task,
                command=kind.command,
                working_directory=kind.working_directory,
                code=PackagedCode(code.bundle, code.requirements, code.packages) if code is not None else None,
                terminal=kind.terminal,
            )
        case spec.ContainerSpec():
            return replace(task, command=kind.command, image=kind.image_uri)
        case spec.PythonPackageSpec():
            return replace(
                task,
                command=("python3", "-m", kind.python_module.replace("$", "$$")),
                code=PackagedCode(kind.bundle, packages=kind.package_uris),
            )


def _hang_settings(detection: HangDetection, default: HangAction) -> HangSettings:
    return HangSettings(
        action=detection.action or default,
        timeout_s=detection.timeout,
        floor_s=detection.floor,
        ceiling_s=detection.ceiling,
        startup_timeout_s=detection.startup_timeout,
        lone_work_timeout_s=detection.lone_work_timeout,
        external_timeout_s=detection.external_timeout,
        step_pattern=detection.step_pattern,
    )


def _retries(spec: JobSpec) -> Retries:
    """How failures are answered. ``restartJobOnWorkerRestart`` is the scope GANG by another name."""
    tolerance = spec.fault_tolerance
    return Retries(
        scope=RestartScope.GANG if spec.scheduling.restart_job_on_worker_restart else tolerance.restart_scope,
        job_retries=tolerance.max_job_retries,
        permanent_codes=frozenset(tolerance.permanent_exit_codes),
        transient_codes=frozenset(tolerance.transient_exit_codes),
        backoff_s=tolerance.backoff.initial or None,
        backoff_limit_s=tolerance.backoff.limit,
        unconditional=tolerance.unconditional_retry,
        no_progress_limit=tolerance.no_progress_limit,
        disabled=spec.scheduling.disable_retries,
    )


def _selector(selector: spec.HostSelector) -> HostSelector:
    return HostSelector(
        hosts=frozenset(selector.hosts),
        avoid=frozenset(selector.avoid_hosts),
        labels=tuple(sorted(selector.labels.items())),
        avoid_labels=tuple(sorted(selector.avoid_labels.items())),
        match=read_match(selector.match),
    )


def _warning(warning: spec.WarningSignal | None) -> WarningSignal | None:
    if warning is None:
        return None
    return WarningSignal(signal.Signals[warning.signal].value, warning.before)
