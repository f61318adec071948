"""Roles in a rank's process tree: the rank itself, its parents, working children, helpers.

Theory of operation. What the shim starts need not be the training: it may be a launcher (torchrun) or a shell,
whose children are the ranks. A *rank process* holds a CUDA context; where none in the tree does, it is the topmost
process that is no parent. Its *helpers* are forks of itself (data loaders) and known companions; everything else
below it is a *child* that does the rank's own work, such as a compiler. What a helper starts is a helper.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.launcher import is_launcher


class Role(enum.Enum):
    """Role of a process in its tree."""

    PARENT = "parent"
    RANK = "rank"
    CHILD = "child"
    HELPER = "helper"


@dataclass(frozen=True, slots=True)
class Relative:
    """A process of the tree. ``rank`` is RANK in its environment, where it is known."""

    pid: int
    parent: int
    start_ticks: int
    command: tuple[str, ...] = ()
    name: str = ""
    rank: int | None = None
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A process' role; ``owner`` is the pid of its rank process, 0 for a parent; ``rank`` that process' number."""

    role: Role
    owner: int
    rank: int


# They start a program and wait for it.
_WRAPPERS = frozenset(
    {
        "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "timeout", "time", "nice", "numactl",
        "taskset", "stdbuf", "setsid", "tini", "dumb-init", "sudo", "su", "runuser", "conda", "mamba",
        "micromamba", "uv", "uvx", "poetry", "pdm", "pipenv", "hatch", "pixi", "srun", "orted", "prted",
        "hydra_pmi_proxy", "mpispawn", "apptainer", "singularity", "nsys", "ncu", "perf", "strace", "gdb",
        "catchsegv",
    }
)  # fmt: skip
_WRAPPER_MODULES = frozenset({"deepspeed.launcher.launch", "torch.distributed.elastic"})
# They accompany a training and do none of its work.
_COMPANIONS = frozenset(
    {
        "tee", "cat", "grep", "sed", "awk", "gawk", "mawk", "tail", "head", "sleep", "logger", "ts", "rotatelogs",
        "multilog", "cronolog", "nvidia-smi", "dcgmi", "nvtop", "htop", "top", "vmstat", "iostat", "py-spy",
        "pystack", "tensorboard", "mlflow", "aim", "neptune", "rclone", "rsync", "ssh",
    }
)  # fmt: skip
_COMPANION_WORDS = re.compile(
    r"multiprocessing[./](spawn|forkserver|resource_tracker|resource_sharer|semaphore_tracker)"
    r"|\bloky\b|wandb[-_]?(core|service|internal|gpu_stats)|[/ ]-m wandb|gpu_stats|tensorboard|mlflow|neptune"
    r"|comet_ml|clearml|torch_shm_manager"
)
_WORKERS = re.compile(r"multiprocessing[./](spawn|forkserver)|\bloky\b(?!.*resource_tracker)")
_LOADER_NAMES = ("pt_data_worker", "pt_data_pin", "ray::")


def is_parent(command: Sequence[str]) -> bool:
    """Whether a program starts the ranks rather than being one."""
    if not command:
        return False
    if _program(command) in _WRAPPERS or is_launcher(command):
        return True
    return len(command) > 2 and any(module in command[1:8] for module in _WRAPPER_MODULES)


def is_companion(command: Sequence[str], name: str = "") -> bool:
    """Whether a process is a helper by its name, whichever process started it."""
    if name.startswith(_LOADER_NAMES):
        return True
    if not command:
        return False
    return _program(command) in _COMPANIONS or bool(_COMPANION_WORDS.search(" ".join(command[:8])[:2000]))


def works(command: Sequence[str]) -> bool:
    """Whether a helper of this program may do the training's work: a fork of it, or what multiprocessing starts."""
    return not is_companion(command) or bool(_WORKERS.search(" ".join(command[:8])[:2000]))


def parts(root: int, first_rank: int, relatives: Mapping[int, Relative]) -> dict[int, Part]:
    """The part of every process; ``first_rank`` numbers the rank processes where their environment doesn't."""
    return _Tree(root, relatives).parts(first_rank)


class _Tree:
    def __init__(self, root: int, relatives: Mapping[int, Relative]) -> None:
        self._root = root
        self._all = relatives
        self._below: dict[int, list[Relative]] = {}
        for relative in relatives.values():
            if relative.pid != root:
                parent = relative.parent if relative.parent in relatives else root
                self._below.setdefault(parent, []).append(relative)

    def parts(self, first_rank: int) -> dict[int, Part]:
        if self._root not in self._all:
            return {}
        made: dict[int, Part] = {}
        parents: list[Relative] = []
        aside: list[Relative] = []
        found = self._candidates(self._all[self._root], parents, aside)
        chosen = _chosen(found)
        numbers = _numbers(chosen, first_rank)
        first = chosen[0]
        made.update({parent.pid: Part(Role.PARENT, 0, -1) for parent in parents})
        for rank in chosen:
            made[rank.pid] = Part(Role.RANK, rank.pid, numbers[rank.pid])
            self._assign(rank, rank, Role.CHILD, numbers[rank.pid], made)
        for other in [*aside, *(one for one in found if one.pid not in made)]:
            made[other.pid] = Part(Role.HELPER, first.pid, numbers[first.pid])
            self._assign(other, first, Role.HELPER, numbers[first.pid], made)
        return made

    def _candidates(self, top: Relative, parents: list[Relative], aside: list[Relative]) -> list[Relative]:
        """The topmost processes that are no parents; companions of parents are put aside."""
        below = self._below.get(top.pid, [])
        working = [one for one in below if not is_companion(one.command, one.name)]
        hands_on = not top.on_gpu and any(self._reaches_gpu(one) for one in working)
        if not working or not (hands_on or is_parent(top.command)):
            return [top]
        parents.append(top)
        aside += [one for one in below if one not in working]
        return [found for one in working for found in self._candidates(one, parents, aside)]

    def _reaches_gpu(self, top: Relative) -> bool:
        return top.on_gpu or any(self._reaches_gpu(one) for one in self._below.get(top.pid, ()))

    def _assign(self, top: Relative, rank: Relative, above: Role, number: int, made: dict[int, Part]) -> None:
        """Set the roles of all processes below ``top``."""
        for one in self._below.get(top.pid, ()):
            fork = bool(one.command) and one.command == rank.command
            helps = above is Role.HELPER or fork or is_companion(one.command, one.name)
            role = Role.HELPER if helps else Role.CHILD
            made[one.pid] = Part(role, rank.pid, number)
            self._assign(one, rank, role, number, made)


def _chosen(found: Sequence[Relative]) -> list[Relative]:
    """Which candidates are ranks: those on a GPU where any is; of several with one number the oldest."""
    on_gpu = [one for one in found if one.on_gpu]
    ordered = sorted(on_gpu or found, key=lambda one: (one.start_ticks, one.pid))
    if on_gpu:
        return ordered
    kept: dict[int | None, Relative] = {}
    for one in ordered:
        kept.setdefault(one.rank, one)
    return list(kept.values())


def _numbers(ranks: Sequence[Relative], first_rank: int) -> dict[int, int]:
    told = {one.pid: one.rank for one in ranks if one.rank is not None}
    if len(set(told.values())) == len(ranks):
        return told
    return {one.pid: first_rank + index for index, one in enumerate(ranks)}


def ranks_of(found: Mapping[int, Part]) -> Iterable[int]:
    """The pids of the rank processes, by their numbers."""
    chosen = ((part.rank, pid) for pid, part in found.items() if part.role is Role.RANK)
    return [pid for _, pid in sorted(chosen)]


def _program(command: Sequence[str]) -> str:
    return command[0].rpartition("/")[2].removeprefix("-")
