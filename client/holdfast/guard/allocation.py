"""Reads from the environment which task of which job this is. Pure.

A scheduler starts one process for each task that the user asked for. Rank i of the guarded job runs in task i, so a
program finds the numbers that it found before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.errors import ConfigError

SEED_VARIABLE = "HOLDFAST_GUARD_SEED"
MOST_HOSTS = 65_536
MOST_DIGITS = 9
_OMPI = "OMPI_COMM_WORLD_"
_NUMBERED = (
    (f"{_OMPI}RANK", f"{_OMPI}SIZE", f"{_OMPI}LOCAL_RANK", f"{_OMPI}LOCAL_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", ""),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("JOB_COMPLETION_INDEX", "HOLDFAST_GUARD_TASKS", "", ""),
    ("HOLDFAST_GUARD_TASK", "HOLDFAST_GUARD_TASKS", "", ""),
)
"""Variables of a launcher: number of the task and how many there are, of all and of those on this machine."""
_IN_PODS = (("PET_NODE_RANK", "PET_NNODES", "", ""), ("RANK", "WORLD_SIZE", "", ""))
"""Those that a PyTorchJob or a TrainJob gives to its pods; elsewhere they are a user's, or of a launcher's ranks."""
_OF_RANKS = ("RANK", "WORLD_SIZE")
"""Those that Holdfast gives each rank."""
_JOBS = ("FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID", "PMIX_NAMESPACE")
"""Variables that are the same in all processes of one launch. All that are set, together, are those of no other launch
of the time: PBS, LSF and Slurm name a job, which may have several."""
_INTERACTIVE = "4294967290"
"""The number of the step in which Slurm runs the shell of ``salloc``: a task of it is the job's script, in a way."""
_NAMED_FIX = "See docs/users/guard.md: Other schedulers."
_FIX = "The scheduler sets it: under Slurm srun, elsewhere see docs/users/guard.md."
_REPEATED = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?")


@dataclass(frozen=True, slots=True)
class Allocation:
    """One task of a job, counted from 0; alone it is task 0 of 1."""

    kind: str
    """``slurm``; ``ssh``; ``named`` where the user's own variables say where task 0 is; ``shared`` where a file in the
    current folder will; or ``alone``."""
    job: str
    """Name of the job, step and restart, the same in all of its tasks and in no others; empty when alone."""
    task: int
    tasks: int
    local_task: int
    """Among the tasks of this machine."""
    local_tasks: int
    host: str
    """This machine, by the scheduler's name for it."""
    hosts: tuple[str, ...]
    """All hosts of the job; task 0 is on the first."""
    first_addresses: tuple[str, ...] = ()
    """Where others find the first host, the likeliest first; empty where its name says it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the record says of the scheduler's job."""
    numbers: tuple[str, ...] = ()
    """Variables of the launcher that hold the number of a task."""
    counts: tuple[str, ...] = ()
    """Those that hold how many tasks there are."""

    @property
    def first_host(self) -> str:
        """The host of task 0."""
        return self.hosts[0]

    @property
    def name(self) -> str:
        """Name of this task's agent."""
        return self.host if self.local_tasks == 1 else f"{self.host}.{self.local_task}"

    def named(self, text: str) -> str:
        """The text, with this host where it doesn't say which of several it is about."""
        return text if self.tasks == 1 or self.host in text else f"{self.host}: {text}"


def read(environ: Mapping[str, str], hostname: str) -> Allocation:
    """The task that the environment describes. Raises ``ConfigError`` for one that makes no sense."""
    launched = _launched(environ)
    if _is_step(environ, launched):
        return _slurm(environ)
    if "HOLDFAST_GUARD_HOST" in environ:
        return _named(environ, hostname)
    if launched is not None and _number(environ, launched[1]) > 1:
        return _shared(environ, hostname, launched)
    return Allocation("alone", "", 0, 1, 0, 1, hostname or "localhost", ("localhost",))


def is_launched(environ: Mapping[str, str]) -> bool:
    """Whether a launcher has started this process as one of its tasks, or the user's variables say that it is one."""
    names = {"SLURM_STEP_NODELIST", "HOLDFAST_GUARD_HOST", *(each[0] for each in _NUMBERED)}
    return any(name in environ for name in names)


def _is_step(environ: Mapping[str, str], launched: tuple[str, str, str, str] | None) -> bool:
    """Whether Slurm's variables tell which task this is.

    The daemons of ``mpirun`` and Flux may be the tasks of a step, and what these start has the step's variables too.
    """
    if "SLURM_STEP_NODELIST" not in environ or environ.get("SLURM_STEP_ID") == _INTERACTIVE:
        return False
    if launched not in _NUMBERED or launched[0] in ("JOB_COMPLETION_INDEX", "HOLDFAST_GUARD_TASK"):
        return True
    # srun itself gives those of PMI, and then they say the same, unless a shell that was one task has kept its own.
    return launched[0] != "FLUX_TASK_RANK" and environ[launched[1]] in ("1", environ.get("SLURM_STEP_NUM_TASKS"))


def _slurm(environ: Mapping[str, str]) -> Allocation:
    hosts = list(hostlist(_text(environ, "SLURM_STEP_NODELIST")))
    node = _number(environ, "SLURM_NODEID")
    per_node = list(_tasks_per_node(_text(environ, "SLURM_STEP_TASKS_PER_NODE")))
    if node >= len(hosts) or len(per_node) != len(hosts):
        raise ConfigError(
            f"SLURM_NODEID is {node} and SLURM_STEP_TASKS_PER_NODE {environ['SLURM_STEP_TASKS_PER_NODE']!r}, "
            f"but SLURM_STEP_NODELIST names {len(hosts)} hosts.",
            fix="Start it by srun, which sets all of them.",
        )
    number = _text(environ, "SLURM_JOB_ID")
    restarts = _number(environ, "SLURM_RESTART_COUNT") if environ.get("SLURM_RESTART_COUNT") else 0
    step = f"{number}.{_text(environ, 'SLURM_STEP_ID')}"
    return Allocation(
        "slurm",
        # A requeued job has its number and those of its steps again, perhaps while the step before it still ends.
        f"{step}-restart{restarts}" if restarts else step,
        _number(environ, "SLURM_PROCID"),
        _number(environ, "SLURM_STEP_NUM_TASKS"),
        _number(environ, "SLURM_LOCALID"),
        per_node[node],
        hosts[node],
        tuple(hosts),
        labels={"slurm-job": number} | ({"slurm-restarts": str(restarts)} if restarts else {}),
        numbers=("SLURM_PROCID",),
        counts=("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"),
    )


def _launched(environ: Mapping[str, str]) -> tuple[str, str, str, str] | None:
    """The variables of a launcher that says which task this is, and of how many."""
    return next((each for each in _rows(environ) if each[0] in environ and each[1] in environ), None)


def _rows(environ: Mapping[str, str]) -> tuple[tuple[str, str, str, str], ...]:
    return _NUMBERED + (_IN_PODS if "KUBERNETES_SERVICE_HOST" in environ else ())


def _named(environ: Mapping[str, str], hostname: str) -> Allocation:
    """A task of a Kubernetes Indexed Job, of MPI, or of anything else that numbers its processes."""
    found = _launched(environ) or next((each for each in _rows(environ) if each[0] in environ), None)
    if found is None:
        known = ", ".join(each[0] for each in _NUMBERED)
        raise ConfigError(f"HOLDFAST_GUARD_HOST is set, but no number of this task: {known}.", fix=_NAMED_FIX)
    if not environ.get(SEED_VARIABLE):
        raise ConfigError(f"{SEED_VARIABLE} is not set, by which the tasks know each other.", fix=_NAMED_FIX)
    # The secret is the same in all tasks of a job and in no others, and so is a number that follows from it.
    job = _job_name(environ[SEED_VARIABLE])
    return _of_launcher("named", job, environ, hostname, found, environ["HOLDFAST_GUARD_HOST"])


def _shared(environ: Mapping[str, str], hostname: str, found: tuple[str, str, str, str]) -> Allocation:
    """A task of a launcher that carries no secret of ours: a file in the folder of all tasks does."""
    number = " ".join(environ[name] for name in _JOBS if environ.get(name))
    if not number:
        raise ConfigError(
            f"One of {environ[found[1]]} tasks by {found[1]}, but none of {', '.join(_JOBS)} says of which job.",
            fix=f"Set HOLDFAST_GUARD_HOST and {SEED_VARIABLE}: see docs/users/guard.md.",
        )
    return _of_launcher("shared", _job_name(number), environ, hostname, found, hostname or "localhost")


def _job_name(mark: str) -> str:
    return f"guard-{hashlib.sha256(mark.encode(errors='surrogateescape')).hexdigest()[:8]}"


def _of_launcher(
    kind: str, job: str, environ: Mapping[str, str], hostname: str, found: tuple[str, str, str, str], first: str
) -> Allocation:
    task, tasks, local, locals_ = found
    number, count = _number(environ, task), _number(environ, tasks)
    if number >= count:
        raise ConfigError(f"{task} is {number}, and {tasks} {count}: tasks count from 0.", fix=_NAMED_FIX)
    per_host = _number(environ, locals_) if locals_ in environ else 1
    if task == "FLUX_TASK_RANK":
        nodes = max(_number(environ, "FLUX_JOB_NNODES"), 1)
        if count % nodes:
            raise ConfigError(
                f"FLUX_JOB_SIZE is {count} and FLUX_JOB_NNODES {nodes}: how many tasks does this node have?",
                fix="Ask for as many on each: flux run -N2 --tasks-per-node=4 …",
            )
        per_host = count // nodes
    at = _number(environ, local) if local in environ else 0
    host = hostname or f"task-{number}"
    return Allocation(
        kind,
        job,
        number,
        count,
        at,
        per_host,
        # Machines of one name would be one host to the controller.
        f"{host}-{number}",
        (first,),
        numbers=() if task in _OF_RANKS else (task,),
        counts=() if tasks.startswith("HOLDFAST_") or tasks in _OF_RANKS else (tasks,),
    )


def hostlist(text: str) -> Iterator[str]:
    """The names in a host list as Slurm writes it: ``n[1-3,7],gpu-a``. Raises ``ConfigError``."""
    count = 0
    for part in _parts(text):
        for name in _expanded(part):
            count += 1
            if count > MOST_HOSTS:
                raise ConfigError(f"The host list {text[:60]!r} names more than {MOST_HOSTS} hosts.")
            yield name


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that are not in brackets."""
    part, depth = "", 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            yield part
            part = ""
        else:
            part += character
    yield part


def _expanded(part: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    spans, _, tail = rest.partition("]")
    for span in spans.split(","):
        first, dash, last = span.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise ConfigError(f"{part!r:.60} is no host list: {span!r:.40} is neither a number nor a range.")
        for number in range(int(first), int(last or first) + 1):
            for name in _expanded(tail):
                yield f"{head}{number:0{len(first)}}{name}"


def _tasks_per_node(text: str) -> Iterator[int]:
    """``2(x3),1`` is 2, 2, 2, 1. Raises ``ConfigError``."""
    for part in text.split(","):
        found = _REPEATED.fullmatch(part)
        if found is None or int(found[2] or 1) > MOST_HOSTS:
            raise ConfigError(f"SLURM_STEP_TASKS_PER_NODE: {part!r:.40} is no count of tasks.")
        yield from [int(found[1])] * int(found[2] or 1)


def _text(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise ConfigError(f"{name} is not set.", fix=_FIX)
    return environ[name]


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _text(environ, name)
    if not _is_number(text):
        raise ConfigError(f"{name} is {text!r:.40}, which is no number.", fix=_FIX)
    return int(text)


def _is_number(text: str) -> bool:
    """Whether it is one that can be meant, of which Python makes no error for its length."""
    return text.isdecimal() and len(text) <= MOST_DIGITS
