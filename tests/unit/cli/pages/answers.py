"""A job, a host and the cluster's status with every field set."""

from __future__ import annotations

from holdfast.v1 import cluster_pb2, host_pb2, job_pb2, spec_pb2


def full_job() -> job_pb2.CustomJob:
    spec = spec_pb2.CustomJobSpec(
        worker_pool_specs=[
            spec_pb2.WorkerPoolSpec(
                replica_count=1,
                processes_per_worker=2,
                machine_spec=spec_pb2.MachineSpec(accelerator_count=2, memory_mb=4096),
                process_spec=spec_pb2.ProcessSpec(command=["python", "t.py"], env=[spec_pb2.EnvVar(name="A")]),
            )
        ],
        success_policy=spec_pb2.SUCCESS_POLICY_ALL,
    )
    spec.scheduling.timeout.FromSeconds(3600)
    spec.fault_tolerance.max_worker_restarts = 0
    late = job_pb2.Exit(attempt=1, generation=1, rank=0, exit_code=0, reason=job_pb2.EXIT_REASON_COMPLETED)
    lost = job_pb2.Exit(attempt=1, generation=1, reason=job_pb2.EXIT_REASON_LOST_SHIM_DIED, late_exit=late)
    killed = job_pb2.Exit(attempt=1, generation=2, signal=11, core_dumped=True, reason=job_pb2.EXIT_REASON_SIGNALED)
    killed.end_time.FromJsonString("2026-11-21T04:00:01.5Z")
    worker = job_pb2.Worker(
        name="workerpool0-0",
        host="host-0",
        state=job_pb2.WORKER_STATE_RUNNING,
        shim_pid=12,
        gpus=["GPU-1"],
        warm="2 ranks wait",
    )
    binding = job_pb2.RankBinding(cpus="0-3,8-11", exclusive=True, memory_nodes="0", nics=["mlx5_0"])
    worker.ranks.add(rank=0, local_rank=0, pid=34, binding=binding)
    worker.ranks.add(rank=1, local_rank=1)
    worker.exits.extend([lost, killed])
    job = job_pb2.CustomJob(
        id="j1",
        display_name="train",
        job_spec=spec,
        labels={"team": "x"},
        annotations={"note": "n"},
        state=job_pb2.JOB_STATE_RUNNING,
        attempt=1,
        generation=2,
        wait_reason="starting",
        summary=job_pb2.JobSummary(
            condition=job_pb2.JOB_CONDITION_WAITS,
            headline="Starting on h",
            health="Starting on h",
            happened="ann submitted it at 04:00:00 UTC",
            done="Nothing had to be done",
            advice="Nothing: it goes on by itself",
        ),
        workers=[worker],
        owner="ada",
    )
    job.create_time.FromJsonString("2026-11-21T04:00:00Z")
    recovery = job.recoveries.add(
        attempt=1,
        generation=2,
        start_type="RESTARTED",
        end_reason="SIGNALED",
        end_related_task="workerpool0-0 rank 0",
        end_recover="PROC_RESTART",
        warm=True,
    )
    recovery.started_at.FromJsonString("2026-11-21T04:00:02Z")
    recovery.related.ranks.add(worker="workerpool0-0", rank=0)
    recovery.lost.FromMilliseconds(1250)
    recovery.phases.detect.FromMilliseconds(2)
    hang = job.hangs.add(
        number=1, generation=1, rule="GPUS_IDLE", sentence="no rank of 2 has moved for 30 s", step=120.0
    )
    hang.suspects.append("workerpool0-0 rank 1")
    hang.suspect_ranks.add(worker="workerpool0-0", rank=1)
    hang.since.FromJsonString("2026-11-21T04:00:00Z")
    hang.noticed_at.FromJsonString("2026-11-21T04:00:30Z")
    job.health = "no rank of 2 has moved for 31 s"
    return job


def full_host() -> host_pb2.Host:
    host = host_pb2.Host(
        name="host-0",
        state=host_pb2.HOST_STATE_READY,
        cordoned=True,
        cordon_reason="fan",
        cordoned_by="root",
        address="10.0.0.1",
        agent_version="0.1.0",
        boot_id="b",
        job_ids=["j1", "j2"],
        cpu_reserved=4,
        memory_reserved_bytes=1 << 40,
        workers=2,
        draining=True,
        labels={"rack": "7", "pod": "a"},
        refused="too old",
    )
    for stamp in (host.cordoned_since, host.last_seen, host.drain_deadline):
        stamp.FromJsonString("2026-11-21T04:00:00.25Z")
    host.maintenance.start.FromJsonString("2026-11-22T04:00:00Z")
    host.maintenance.deadline.FromSeconds(90)
    host.maintenance.reason = "kernel"
    host.inventory.CopyFrom(
        host_pb2.Inventory(cpu_count=8, memory_bytes=1 << 41, max_workers=16, accounts=True, gives_secrets=True)
    )
    host.inventory.gpus.add(uuid="GPU-1", index=0, model="H100", memory_bytes=80 << 30, problem="ECC")
    stranger = host.strange_work.add(job_id="j9", worker="workerpool0-0", generation=3, gpus=["GPU-1"])
    stranger.since.FromJsonString("2026-11-21T04:00:00Z")
    return host


def full_status() -> cluster_pb2.GetStatusResponse:
    status = cluster_pb2.GetStatusResponse(
        cluster="c",
        version="0.1.0",
        epoch=1 << 33,
        hosts={"ready": 2, "lost": 1},
        gpus={"used": 1, "free": 7},
        jobs={"RUNNING": 1},
        agents={"0.1.0": 3},
        attention_more=4,
    )
    status.started.FromJsonString("2026-11-21T04:00:00Z")
    status.attention.add(kind=cluster_pb2.ATTENTION_KIND_HOST_LOST, subject="host/h", message="m")
    status.topology.extend(("pod", "rack"))
    status.motd.text, status.motd.by = "no work\non Friday", "ann"
    status.motd.time.FromJsonString("2026-11-21T05:00:00Z")
    status.leadership.database, status.leadership.leader = "PostgreSQL database h at db1", "ctl1"
    status.leadership.standbys.append("ctl2")
    status.leadership.risk = "No replica is synchronous."
    status.leadership.standby_details.add(machine="ctl2", behind_events=12, differing_settings="quotas+1")
    return status
