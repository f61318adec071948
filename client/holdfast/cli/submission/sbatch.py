"""A batch script of Slurm as a job: its ``#SBATCH`` lines, and the one command that it starts by ``srun``. Pure.

Slurm runs the script once and ``srun`` once for each task. Here each rank runs the script, with the command in place of
``srun``: so what a script prepares (modules, environments, variables) is there, and must be harmless to repeat.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.cli.submission.job_options import set_seconds
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.errors import InvalidSpec, Violation
from holdfast.spec.rules.arrays import read_array
from holdfast.v1 import job_pb2

SHORT = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "t": "time",
    "x": "exclude",
    "w": "nodelist",
    "D": "chdir",
    "a": "array",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "p": "partition",
    "A": "account",
    "q": "qos",
    "C": "constraint",
}
NEEDLESS = {"output", "error", "open-mode", "requeue", "export", "parsable"}
"""Options whose meaning a job has anyway: output is kept by rank and launch, failures are repaired, and so on."""
ENDS = {"afterok": "OK", "afterany": "ANY", "afternotok": "FAILED"}
"""The end of another job that each kind of dependency waits for."""
OF_SRUN = {"label", "l", "unbuffered", "u", "kill-on-bad-exit", "K", "cpu-bind", "exclusive", "mpi", "wait", "W"}
"""Options of srun that change nothing here."""
SIZES = {
    "nodes",
    "N",
    "ntasks",
    "n",
    "ntasks-per-node",
    "cpus-per-task",
    "c",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
}
"""Options of srun that repeat those of the script."""
WITH_VALUE = SIZES | {"cpu-bind", "mpi", "wait", "W"}
TASK_VARIABLES = (
    "export SLURM_PROCID=$RANK SLURM_NTASKS=$WORLD_SIZE SLURM_LOCALID=$LOCAL_RANK SLURM_NODEID=$GROUP_RANK "
    "SLURM_JOB_ID=$HOLDFAST_JOB"
)
ARRAY_VARIABLES = (
    "export SLURM_ARRAY_TASK_ID=$HOLDFAST_ARRAY_INDEX SLURM_ARRAY_TASK_COUNT=$HOLDFAST_ARRAY_COUNT "
    "SLURM_ARRAY_JOB_ID=$HOLDFAST_ARRAY_ID"
)
_DIRECTIVE = re.compile(r"#SBATCH[ \t]+(\S.*)")
_SRUN = re.compile(r"srun[ \t]+")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_UNSET = re.compile(r"SLURM_(?:JOB_|STEP_)?(?:NODELIST|HOSTS)|scontrol")


@dataclass(slots=True)
class _Script:
    options: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    problems: list[Violation] = field(default_factory=list)

    def number(self, name: str, default: int) -> int:
        """A whole number above 0."""
        text = self.options.pop(name, "")
        if text and not (text.isdecimal() and 0 < int(text) < 1_000_000):
            self.problems.append(
                Violation(f"#SBATCH --{name}", f"{text!r} is no number above 0", "write one, such as 2")
            )
            return default
        return int(text) if text else default


def job(text: str, what: str, environ: Mapping[str, str], cwd: str) -> tuple[job_pb2.CustomJob, list[str]]:
    """The job that a batch script describes, and the names of options that count for nothing here.

    Raises ``InvalidSpec``, with every line whose meaning is not clear and what to do about it.
    """
    script = _read(text)
    nodes = script.number("nodes", 1)
    per_node = _tasks_per_node(script, nodes)
    request = RunRequest(
        command=("bash", "-c", _program(script, nodes * per_node)),
        replicas=nodes,
        processes_per_worker=per_node,
        gpus=_gpus(script, nodes, per_node),
        cpus=script.number("cpus-per-task", 0) * per_node,
        memory_mb=_memory(script, per_node),
        name=script.options.pop("job-name", "") or what.rpartition("/")[2].removesuffix(".sh"),
        workdir=script.options.pop("chdir", ""),
    )
    if script.problems:
        raise InvalidSpec(script.problems, what=what)
    made = job_of(request, environ, cwd)
    made.job_spec.fault_tolerance.ClearField("max_job_retries")
    _schedule(script, made)
    _depend(script, made)
    if script.problems:
        raise InvalidSpec(script.problems, what=what)
    return made, sorted(name for name in script.options if name not in NEEDLESS)


def _read(text: str) -> _Script:
    script, header = _Script(), True
    for line in text.replace("\\\n", " ").splitlines():
        found = _DIRECTIVE.match(line) if header else None
        if found:
            _directive(script, found[1])
        elif line.strip() and not line.startswith("#"):
            header = False  # Slurm reads no options after the first command
        script.lines.append(line)
    return script


def _directive(script: _Script, text: str) -> None:
    words = shlex.split(text, comments=True)
    while words:
        word = words.pop(0)
        if word == "hetjob" or not word.startswith("-"):
            fix = "write a job file with a pool for each part" if word == "hetjob" else "options begin with a dash"
            script.problems.append(Violation(f"#SBATCH {word}", "has no counterpart", fix))
            return
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, value = SHORT.get(word[1], word[1]), word[2:]
            equals = value
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        script.options[name] = value


def _tasks_per_node(script: _Script, nodes: int) -> int:
    per_node, tasks = script.number("ntasks-per-node", 0), script.number("ntasks", 0)
    if per_node or not tasks:
        return per_node or 1
    if tasks % nodes:
        why = f"{tasks} tasks can't be shared out evenly over {nodes} nodes"
        script.problems.append(Violation("#SBATCH --ntasks", why, "every worker has as many ranks as the others"))
    return max(1, tasks // nodes)


def _gpus(script: _Script, nodes: int, per_node: int) -> int:
    """GPUs of each node: ``4``, ``gpu:4``, ``gpu:h100:4``."""
    found = 0
    for name, share in (("gpus-per-node", 1), ("gres", 1), ("gpus-per-task", per_node), ("gpus", 1 / nodes)):
        text = script.options.get(name, "")
        if not text or (name == "gres" and not text.startswith("gpu")):
            continue
        del script.options[name]
        count = text.rpartition(":")[2]
        each = (int(count) if count.isdecimal() else 1 if text == "gpu" else 0) * share
        if each < 1 or each != int(each):
            why = f"{text!r} is no whole number of GPUs for each node"
            script.problems.append(Violation(f"#SBATCH --{name}", why, "write --gpus-per-node=8, say"))
        found = found or int(each)
    return found


def _memory(script: _Script, per_node: int) -> int:
    """MiB of each node."""
    given = script.options.get("cpus-per-task", "")
    cpus = int(given) if given.isdecimal() else 1
    for name, share in (("mem", 1), ("mem-per-cpu", cpus * per_node)):
        text = script.options.pop(name, "")
        if text and not (found := _MEMORY.fullmatch(text)):
            script.problems.append(Violation(f"#SBATCH --{name}", f"{text!r} is no size, such as 64G"))
        elif text and found and int(found[1]):  # 0 is all of the node's
            return int(int(found[1]) * _MIB[found[2].upper()] * share)
    return 0


def _schedule(script: _Script, made: job_pb2.CustomJob) -> None:
    scheduling = made.job_spec.scheduling
    if text := script.options.pop("array", ""):
        try:
            read_array(text)
        except ValueError as error:
            script.problems.append(Violation("#SBATCH --array", str(error), "write 0-9, 1,3,7 or 0-9:2%4"))
        scheduling.array = text
    if text := script.options.pop("time", ""):
        seconds = _seconds(text)
        if not seconds:
            script.problems.append(
                Violation("#SBATCH --time", f"{text!r} is no time, such as 2:00:00 or 1-12:00:00")
            )
        else:
            set_seconds(scheduling.timeout, seconds)
    if text := script.options.pop("signal", ""):
        # B: sends it to the script's shell, which every rank has here.
        name, _, before = text.removeprefix("B:").removeprefix("R:").partition("@")
        scheduling.warning_signal.signal = name if name.startswith("SIG") or name.isdecimal() else f"SIG{name}"
        set_seconds(scheduling.warning_signal.before, int(before) if before.isdecimal() else 60)
    for name, hosts in (
        ("exclude", scheduling.host_selector.avoid_hosts),
        ("nodelist", scheduling.host_selector.hosts),
    ):
        if text := script.options.pop(name, ""):
            from holdfast.guard.allocation import hostlist

            hosts.extend(hostlist(text))


def _depend(script: _Script, made: job_pb2.CustomJob) -> None:
    """The jobs to wait for, such as ``afterok:prep-x7k2mq:data-b4n8wd,afterany:eval-q2v6tz``; all are waited for."""
    for part in filter(None, script.options.pop("dependency", "").split(",")):
        kind, *jobs = part.split(":")
        if kind not in ENDS or not jobs or not all(jobs) or "?" in part:
            fix = "write afterok, afterany or afternotok with ids, such as afterok:JOB:JOB,afterany:JOB"
            script.problems.append(Violation("#SBATCH --dependency", f"{part!r} has no counterpart", fix))
        else:
            for name in jobs:
                made.job_spec.scheduling.after.add(job=name, end=f"DEPENDENCY_END_{ENDS[kind]}")


def _seconds(text: str) -> int:
    """Slurm's ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds`` and ``days-hours[:minutes[:seconds]]``."""
    found = _TIME.fullmatch(text)
    if not found:
        return 0
    days, *rest = (int(part) if part is not None else None for part in found.groups())
    parts = [part for part in rest if part is not None]
    if days is None and len(parts) < 3:
        parts.insert(0, 0)
    hours, minutes, seconds = (*parts, 0, 0, 0)[:3]
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _program(script: _Script, tasks: int) -> str:
    """The script as each rank runs it."""
    commands = [index for index, line in enumerate(script.lines) if line.strip() and not line.startswith("#")]
    steps = [index for index in commands if _SRUN.match(script.lines[index].lstrip())]
    lines = list(script.lines)
    for index in commands:
        if unset := _UNSET.search(lines[index]):
            fix = "leave it out: MASTER_ADDR and MASTER_PORT are set for every rank"
            script.problems.append(Violation(f"line {index + 1}", f"{unset[0]} knows nothing of a job here", fix))
    if len(steps) > 1 or (steps and steps[0] != commands[-1]):
        which = ", ".join(str(index + 1) for index in steps)
        fix = "submit one job for each, or a script that ends with one srun"
        script.problems.append(Violation(f"line {which}", "srun is not the one last command of the script", fix))
    elif steps:
        lines[steps[0]] = _without_srun(script, steps[0])
    elif tasks > 1:
        why = f"has no srun, so Slurm would run it once, not as {tasks} tasks"
        script.problems.append(Violation("", why, "write srun before the program, or ask for one task"))
    variables = [TASK_VARIABLES, *([ARRAY_VARIABLES] if script.options.get("array") else [])]
    return "\n".join([*variables, *(line for line in lines if not line.startswith("#"))])


def _without_srun(script: _Script, index: int) -> str:
    """The command that srun starts, as it is written."""
    rest = script.lines[index].lstrip()
    rest = rest[len("srun") :].lstrip()
    while rest.startswith("-"):
        word, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        name, equals, _ = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, equals = word[1], word[2:]
        if name not in OF_SRUN | SIZES:
            script.problems.append(
                Violation(f"line {index + 1}", f"srun's option {word} has no counterpart", "leave it out")
            )
        if name in WITH_VALUE and not equals:
            rest = rest.partition(" ")[2].lstrip()
    if rest.rstrip().endswith("&"):
        script.problems.append(Violation(f"line {index + 1}", "srun runs in the background", "leave out the &"))
    return rest
