"""Commands and options of other schedulers and launchers that people try first, and what they are called here."""

from __future__ import annotations

import difflib

import click

_SHOW, _LIST, _END = ("job show JOB",), ("ps", "job list"), ("cancel JOB",)
_HOSTS = ("host list", "host show HOST")
COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "": {
        "ai": ("submit --config FILE", "job list"),
        "apply": ("submit FILE",),
        "array": ("run --array 1-20%4 -- COMMAND",),
        "auth": ("login", "whoami"),
        "bash": ("job shell JOB", "run --pty -- bash"),
        "create": ("submit FILE", "run -- COMMAND"),
        "debug": ("run --pty -- COMMAND", "job stacks JOB"),
        "delete": ("cancel JOB", "job delete JOB"),
        "describe": (*_SHOW, "host show HOST"),
        "exec": ("job shell JOB -- COMMAND",),
        "explain": ("job show JOB", "job schema"),
        "get": (*_LIST, "job show JOB", "host list"),
        "gpus": ("top", *_HOSTS),
        "help": ("--help", "run --help"),
        "history": ("job list --since 1d",),
        "info": (*_SHOW, "status"),
        "jobs": _LIST,
        "inspect": _SHOW,
        "kill": _END,
        "list": (*_LIST, "host list"),
        "log": ("logs JOB", "logs -f JOB"),
        "ls": (*_LIST, "host list"),
        "node": _HOSTS,
        "nodes": _HOSTS,
        "nvidia-smi": ("top", *_HOSTS),
        "pods": ("job show JOB", "ps"),
        "python": ("run -- python3 train.py",),
        "queue": _LIST,
        "resubmit": ("job rerun JOB",),
        "retry": ("job rerun JOB",),
        "rm": ("cancel JOB", "job delete JOB"),
        "sacct": ("job list --since 1d", "job show JOB"),
        "salloc": ("run --pty --gpus 1 -- bash",),
        "sattach": ("job attach JOB",),
        "sbatch": ("submit FILE", "run --detach -- COMMAND"),
        "sbcast": ("run --package DIR -- COMMAND",),
        "scancel": _END,
        "scontrol": ("job show JOB", "host show HOST", "job pause JOB"),
        "sdiag": ("status",),
        "seff": ("goodput JOB",),
        "show": (*_SHOW, "host show HOST"),
        "sinfo": _HOSTS,
        "sprio": ("job show JOB",),
        "squeue": _LIST,
        "sreport": ("goodput",),
        "srun": ("run -- COMMAND",),
        "ssh": ("job shell JOB",),
        "sshare": ("whoami",),
        "sstat": ("job series JOB",),
        "start": ("run -- COMMAND", "dev start"),
        "sweep": ("run --array 1-20%4 -- COMMAND",),
        "stats": ("top", "job series JOB"),
        "stop": (*_END, "job pause JOB"),
        "suspend": ("job pause JOB",),
        "tail": ("logs -f JOB",),
        "terminate": _END,
        "version": ("--version",),
    },
    "job": {
        "abort": _END,
        "create": ("submit FILE", "run -- COMMAND"),
        "describe": _SHOW,
        "exec": ("job shell JOB -- COMMAND",),
        "get": _SHOW,
        "history": ("job events JOB",),
        "info": _SHOW,
        "inspect": _SHOW,
        "kill": _END,
        "log": ("logs JOB",),
        "ls": _LIST,
        "rm": ("job delete JOB",),
        "start": ("run -- COMMAND", "job resume JOB"),
        "status": _SHOW,
        "stop": (*_END, "job pause JOB"),
        "suspend": ("job pause JOB",),
        "tail": ("logs -f JOB",),
    },
    "host": {
        "add": ("host token create HOST",),
        "create": ("host token create HOST",),
        "delete": ("host remove HOST",),
        "describe": ("host show HOST",),
        "disable": ("host cordon HOST",),
        "enable": ("host uncordon HOST",),
        "get": _HOSTS,
        "info": ("host show HOST",),
        "join": ("host token create HOST",),
        "ls": ("host list",),
        "resume": ("host uncordon HOST",),
        "rm": ("host remove HOST",),
        "status": ("host show HOST",),
        "undrain": ("host uncordon HOST",),
    },
    "secret": {
        "add": ("secret set NAME",),
        "create": ("secret set NAME",),
        "delete": ("secret remove NAME",),
        "ls": ("secret list",),
        "put": ("secret set NAME",),
        "rm": ("secret remove NAME",),
        "update": ("secret set NAME",),
    },
    "dev": {
        "create": ("dev start",),
        "delete": ("dev stop",),
        "down": ("dev stop",),
        "kill": ("dev stop",),
        "ps": ("dev status",),
        "run": ("dev start",),
        "up": ("dev start",),
    },
    "user": {
        "create": ("user add NAME",),
        "delete": ("user remove NAME",),
        "ls": ("user list",),
        "rm": ("user remove NAME",),
    },
}
"""By the group in which the word was tried: lines that do it here, without the ``holdfast`` before them."""

_NEW_JOB = {
    "account": "Resources are counted for --project NAME.",
    "a": "An array is --array 1-20%4.",
    "chdir": "The working directory is --workdir DIR.",
    "constraint": "Groups of hosts are labels: --host-selector 'gpu in (h100,h200)'.",
    "cpus-per-task": "Cores of each worker are --cpus N.",
    "dependency": "Jobs to wait for are --after JOB, once for each.",
    "detach": "It is --detach.",
    "env": "Variables are --env NAME=VALUE, or --env NAME for yours; once for each.",
    "exclude": "Hosts to leave out are --avoid-host HOST, once for each.",
    "gpus-per-node": "GPUs of each worker are --gpus N.",
    "accelerator-type": "The GPUs' model is --gpu-type MODEL.",
    "instance-type": "A class of hosts is --machine-type NAME.",
    "mig": "MIG instances are --gpu-partition-size PROFILE, and --gpus N counts them.",
    "image": "An image is containerSpec.imageUri of a job file; its schema: holdfast job schema",
    "job-name": "The job's name is --name NAME.",
    "mem": "Memory of each worker is --memory-mb N.",
    "nodelist": "Hosts are --on-host HOST, once for each.",
    "nodes": "Workers are --replicas N; each has a host's --gpus, --cpus and --memory-mb of its own.",
    "nproc-per-node": "Ranks of each worker are --processes-per-worker N, one per GPU unless given.",
    "ntasks": "Ranks are --replicas N times --processes-per-worker M.",
    "output": "What ranks print is kept: holdfast logs JOB.",
    "partition": "Groups of hosts are labels: --label-selector KEY=VALUE.",
    "qos": "What is placed first is --priority 3.",
    "requeue": "It is restarted by itself: --max-restarts N in place, --max-retries N on other hosts.",
    "rm": "Nothing of it is left on the hosts; holdfast job delete JOB removes its record.",
    "time": "The longest run time is --timeout 2h.",
    "tty": "A terminal for each rank is --pty.",
    "volume": "Folders of the hosts are there as they are; for containers a job file names volumes.",
    "wait": "It waits for the job unless --detach is given.",
}
_NEW_JOB_ALIKE = {
    **dict.fromkeys(("nnodes", "num-nodes", "num-machines", "workers", "N"), "nodes"),
    **dict.fromkeys(("nproc", "nprocs", "ntasks-per-node", "tasks-per-node"), "nproc-per-node"),
    **dict.fromkeys(("num-processes", "n", "np"), "ntasks"),
    **dict.fromkeys(("gres", "gpus-per-task", "num-gpus", "gpu", "G"), "gpus-per-node"),
    **dict.fromkeys(("cpu", "c"), "cpus-per-task"),
    **dict.fromkeys(("memory", "m"), "mem"),
    **dict.fromkeys(("host", "hosts", "w"), "nodelist"),
    **dict.fromkeys(("cwd", "working-directory", "D"), "chdir"),
    **dict.fromkeys(("e", "env-file", "envs"), "env"),
    **dict.fromkeys(("i", "t", "interactive", "terminal"), "tty"),
    **dict.fromkeys(("v", "mount"), "volume"),
    **dict.fromkeys(("o", "error"), "output"),
    **dict.fromkeys(("x", "exclude-host"), "exclude"),
    **dict.fromkeys(("retry", "retries", "restart", "restarts", "max-retry"), "requeue"),
    **dict.fromkeys(("accelerator", "gpu-model"), "accelerator-type"),
    **dict.fromkeys(("mig-profile", "gpu-partition", "mig-size"), "mig"),
    "A": "account",
    "C": "constraint",
    "d": "detach",
    "export": "env",
    "J": "job-name",
    "p": "partition",
    "queue": "partition",
    "container": "image",
}
_JOBS = {
    "A": "All jobs are --all.",
    "l": "Labels are --label KEY=VALUE.",
    "selector": "Labels are --label KEY=VALUE.",
    "me": "Your jobs are --mine.",
    "u": "Your jobs are --mine; those of another user: holdfast job list --owner NAME",
    "user": "Your jobs are --mine; those of another user: holdfast job list --owner NAME",
    "owner": "Your jobs are --mine; those of another user: holdfast job list --owner NAME",
    "state": "Jobs in a state: holdfast job list --state FAILED",
    "states": "Jobs in a state: holdfast job list --state FAILED",
    "t": "Jobs in a state: holdfast job list --state FAILED",
    "failed": "Jobs in a state: holdfast job list --state FAILED",
    "running": "Jobs in a state: holdfast job list --state RUNNING",
    "name": "Jobs of a name: holdfast job list --name PATTERN",
    "since": "Jobs of a time: holdfast job list --since 1d",
    "w": "A list that stays up to date: holdfast top",
    "watch": "A list that stays up to date: holdfast top",
}
_LOGS = {
    "n": "The last lines are --tail LINES.",
    "lines": "The last lines are --tail LINES.",
    "c": "One worker is --worker NAME, one rank --rank N.",
    "container": "One worker is --worker NAME, one rank --rank N.",
    "replica": "One worker is --worker NAME, one rank --rank N.",
    "node": "One worker is --worker NAME, one rank --rank N.",
    "r": "One rank is --rank N.",
    "p": "Earlier launches are --generation N; holdfast job show JOB lists them.",
    "previous": "Earlier launches are --generation N; holdfast job show JOB lists them.",
    "attempt": "Earlier launches are --generation N; holdfast job show JOB lists them.",
    "all": "All ranks are shown unless --rank or --worker names some.",
    **dict.fromkeys(("search", "filter", "find", "match", "pattern", "e"), "Lines with a text are --grep TEXT."),
}
_CANCEL = {
    "all": "All your active jobs are --all-mine.",
    "u": "All your active jobs are --all-mine.",
    "user": "All your active jobs are --all-mine.",
    "me": "All your active jobs are --all-mine.",
    "n": "Write the name without an option: holdfast cancel NAME",
    "name": "Write the name without an option: holdfast cancel NAME",
    "force": "SIGKILL follows by itself, when the job's grace period is over.",
    "f": "SIGKILL follows by itself, when the job's grace period is over.",
    "signal": "SIGTERM comes first; SIGKILL follows by itself, when the job's grace period is over.",
    "l": "Labels are --label KEY=VALUE.",
    "selector": "Labels are --label KEY=VALUE.",
    "y": "Without a question: --yes.",
}
_FILE = {
    "chdir": "The working directory is workingDirectory of a pool's processSpec in the job file.",
    "cpus-per-task": "Cores of each worker are cpuCount of a pool's machineSpec in the job file.",
    "detach": "It returns at once unless --wait is given.",
    "env": "Variables are env of a pool's processSpec or containerSpec in the job file.",
    "f": "Write the file without an option: holdfast submit FILE",
    "gpus-per-node": "GPUs of each worker are acceleratorCount of a pool's machineSpec in the job file.",
    "accelerator-type": "The GPUs' model is acceleratorType of a pool's machineSpec in the job file.",
    "instance-type": "A class of hosts is machineType of a pool's machineSpec in the job file.",
    "mig": "MIG instances are gpuPartitionSize of a pool's machineSpec in the job file.",
    "mem": "Memory of each worker is memoryMb of a pool's machineSpec in the job file.",
    "nodes": "Workers are replicaCount of a pool in the job file.",
    "nproc-per-node": "Ranks of each worker are processesPerWorker of a pool in the job file.",
    "ntasks": "Ranks are replicaCount times processesPerWorker of the pools in the job file.",
    "requeue": "It is restarted by itself; how often, faultTolerance of the file says, on other hosts --max-retries N.",
    "tty": "A terminal is for commands alone: holdfast run --pty -- COMMAND",
}
_RUN_ALIKE = {
    "cpus": "cpus-per-task",
    "gpus": "gpus-per-node",
    "gpu-type": "accelerator-type",
    "gpu-partition-size": "mig",
    "machine-type": "instance-type",
    "memory-mb": "mem",
    "replicas": "nodes",
    "processes-per-worker": "nproc-per-node",
    "pty": "tty",
    "workdir": "chdir",
    "max-restarts": "requeue",
}
"""Options of ``run`` that ``submit`` has not."""

_ENDS = dict.fromkeys(
    ("end", "end-time", "to", "till", "duration", "time", "length"),
    "It ends --until TIME, or --for DURATION after its beginning.",
)
_RESERVATION = _ENDS | {
    **dict.fromkeys(("start", "start-time", "begin", "at", "since"), "It begins --from TIME."),
    **dict.fromkeys(("nodes", "node", "host", "nodelist", "w"), "Hosts are --hosts host-[0-3]."),
    **dict.fromkeys(("node-count", "nodecnt", "num-nodes", "n", "N"), "So many hosts are --count N."),
    **dict.fromkeys(("users", "owner", "u"), "One user's jobs are --user NAME."),
    **dict.fromkeys(("account", "accounts", "A", "partition", "p"), "A project's jobs are --project NAME."),
    **dict.fromkeys(("selector", "labels", "l"), "One label is --label KEY=VALUE, conditions are --host-selector."),
}
_MAINTENANCE = _ENDS | dict.fromkeys(("start", "start-time", "begin", "from", "since"), "It begins --at TIME.")
_DRAIN = _MAINTENANCE | dict.fromkeys(
    ("timeout", "grace-period", "grace"), "Work has --deadline DURATION to end or to save."
)


def _with_others(hints: dict[str, str], alike: dict[str, str]) -> dict[str, str]:
    return hints | {name: hints[like] for name, like in alike.items() if like in hints}


OPTIONS = {
    "run": _with_others(_NEW_JOB, _NEW_JOB_ALIKE),
    "submit": _with_others(_NEW_JOB | _FILE, _NEW_JOB_ALIKE | _RUN_ALIKE),
    "job rerun": _with_others(
        _NEW_JOB
        | {
            "package": "A rerun has the packaged code of the job; to send other code: holdfast run --package DIR.",
            "tty": "A rerun has terminals where the job had them; for new ones: holdfast run --pty -- COMMAND",
            "wait": "It is --wait.",
        },
        _NEW_JOB_ALIKE | {"pty": "tty", "requirements": "package", "extra-packages": "package"},
    ),
    "ps": _JOBS,
    "job list": _JOBS | dict.fromkeys(("a", "A", "all"), "It lists all jobs that are known."),
    "logs": _LOGS,
    "job logs": _LOGS,
    "cancel": _CANCEL,
    "job cancel": _CANCEL,
    "reservation create": _RESERVATION,
    "host cordon": _MAINTENANCE,
    "host drain": _DRAIN,
}
"""By command: names of options, without their dashes, and a sentence that says what they are called here."""


_OF_THE_PROGRAM = "To change the program's arguments, give its whole command: job rerun JOB -- python train.py …"
BEHIND_PROGRAM = "holdfast.behind_program"
"""Key of a click context's ``meta``: whether the option that is unknown came after words of the program."""


def with_our_option(error: click.NoSuchOption) -> click.UsageError:
    """The error with what the option is called here; as it is where no other launcher has such an option."""
    path = _below_root(error.ctx) if error.ctx is not None else ""
    bare = error.option_name.lstrip("-").replace("_", "-")
    hint = OPTIONS.get(path, {}).get(bare)
    if path == "job rerun":
        if error.ctx is not None and error.ctx.meta.get(BEHIND_PROGRAM):
            hint = _OF_THE_PROGRAM
        elif hint is None and not _is_close(error):
            hint = f"See: holdfast job rerun --help. {_OF_THE_PROGRAM}"
    return error if hint is None else click.UsageError(f"No such option '{error.option_name}'. {hint}", error.ctx)


def _is_close(error: click.NoSuchOption) -> bool:
    """Whether the option is one of the command's own, misspelt: short words are soon like others by chance."""
    return bool(difflib.get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.8))


def our_commands(ctx: click.Context, word: str) -> tuple[str, ...]:
    """Lines that do here what ``word`` does elsewhere, or that name a command ``word`` outside of this group."""
    group = _below_root(ctx)
    if listed := COMMANDS.get(group, {}).get(word):
        return listed
    # Of another group than jobs, a word such as "show" is seldom about jobs.
    if group == "job" and (listed := COMMANDS[""].get(word)):
        return listed
    return tuple(_commands_of_name(ctx.find_root().command, word, deep=not group))


def _below_root(ctx: click.Context) -> str:
    """Words of the command after ``holdfast``."""
    return ctx.command_path.removeprefix(ctx.find_root().command_path).strip()


def _commands_of_name(command: click.Command, word: str, *, deep: bool, path: str = "") -> list[str]:
    if not isinstance(command, click.Group):
        return []
    found = []
    for name, child in command.commands.items():
        line = f"{path} {name}".strip()
        if name == word:
            found.append(line)
        elif deep:
            found += _commands_of_name(child, word, deep=True, path=line)
    return found
