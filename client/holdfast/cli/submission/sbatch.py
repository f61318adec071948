"""A batch script of Slurm as a job: its ``#SBATCH`` lines, and the one command that it starts by ``srun``. Pure.

Slurm runs the script once and ``srun`` once for each task. Here each rank runs the script, with the command in place of
``srun``: so what a script prepares (modules, environments, variables) is there, and must be harmless to repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast._base.job_file.launcher import is_launcher
from holdfast.cli.kit.parameters import is_utf8
from holdfast.cli.submission.job_options import set_seconds
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.cli.submission.sbatch_lines import Script, export, program, read, step_of
from holdfast.cli.submission.sbatch_options import ELSEWHERE, NEEDLESS, NOT_MEANT
from holdfast.errors import ConfigError, InvalidSpec
from holdfast.spec.rules.arrays import read_array
from holdfast.spec.rules.lifecycle import LONGEST_TIMEOUT_S, WARNING_SIGNALS
from holdfast.v1 import job_pb2

ENDS = {"afterok": "OK", "afterany": "ANY", "afternotok": "FAILED"}
"""The end of another job that each kind of dependency waits for."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MOST = 2**31 - 1
"""What a number of a job can be, whatever a host has."""
_MODEL = re.compile(r"[\w.+-]*")
_PARTITION = re.compile(r"\d+g\.\d+gb(?:\+me)?")
"""A type of Slurm's for MIG instances is their profile."""
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


def job(text: str, what: str, environ: Mapping[str, str], cwd: str) -> tuple[job_pb2.CustomJob, list[str]]:
    """The job that a batch script describes, and what to say of it: above all what counts for nothing here.

    Raises ``InvalidSpec``, with every line whose meaning is not clear and what to do about it.
    """
    script = read(text)
    step = step_of(script)
    export(script, environ, script.options.pop("export", ""))
    nodes, per_node = _tasks(script)
    gpus, model = _gpus(script, nodes, per_node)
    partition = model if _PARTITION.fullmatch(model) else ""
    cpus_per_task = script.number("cpus-per-task", 0)
    cpus = cpus_per_task * per_node or script.number("cpus-per-gpu", 0) * gpus
    if cpus > _MOST:
        script.refuse_option("cpus-per-task", f"comes to {cpus} cores on each node", "write fewer")
    array = _array(script)
    name = script.options.pop("job-name", "") or _name_of(what)
    workdir = script.options.pop("chdir", "")
    values = {
        "SLURM_SUBMIT_DIR": cwd,
        "SLURM_JOB_NAME": name,
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NTASKS_PER_NODE": str(per_node),
        **({"SLURM_CPUS_PER_TASK": str(cpus_per_task)} if cpus_per_task else {}),
        **({"SLURM_GPUS_ON_NODE": str(gpus)} if gpus else {}),
        **({"SLURM_ARRAY_TASK_MIN": str(array[0]), "SLURM_ARRAY_TASK_MAX": str(array[-1])} if array else {}),
        **script.exports,
    }
    for option in filter(NOT_MEANT.__contains__, script.options):
        script.refuse_option(option, *NOT_MEANT[option])
    memory_mb = _memory(script, per_node, gpus, cpus)
    command = (*script.shell, "-c", program(script, step, nodes * per_node, values))
    if per_node > 1 and is_launcher(command):
        why = f"is {per_node}, and the script starts a launcher, which starts the processes itself"
        script.refuse_option("ntasks-per-node", why, "write --ntasks-per-node=1")
    if not is_utf8(cwd):
        script.refuse(
            "", "this folder's name is not UTF-8, as all texts of a job are", "submit it from another one"
        )
    rest = job_pb2.CustomJob()
    _schedule(script, rest)
    _depend(script, rest)
    if script.problems:
        raise InvalidSpec(script.problems, what=what)
    request = RunRequest(
        command=command,
        replicas=nodes,
        processes_per_worker=per_node,
        gpus=gpus,
        gpu_type=model if model and not partition else None,
        gpu_partition_size=partition or None,
        cpus=cpus,
        memory_mb=memory_mb,
        name=name,
        workdir=workdir,
    )
    made = job_of(request, environ, cwd)
    made.job_spec.fault_tolerance.ClearField("max_job_retries")
    if script.options.pop("no-requeue", None) is not None:
        made.job_spec.scheduling.disable_retries = True
    made.MergeFrom(rest)
    return made, _notes(script)


def _notes(script: Script) -> list[str]:
    """All that has no effect, with its line and with what there is in its place, and all that is read otherwise."""
    unused = []
    for name in sorted(script.options.keys() - NEEDLESS):
        line = f"line {script.written[name]}" if name in script.written else ""
        about = ": ".join(filter(None, (line, ELSEWHERE.get(name))))
        unused.append(f"--{name} ({about})" if about else f"--{name}")
    return [*([f"nothing here corresponds to {', '.join(unused)}"] if unused else []), *script.notes]


def _name_of(what: str) -> str:
    """A display name out of the script's own."""
    return re.sub(r"[^\w.@+-]+", "-", what.rpartition("/")[2].removesuffix(".sh"))[:128].strip("-") or "job"


def _tasks(script: Script) -> tuple[int, int]:
    """The nodes, and the tasks on each."""
    given = script.options.get("nodes")
    nodes = script.number("nodes", 1)
    per_node, tasks = script.number("ntasks-per-node", 0), script.number("ntasks", 0)
    if not tasks:
        return nodes, per_node or 1
    if per_node and not given:
        nodes = -(-tasks // per_node)
    if per_node and tasks > nodes * per_node:
        why = f"{tasks} tasks are more than {per_node} on each of {nodes} nodes"
        script.refuse_option("ntasks", why, "leave out one of the three")
        return nodes, per_node
    if tasks % nodes:
        why = f"{tasks} tasks can't be shared out evenly over {nodes} nodes"
        script.refuse_option("ntasks", why, "every worker has as many ranks as the others")
    return nodes, max(1, tasks // nodes)  # beside --ntasks, --ntasks-per-node is the most


def _gpus(script: Script, nodes: int, per_node: int) -> tuple[int, str]:
    """GPUs of each node and their type, empty for any: ``4``, ``h100:4``, ``gpu:4``, ``gpu:h100:4``, ``gpu:h100``."""
    found, model = 0, ""
    for name, times, among in (
        ("gpus-per-node", 1, 1),
        ("gres", 1, 1),
        ("gpus-per-task", per_node, 1),
        ("gpus", 1, nodes),
    ):
        text = script.options.pop(name, "")
        if name == "gres":
            text = _gpus_of_gres(script, text)
        kind, _, count = text.rpartition(":")
        if not text or count == "0":
            continue
        each, rest = divmod(int(count) * times, among) if count.isdecimal() and len(count) < 10 else (0, 0)
        if not 0 < each <= _MOST or rest or not _MODEL.fullmatch(kind):
            why = f"{text!r} is no whole number of GPUs for each node"
            script.refuse_option(name, why, "write --gpus-per-node=8, say")
        if kind and model and kind != model:
            script.refuse_option(name, f"asks for {kind}, and another option for {model}", "name one")
        found, model = found or each, model or kind
    return found, model


def _gpus_of_gres(script: Script, text: str) -> str:
    """The GPUs of a list of resources, as ``--gpus`` has them; other kinds stay among the options."""
    kinds = text.split(",") if text not in ("", "none") else []
    gpus = [kind for kind in kinds if re.match("gpu(:|$)", kind)]
    if others := [kind for kind in kinds if kind not in gpus]:
        script.options["gres"] = ",".join(others)
    if unclear := [kind for kind in others if "gpu" in kind.lower()]:
        script.refuse_option("gres", f"{unclear[0]!r} is no number of GPUs", "write --gres=gpu:8 or gpu:h100:8")
    if len(gpus) > 1:
        script.refuse_option("gres", "asks for GPUs of several types", "name one: a node's ranks are alike")
    if not gpus:
        return ""
    rest = gpus[0].removeprefix("gpu").removeprefix(":")
    return rest if rest.rpartition(":")[2].isdecimal() else f"{rest}:1".removeprefix(":")


def _memory(script: Script, per_node: int, gpus: int, cpus: int) -> int:
    """MiB of each node."""
    shares = {"mem": 1, "mem-per-cpu": cpus or per_node, "mem-per-gpu": gpus}
    given = [(name, script.options.pop(name)) for name in list(script.options) if name in shares]
    for name, text in given[-1:]:  # the last one wins
        share = shares[name]
        if text and not (found := _MEMORY.fullmatch(text)):
            script.refuse_option(name, f"{text!r} is no size", "write one in whole units, such as 64G")
        elif text and found and int(found[1]):  # 0 is all of the node's
            mib = int(int(found[1]) * _MIB[found[2].upper()] * share)
            if mib > _MOST:
                script.refuse_option(name, f"comes to {mib} MiB on each node", "write less")
            elif not share:
                script.refuse_option(name, "asks for memory of GPUs, and for no GPU", "write --mem")
            return mib
    return 0


def _array(script: Script) -> tuple[int, ...]:
    """Its indices; none where it is no array."""
    try:
        return read_array(script.options.get("array", "")).indices
    except ValueError as error:
        script.refuse_option("array", str(error), "write 0-9, 1,3,7 or 0-9:2%4")
        return ()


def _schedule(script: Script, made: job_pb2.CustomJob) -> None:
    scheduling = made.job_spec.scheduling
    scheduling.array = script.options.pop("array", "")
    text = script.options.pop("time", "")
    if text and (seconds := _seconds(text)) is None:
        script.refuse_option("time", f"{text!r} is no time", "write minutes, 2:00:00 or 1-12:00:00")
    elif text:
        # 0 is no limit, and a job here has one of seven days unless another is written.
        set_seconds(scheduling.timeout, min(seconds or LONGEST_TIMEOUT_S, LONGEST_TIMEOUT_S))
    if text := script.options.pop("signal", ""):
        # B: sends it to the script's shell, which every rank has here.
        name, at, before = text.removeprefix("B:").removeprefix("R:").upper().partition("@")
        if not name or (at and not (before.isdecimal() and len(before) < 10)):
            script.refuse_option("signal", f"{text!r} is no signal and seconds", "write USR1@300, say")
            return
        known = {str(number): known for known, number in WARNING_SIGNALS.items()}
        scheduling.warning_signal.signal = known.get(name) or f"SIG{name.removeprefix('SIG')}"
        set_seconds(scheduling.warning_signal.before, int(before or 60))
    for name, hosts in (
        ("exclude", scheduling.host_selector.avoid_hosts),
        ("nodelist", scheduling.host_selector.hosts),
    ):
        if text := script.options.pop(name, ""):
            hosts.extend(_hosts(script, name, text))


def _hosts(script: Script, name: str, text: str) -> list[str]:
    from holdfast.guard.allocation import hostlist

    if "/" in text:  # to Slurm it is a file
        script.refuse_option(name, f"{text!r} is a file of names", "write the names, such as n[1-3],n7")
        return []
    try:
        return list(hostlist(text))
    except ConfigError as error:
        script.refuse_option(name, error.message.removesuffix("."), "write it as n[1-3],n7")
        return []


def _depend(script: Script, made: job_pb2.CustomJob) -> None:
    """The jobs to wait for, such as ``afterok:prep-x7k2mq:data-b4n8wd,afterany:eval-q2v6tz``; all are waited for."""
    for part in filter(None, script.options.pop("dependency", "").split(",")):
        kind, *jobs = part.split(":")
        if kind not in ENDS or not jobs or not all(jobs) or "?" in part:
            fix = "write afterok, afterany or afternotok with ids, such as afterok:JOB:JOB,afterany:JOB"
            script.refuse_option("dependency", f"{part!r} has no counterpart", fix)
        else:
            for name in jobs:
                made.job_spec.scheduling.after.add(job=name, end=f"DEPENDENCY_END_{ENDS[kind]}")


def _seconds(text: str) -> int | None:
    """Slurm's ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds`` and ``days-hours[:minutes[:seconds]]``.

    0 for what has no end, None for what is no time.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return 0
    found = _TIME.fullmatch(text)
    if not found:
        return None
    days, *rest = (int(part) if part is not None else None for part in found.groups())
    parts = [part for part in rest if part is not None]
    if days is None and len(parts) < 3:
        parts.insert(0, 0)
    hours, minutes, seconds = (*parts, 0, 0, 0)[:3]
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
