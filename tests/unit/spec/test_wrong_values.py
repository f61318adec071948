"""Wrong values in a job file are refused in a sentence that names the field."""

from __future__ import annotations

import pytest
from tests.unit.spec.test_reading import POOL, TASK, complaints, job, with_pool, with_task


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (5, "must be a mapping of fields to values, not 5"),
        (None, "must be a mapping of fields to values, not null"),
        ([], "must be a mapping of fields to values, not a list"),
        ({}, 'jobSpec: is missing (such as jobSpec: {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": '),
        ({"jobSpec": []}, "jobSpec: must be a mapping of fields to values, not a list"),
        (
            job(workerPoolSpecs={}),
            "jobSpec.workerPoolSpecs: must be a list, not a mapping (start each entry with a dash",
        ),
        (job(workerPoolSpecs=[]), "jobSpec.workerPoolSpecs: must not be empty"),
        (job(workerPoolSpecs=[7]), "jobSpec.workerPoolSpecs[0]: must be a mapping of fields to values, not 7"),
        (job(workerPoolSpecs="absent"), 'jobSpec.workerPoolSpecs: must be a list, not "absent"'),
        (with_pool(replicaCount="absent"), f"{POOL}.replicaCount: is missing (such as replicaCount: 1)"),
        (with_pool(processSpec={}), f'{TASK}.command: is missing (such as command: ["python", "train.py"])'),
        (with_task(command=[]), f"{TASK}.command: must not be empty"),
        (with_task(command="a b"), f'{TASK}.command: must be a list, not "a b" (such as ["a", "b"])'),
        (with_task(command=["a", 1]), f'{TASK}.command[1]: must be text, not 1 (put it in quotes: "1")'),
        (with_task(command=["a", True]), f'{TASK}.command[1]: must be text, not true (put it in quotes: "true")'),
        (
            with_task(command=["a\0"]),
            f"{TASK}.command[0]: contains a NUL byte, which no program can be given (remove",
        ),
        (with_task(args=["x", {}]), f"{TASK}.args[1]: must be text, not a mapping"),
        (with_task(args=[None]), f'{TASK}.args[0]: must be text, not null (write "" for empty text)'),
        (with_task(args=["\ud800"]), f"{TASK}.args[0]: is not valid Unicode: it holds half of a surrogate pair"),
        (
            with_task(args=["x" * 131_072]),
            f"{TASK}.args[0]: has 131,072 bytes; at most 131,071 are allowed (pass long",
        ),
        (with_task(args=[""] * 100_001), f"{TASK}.args: has 100,001 entries; at most 100,000 are allowed"),
        (with_task(env={"A": "1"}), f"{TASK}.env: must be a list, not a mapping"),
        (with_task(env=[{"value": "1"}]), f'{TASK}.env[0].name: is missing (such as name: "LEARNING_RATE")'),
        (with_task(env=[{"name": "", "value": "1"}]), f"{TASK}.env[0].name: must not be empty"),
        (
            with_task(env=[{"name": "a-b"}]),
            f"{TASK}.env[0].name: must be letters, digits and underscores, not start",
        ),
        (
            with_task(env=[{"name": "A=B"}]),
            f"{TASK}.env[0].name: must be letters, digits and underscores, not start",
        ),
        (
            with_task(env=[{"name": "A", "value": 1}]),
            f'{TASK}.env[0].value: must be text, not 1 (put it in quotes: "1"',
        ),
        (with_task(env=[{"name": "A", "value": "\0"}]), f"{TASK}.env[0].value: contains a NUL byte"),
        (
            with_task(env=[{"name": f"V{i}"} for i in range(101)]),
            f"{TASK}.env: has 101 entries; at most 100 are allowed",
        ),
        (
            with_task(workingDirectory="data"),
            f'{TASK}.workingDirectory: must be an absolute path such as "/data", not "data"',
        ),
        (with_task(workingDirectory="/a\nb"), f"{TASK}.workingDirectory: contains a control character"),
        (
            with_pool(machineSpec={"acceleratorCount": -1}),
            f"{POOL}.machineSpec.acceleratorCount: must be at least 0,",
        ),
        (
            with_pool(machineSpec={"acceleratorCount": 1025}),
            f"{POOL}.machineSpec.acceleratorCount: must be at most 1,024",
        ),
        (
            with_pool(machineSpec={"cpuCount": "many"}),
            f'{POOL}.machineSpec.cpuCount: must be a whole number, not "many"',
        ),
        (with_pool(machineSpec={"cpuCount": 1.5}), f"{POOL}.machineSpec.cpuCount: must be a whole number, not 1.5"),
        (
            with_pool(machineSpec={"memoryMb": 2**63}),
            f"{POOL}.machineSpec.memoryMb: must be at most 1,073,741,824, not",
        ),
        (
            with_pool(machineSpec={"memoryMb": 10**5000}),
            f"{POOL}.machineSpec.memoryMb: must be at most 1,073,741,824, no",
        ),
        (
            with_pool(machineSpec={"gpuPartitionSize": "1g.10gb"}),
            f"{POOL}.machineSpec.acceleratorCount: is 0, though gpuPartitionSize names a MIG profile (write how many",
        ),
        *(
            (
                with_pool(machineSpec={"acceleratorCount": 1, "gpuPartitionSize": size}),
                f"{POOL}.machineSpec.gpuPartitionSize: must be a MIG profile such as 1g.10gb, not",
            )
            for size in ("10gb", "1g", "MIG 1g.10gb", "0g.10gb", "1g.10gb ")
        ),
        (
            with_pool(machineSpec={"machineType": "x" * 257}),
            f"{POOL}.machineSpec.machineType: has 257 characters; at mo",
        ),
        (with_pool(replicaCount=0), f"{POOL}.replicaCount: must be at least 1, not 0"),
        (
            with_pool(replicaCount=True),
            f"{POOL}.replicaCount: must be a whole number, not true (from 1 to 100,000)",
        ),
        (with_pool(replicaCount="0x1"), f'{POOL}.replicaCount: must be a whole number, not "0x1"'),
        (with_pool(replicaCount=float("nan")), f"{POOL}.replicaCount: must be a whole number, not nan"),
        (with_pool(processesPerWorker=0), f"{POOL}.processesPerWorker: must be at least 1, not 0"),
        (with_pool(processesPerWorker=1025), f"{POOL}.processesPerWorker: must be at most 1,024, not 1025"),
        (job(scheduling={"timeout": 0}), "jobSpec.scheduling.timeout: must be longer than 0 seconds"),
        (
            job(scheduling={"timeout": "1e3"}),
            'jobSpec.scheduling.timeout: must be a duration, not "1e3" (write seconds',
        ),
        (job(scheduling={"timeout": True}), "jobSpec.scheduling.timeout: must be a duration, not true"),
        (job(scheduling={"timeout": "3651d"}), "jobSpec.scheduling.timeout: must be at most 3,650 days, not"),
        (job(scheduling={"timeout": 10**400}), "jobSpec.scheduling.timeout: must be a duration, not a huge number"),
        (
            job(scheduling={"timeout": float("inf")}),
            "jobSpec.scheduling.timeout: must be a duration of 0 or more, not",
        ),
        (job(scheduling={"gracePeriod": "61m"}), 'jobSpec.scheduling.gracePeriod: must be at most 1 h, not "61m"'),
        (
            job(scheduling={"gracePeriod": -1}),
            "jobSpec.scheduling.gracePeriod: must be a duration of 0 or more, not -1",
        ),
        (job(scheduling={"endGrace": "25h"}), 'jobSpec.scheduling.endGrace: must be at most 24 h, not "25h"'),
        (
            job(faultTolerance={"maxWorkerRestarts": 1001}),
            "jobSpec.faultTolerance.maxWorkerRestarts: must be at most 1,000, not 1001",
        ),
        (job(successPolicy="SOME"), 'jobSpec.successPolicy: must be PRIMARY or ALL, not "SOME"'),
        (job(successPolicy=2), "jobSpec.successPolicy: must be PRIMARY or ALL, not 2"),
        (job() | {"displayName": ""}, "displayName: must not be empty"),
        (job() | {"displayName": "x" * 129}, "displayName: has 129 characters; at most 128 are allowed"),
        (job() | {"displayName": "a\u202egnp"}, "displayName: contains the invisible character U+202E"),
        (job() | {"labels": ["a"]}, "labels: must be a mapping of names to text, not a list"),
        (
            job() | {"labels": {"k" * 65: "v"}},
            f'labels: the key "{"k" * 59}…" has 65 characters; at most 64 are allowed',
        ),
        (job() | {"labels": {"a.b": "v" * 65}}, 'labels["a.b"]: has 65 characters; at most 64 are allowed'),
        (
            job(baseOutputDirectory={"outputUriPrefix": "file:///out/%00x"}),
            "jobSpec.baseOutputDirectory.outputUriPrefix: names a NUL byte, which no path has (remove it)",
        ),
        (job() | {"labels": {"": "v"}}, 'labels: the key "" must not be empty'),
        (job() | {"labels": {"a": None}}, 'labels.a: must be text, not null (write "" for empty text)'),
        (job() | {"labels": {f"k{i}": "" for i in range(65)}}, "labels: has 65 entries; at most 64 are allowed"),
        (
            with_pool(processSpec="absent", containerSpec={"imageUri": ""}),
            f"{POOL}.containerSpec.imageUri: must not be empty",
        ),
        *(
            (
                with_pool(processSpec="absent", containerSpec={"imageUri": image}),
                f"{POOL}.containerSpec.imageUri: must be the name of an image, such as",
            )
            for image in ("--help", "-", "a b")
        ),
        (
            with_pool(
                processSpec="absent",
                pythonPackageSpec={"executorImageUri": "i", "pythonModule": "m", "packageUris": ["u"] * 101},
            ),
            f"{POOL}.pythonPackageSpec.packageUris: has 101 entries; at most 100 are allowed",
        ),
        (
            with_pool(
                processSpec="absent",
                pythonPackageSpec={"executorImageUri": "i", "pythonModule": "m", "packageUris": []},
            ),
            f"{POOL}.pythonPackageSpec.packageUris: must not be empty",
        ),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(data: object, complaint: str) -> None:
    [line] = complaints(data)
    assert line.startswith(complaint)
