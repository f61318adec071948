"""The environment of each rank, and the processes that a launch starts.

The environment starts empty: nothing of the daemon's reaches a rank. Layers, later ones winning: the host's defaults
and the admin's environment file, the image's, names that tune a program (OMP_NUM_THREADS, PET_*, JAX_*), the user's
variables, and the names of the contract (RANK, MASTER_ADDR). ``$(NAME)`` in the user's variables and arguments sees all
of them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.expand import expand_args, expand_env
from holdfast._base.job_file.launcher import is_launcher
from holdfast._session.assignment import Assignment, Launch, Rendezvous
from holdfast._session.reports import RankBinding, WorkerId
from holdfast_agent.core.launch.binding import sized, variables
from holdfast_agent.core.launch.cluster_variables import of_cluster
from holdfast_agent.core.launch.containers import image_argv, in_container, of_image
from holdfast_agent.core.model.launch import Container, PreparedCode, RankLaunch
from holdfast_agent.core.model.topology import Topology

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECORDER_ENTRIES = 2000
"""Collectives that torch's flight recorder remembers: its own default where it is on."""
RECORDER_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
DUMP_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
RAS_PORT = 28028
OUTPUT_NAMES = {"AIP_MODEL_DIR": "model", "AIP_CHECKPOINT_DIR": "checkpoints", "AIP_TENSORBOARD_LOG_DIR": "logs"}
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class WorkerUser:
    """The account that the ranks run as. ``uid`` None means the agent's own."""

    name: str
    home: str
    shell: str
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts about a host that its launches use. ``gpu_names`` maps each GPU's UUID to its name for CUDA."""

    name: str
    log_dir: str
    scratch_dir: str
    user: WorkerUser
    cpu_count: int
    gpu_names: Mapping[str, str] = field(default_factory=dict)
    data_interface: str = ""
    site_env: Mapping[str, str] = field(default_factory=dict)
    has_epilog: bool = False
    """The admin wants a command run after each generation."""
    local_ranks: tuple[int, int] = (0, 0)
    """LOCAL_RANK of the first rank, and LOCAL_WORLD_SIZE where other agents of this machine count too, else 0."""
    topology: Topology = field(default_factory=Topology)

    def running_as(self, user: WorkerUser | None) -> HostFacts:
        """The same facts with another account for the ranks; None changes nothing."""
        return self if user is None else replace(self, user=user)


def log_paths(facts: HostFacts, key: WorkerId, generation: int, rank: int) -> tuple[str, str]:
    """Paths of the files that a rank's stdout and stderr are written to."""
    stem = f"{facts.log_dir}/{key.job}/g{generation}/{key.worker}.r{rank}"
    return f"{stem}.out", f"{stem}.err"


def progress_dir(facts: HostFacts, key: WorkerId, generation: int) -> str:
    """The directory in which a worker's ranks may say how far they are, and leave their Python exceptions."""
    return f"{facts.log_dir}/{key.job}/g{generation}/{key.worker}.progress"


def scratch_directory(facts: HostFacts, key: WorkerId) -> str:
    """The job's own scratch directory on this host."""
    return f"{facts.scratch_dir}/{key.job}"


def working_directory(
    facts: HostFacts,
    key: WorkerId,
    launch: Launch,
    container: Container | None = None,
    code: PreparedCode | None = None,
) -> str:
    """The directory that ranks start in: the user's, else the image's, else the packaged code's, else scratch."""
    of_image = container.working_directory if container else ""
    packaged = code.directory if code else ""
    return launch.task.working_directory or of_image or packaged or scratch_directory(facts, key)


def plan_ranks(
    assignment: Assignment,
    facts: HostFacts,
    container: Container | None = None,
    code: PreparedCode | None = None,
    bindings: Sequence[RankBinding | None] = (),
) -> tuple[RankLaunch, ...]:
    """Every process of a launch, complete with command and environment. ``container`` is None on the bare host.

    ``bindings`` are the ranks', in their order; none where the job asks for none.

    Parameter servers and evaluators find none of the variables of torch's world, so that nothing in them waits for
    peers that don't wait for them; HOLDFAST_RANK is the number under which their output is found.

    Raises ``ValueError`` for what grows too long once expanded.
    """
    launch = assignment.launch
    if launch is None or launch.rendezvous is None:
        raise ValueError(f"the assignment of {assignment.key} carries no rendezvous")
    shared = _of_worker(assignment, launch, launch.rendezvous, facts) | _of_code(code)
    if container is not None:
        shared |= in_container(container, launch.gpus, tuple(facts.gpu_names.get(g, g) for g in launch.gpus))
    cwd = working_directory(facts, assignment.key, launch, container, code)
    diagnostics = _diagnostics(assignment, launch, facts)
    image = of_image(container, scratch_directory(facts, assignment.key))
    planned = []
    for local_rank, rank in enumerate(launch.ranks):
        bound = bindings[local_rank] if bindings else None
        ours = {
            **shared,
            ("RANK" if launch.in_world else "HOLDFAST_RANK"): str(rank),
            **_local(launch, local_rank, facts),
            "TORCHELASTIC_ERROR_FILE": f"{progress_dir(facts, assignment.key, assignment.generation)}/r{rank}.json",
            **variables(bound),
        }
        env = compose(sized(launch, bound, facts.cpu_count), facts, ours, diagnostics, image, code)
        secrets = [each for each in launch.task.secrets if each.name not in ours]
        values = tuple(each.name for each in secrets if not each.file)
        files = {each.name: each.file for each in secrets if each.file}
        argv = tuple(expand_args((*launch.task.command, *launch.task.args), env))
        if container is not None:
            argv = image_argv(container, launch, argv)
        stdout, stderr = log_paths(facts, assignment.key, assignment.generation, rank)
        planned.append(RankLaunch(rank, argv, env, cwd, stdout, stderr, values, files, launch.task.terminal, bound))
    return tuple(planned)


def search_path(launch: Launch, facts: HostFacts, code: PreparedCode | None = None) -> str:
    """The PATH in which a worker's command is looked up, before the rendezvous is known."""
    return compose(launch, facts, _of_code(code), code=code).get("PATH", "")


def compose(
    launch: Launch,
    facts: HostFacts,
    ours: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
    image: Mapping[str, str] | None = None,
    code: PreparedCode | None = None,
) -> dict[str, str]:
    """The merged environment, later layers winning: ``defaults``, host, admin's file, image, user, and ``ours``.

    Programs of an environment that was installed for the job are found before all others of the same name.
    """
    base = {
        **(defaults or {}),
        **_defaults(facts),
        **facts.site_env,
        **(image or {}),
        **_tuning(launch, ours, facts),
        **ours,
    }
    env = expand_env([(name, value) for name, value in launch.task.env if name not in ours], base)
    if code is not None and code.environment:
        env["PATH"] = ":".join(filter(None, (f"{code.environment}/bin", env.get("PATH", ""))))
    return env


def _of_code(code: PreparedCode | None) -> dict[str, str]:
    if code is None:
        return {}
    named = {"HOLDFAST_PACKAGE_DIR": code.directory, "VIRTUAL_ENV": code.environment}
    return {name: value for name, value in named.items() if value}


def _defaults(facts: HostFacts) -> dict[str, str]:
    user = facts.user
    return {
        "PATH": DEFAULT_PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def _local(launch: Launch, local_rank: int, facts: HostFacts) -> dict[str, str]:
    """The variables that tell processes of one worker apart; a lone one outside torch's world needs none."""
    if not launch.in_world and launch.processes == 1:
        return {}
    first, size = facts.local_ranks
    return {"LOCAL_RANK": str(first + local_rank), "LOCAL_WORLD_SIZE": str(size or launch.processes)}


def _tuning(launch: Launch, ours: Mapping[str, str], facts: HostFacts) -> dict[str, str]:
    """Names that tune a program, and that its user may set otherwise; what the admin's file sets is left alone."""
    if "HOLDFAST_WORKER" not in ours:
        return {}
    processes = launch.processes
    if processes == 1 and launch.gpus and launch.task.may_launch:
        processes = len(launch.gpus)
    tuning = {"OMP_NUM_THREADS": str(max(1, (launch.cpu_count or facts.cpu_count) // processes))}
    if facts.data_interface:
        tuning["GLOO_SOCKET_IFNAME"] = tuning["NCCL_SOCKET_IFNAME"] = facts.data_interface
    spanning = _torchrun(launch, ours) | _jax(launch, ours)
    return {name: value for name, value in tuning.items() if name not in facts.site_env} | spanning


def _torchrun(launch: Launch, ours: Mapping[str, str]) -> dict[str, str]:
    """Variables that make a ``torchrun train.py`` span the gang, also one that a script starts; its flags win.

    Started by each of several processes of a worker, it is a node of one process: the world is the same either way.
    In a parameter server or an evaluator it starts the processes of its own worker, which are a world of their own.
    """
    if not launch.in_world:
        if launch.processes > 1:
            return {}
        nodes, node = "1", "0"
        address, port = launch.own_address.rpartition(":")[0], str(launch.own_port)
    elif launch.processes == 1:
        nodes, node = str(launch.worker_count), str(launch.worker_index)
        address, port = ours["MASTER_ADDR"], ours["MASTER_PORT"]
    else:
        nodes, node = ours["WORLD_SIZE"], ours["RANK"]
        address, port = ours["MASTER_ADDR"], ours["MASTER_PORT"]
    pet = {
        "PET_NNODES": nodes,
        "PET_NODE_RANK": node,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }
    if launch.gpus or launch.processes > 1:
        pet["PET_NPROC_PER_NODE"] = str(len(launch.gpus) if launch.processes == 1 else 1)
    return pet


def _jax(launch: Launch, ours: Mapping[str, str]) -> dict[str, str]:
    """Variables from which ``jax.distributed.initialize()`` without arguments takes the gang.

    JAX reads the coordinator from its own name, but number and count of processes only from those of a launcher it
    knows; of these Open MPI's are the ones that no other framework prefers to RANK. The empty URI, which says that
    they count, is no setting for Open MPI itself: to both of its present releases a rank that imports MPI is alone.
    Below a launcher of ranks they would contradict what that launcher sets.
    """
    if not launch.in_world or is_launcher((*launch.task.command, *launch.task.args)):
        return {}
    rank, size, local = ours["RANK"], ours["WORLD_SIZE"], ours["LOCAL_RANK"]
    names = {
        "JAX_COORDINATOR_ADDRESS": f"{ours['MASTER_ADDR']}:{ours['MASTER_PORT']}",
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "OMPI_MCA_orte_hnp_uri": "",
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": local,
    }
    share, left = divmod(len(launch.gpus), launch.processes)
    if share and not left:
        first = int(local) * share
        names["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(first, first + share)))
    return names


def _diagnostics(assignment: Assignment, launch: Launch, facts: HostFacts) -> dict[str, str]:
    """Variables for diagnosing hangs: torch's flight recorder, dumped on demand, and NCCL's RAS service.

    Variables with several names are left alone as soon as the user or the admin has set one of them. A torch that
    warns of an old name doesn't get it: see the shim's ``torch_names``. The files
    lie with torch's error files, in a directory that is there: torch ends a rank whose pipe it can't make. NCCL
    listens on a loopback address of the generation's own, since the port is the same for all.
    """
    if not launch.gpus:
        return {}
    set_by_others = {name for name, _ in launch.task.env} | {each.name for each in launch.task.secrets}
    set_by_others |= set(facts.site_env)
    stem = f"{progress_dir(facts, assignment.key, assignment.generation)}/nccl_trace_rank_"
    wanted = {name: str(RECORDER_ENTRIES) for name in RECORDER_NAMES}
    if set_by_others.intersection(RECORDER_NAMES):
        wanted = {}
    if not set_by_others.intersection(DUMP_NAMES):
        wanted.update(dict.fromkeys(DUMP_NAMES, stem))
    return {**wanted, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": stem, "NCCL_RAS_ADDR": _ras_address(assignment)}


def _ras_address(assignment: Assignment) -> str:
    number = zlib.crc32(f"{assignment.key}/{assignment.generation}".encode())
    # Other programs listen on 127.0.
    return f"127.{1 + number % 254}.{(number >> 8) % 256}.{1 + (number >> 16) % 254}:{RAS_PORT}"


def _of_worker(assignment: Assignment, launch: Launch, rendezvous: Rendezvous, facts: HostFacts) -> dict[str, str]:
    env = {
        "HOLDFAST_JOB": assignment.key.job,
        "HOLDFAST_ATTEMPT": str(assignment.attempt),
        "HOLDFAST_GENERATION": str(assignment.generation),
        "HOLDFAST_RESTART_COUNT": str(launch.restart_count),
        "HOLDFAST_LAST_END": launch.last_end,
        "HOLDFAST_WORKER": assignment.key.worker,
        "HOLDFAST_HOST": facts.name,
        "HOLDFAST_RENDEZVOUS_SECRET": rendezvous.secret,
        "HOLDFAST_PROGRESS_DIR": progress_dir(facts, assignment.key, assignment.generation),
        "CLOUD_ML_JOB_ID": assignment.key.job,
        "MA_SCHEDULE_CNT": str(assignment.attempt),
        **of_cluster(launch, rendezvous),
    }
    if launch.in_world:
        env |= {
            "MASTER_ADDR": rendezvous.master_address,
            "MASTER_PORT": str(rendezvous.master_port),
            "WORLD_SIZE": str(launch.world_size),
            "GROUP_RANK": str(launch.worker_index),
        }
    if launch.process_starts:
        env["MA_PROC_START_CNT"] = str(launch.process_starts)
    env |= _output(launch.output_uri)
    if launch.gpus or facts.gpu_names:
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        env["CUDA_VISIBLE_DEVICES"] = ",".join(facts.gpu_names.get(uuid, uuid) for uuid in launch.gpus)
    return env


def _output(output_uri: str) -> dict[str, str]:
    """The AIP_* variables that say where the job's results go; empty where the job names no output."""
    prefix = output_directory(output_uri)
    if not prefix:
        return {}
    return {name: f"{prefix.rstrip('/')}/{below}/" for name, below in OUTPUT_NAMES.items()}


def output_directory(output_uri: str) -> str:
    """The output URI in the form that programs open: a path for ``file://``; any other URI, or none, unchanged."""
    if not output_uri.startswith("file://"):
        return output_uri
    return _PERCENT.sub(_byte, output_uri.removeprefix("file://").encode()).decode(errors="replace")


def _byte(escaped: re.Match[bytes]) -> bytes:
    return bytes([int(escaped[1], 16)])
