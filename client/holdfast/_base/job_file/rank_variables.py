"""Environment variables that say where a rank stands in its job: Holdfast sets them, and a job file can't.

Variables that only tune a program, such as OMP_NUM_THREADS, are the user's wherever they are set.
"""

from __future__ import annotations

WORLD_POOLS = 2
"""The first pools, those of chief and workers: the world of torch and TensorFlow. The rest are outside it."""
_RANK, _WORLD = "tells each rank which one it is", "tells each rank how to find the others"
_GPUS = "names the GPUs that the worker was given"
_JOB, _OUTPUT = "says which job this is", "says where the job's results go"

CONTRACT = {
    "RANK": _RANK,
    "LOCAL_RANK": _RANK,
    "GROUP_RANK": _RANK,
    "WORLD_SIZE": _WORLD,
    "LOCAL_WORLD_SIZE": _WORLD,
    "MASTER_ADDR": _WORLD,
    "MASTER_PORT": _WORLD,
    "TF_CONFIG": _WORLD,
    "CLUSTER_SPEC": _WORLD,
    "CUDA_VISIBLE_DEVICES": _GPUS,
    "CUDA_DEVICE_ORDER": _GPUS,
    "TORCHELASTIC_ERROR_FILE": "is where a rank leaves its exception",
    "CLOUD_ML_JOB_ID": _JOB,
    "MA_SCHEDULE_CNT": _JOB,
    "MA_PROC_START_CNT": _JOB,
}
"""Name to what it is for."""
OUTPUT = dict.fromkeys(("AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"), _OUTPUT)
"""Set where a job has a base output directory."""
PREFIX = "HOLDFAST_"
MARKS = ("HOLDFAST_JOB", "HOLDFAST_HOST")
"""Only ranks and their descendants have them."""
_OPEN = frozenset({"HOLDFAST_CONFIG", "HOLDFAST_FAILPOINTS"})
"""What ``holdfast`` itself reads, also within a job."""


def purpose_of(name: str) -> str:
    """The purpose for which Holdfast sets a variable in every rank; empty for one that is the user's to set."""
    if name.startswith(PREFIX) and name not in _OPEN:
        return _JOB
    return CONTRACT.get(name, "")
