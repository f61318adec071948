"""TF_CONFIG and CLUSTER_SPEC: every worker of the job with its address, as TensorFlow and managed services have it."""

from __future__ import annotations

import json
from typing import Any

from holdfast._session.assignment import Launch, Rendezvous

TF_TASKS = ("chief", "worker", "ps", "evaluator")
TF_CLUSTER_POOLS = 3
"""TensorFlow counts no evaluator among its cluster, though each of them finds the cluster in TF_CONFIG."""
VALUE_MAX_BYTES = 128 * 1024 - 1024
"""Linux refuses to start a program with one variable of 128 KiB (MAX_ARG_STRLEN)."""


def of_cluster(launch: Launch, rendezvous: Rendezvous) -> dict[str, str]:
    """Both variables, without what no variable can hold: first the job's spec goes, then the variable."""
    both = {"TF_CONFIG": _tf_config(launch, rendezvous), "CLUSTER_SPEC": _cluster_spec(launch, rendezvous)}
    return {name: text for name, text in both.items() if len(text) <= VALUE_MAX_BYTES}


def _tf_config(launch: Launch, rendezvous: Rendezvous) -> str:
    named = zip(TF_TASKS, rendezvous.pools[:TF_CLUSTER_POOLS], strict=False)
    task = TF_TASKS[launch.pool] if launch.pool < len(TF_TASKS) else f"workerpool{launch.pool}"
    config = {
        "cluster": {task: list(addresses) for task, addresses in named if addresses},
        "task": {"type": task, "index": launch.replica},
        "job": _job(launch.spec_json),
        "environment": "cloud",
    }
    return _within_bounds(config, without_job={})


def _job(spec_json: str) -> object:
    """The job's spec as TF_CONFIG has it, which is no text within the text."""
    try:
        return json.loads(spec_json)
    except ValueError:
        return {}


def _cluster_spec(launch: Launch, rendezvous: Rendezvous) -> str:
    pools = enumerate(rendezvous.pools)
    spec = {
        "cluster": {f"workerpool{number}": list(addresses) for number, addresses in pools if addresses},
        "environment": "cloud",
        "task": {"type": f"workerpool{launch.pool}", "index": launch.replica},
        "job": launch.spec_json,
        "open_ports": [launch.own_port] if launch.own_port else [],
    }
    return _within_bounds(spec, without_job="")


def _within_bounds(value: dict[str, Any], without_job: object) -> str:
    """The value as JSON, without its job where a variable can't hold it."""
    text = json.dumps(value)
    return text if len(text) <= VALUE_MAX_BYTES else json.dumps({**value, "job": without_job})
