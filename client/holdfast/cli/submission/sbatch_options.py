"""The options of ``sbatch``: how each is written, and what those that a job here doesn't take are answered with. Pure.

A word that Slurm would refuse is refused, and one that Slurm would read as a longer name is read so: a job that starts
without what its script asks for is worse than none.
"""

from __future__ import annotations

import difflib

_FLAGS = (
    "consolidate-segments contiguous help hold ignore-pbs no-requeue overcommit oversubscribe quiet reboot requeue "
    "spread-job stepmgr test-only usage use-min-nodes verbose version wait"
)
FLAGS = frozenset(_FLAGS.split())
"""Options without a value."""
OPTIONAL = frozenset({"exclusive", "get-user-env", "nice", "no-kill", "oom-kill-step", "parsable", "propagate"})
"""Options whose value, if any, stands behind an ``=``."""
_WITH_VALUE = (
    "account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container "
    "container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency "
    "distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node "
    "gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type "
    "mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks "
    "ntasks-per-board ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition "
    "power prefer priority profile qos reservation segment signal sockets-per-node switches thread-spec "
    "threads-per-core time time-min tmp tres-bind tres-per-job tres-per-task uid wait-all-nodes wckey wrap"
)
SHORT = {
    "A": "account",
    "a": "array",
    "B": "extra-node-info",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "h": "help",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "O": "overcommit",
    "o": "output",
    "p": "partition",
    "Q": "quiet",
    "q": "qos",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "V": "version",
    "v": "verbose",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
}
NEEDLESS = {"ignore-pbs", "open-mode", "parsable", "quiet", "requeue", "verbose"}
"""Options whose meaning a job has anyway: failures are repaired, and stdout is the job's id alone."""
ELSEWHERE = {
    "constraint": "--host-selector of submit chooses hosts by labels",
    "error": "holdfast logs has what ranks write",
    "exclusive": "other jobs may use what is left of the hosts",
    "mail-type": "notifications of a job file tell of its end",
    "output": "holdfast logs has what ranks write",
    "partition": "--host-selector of submit chooses hosts by labels",
    "prefer": "--host-selector of submit chooses hosts by labels",
    "wait": "submit --wait waits",
}
"""Options without effect for which there is something else."""
NOT_MEANT = {
    "begin": ("starts a job later, and none here can", "submit it then, or make it a schedule: holdfast schedule"),
    "container": ("runs the script in an image", "write a job file with a containerSpec"),
    "container-id": ("runs the script in an image", "write a job file with a containerSpec"),
    "container-image": ("runs the script in an image", "write a job file with a containerSpec"),
    "export-file": ("takes variables from a file", "have the script read it"),
    "gpus-per-socket": ("has no counterpart", "write --gpus-per-node=8, say"),
    "help": ("asks for no job", "leave it out"),
    "hold": ("keeps a job from starting, and this one would start", "submit it when it may start"),
    "input": ("is not what ranks read", "write < FILE behind the command"),
    "nodefile": ("is a file of names", "write the names as --nodelist=n[1-3],n7"),
    "ntasks-per-board": ("has no counterpart", "write the number of ranks as --ntasks-per-node"),
    "ntasks-per-core": ("has no counterpart", "write the number of ranks as --ntasks-per-node"),
    "ntasks-per-gpu": ("has no counterpart", "write the number of ranks as --ntasks-per-node"),
    "ntasks-per-socket": ("has no counterpart", "write the number of ranks as --ntasks-per-node"),
    "test-only": ("asks for no job", "leave it out, and give submit --dry-run"),
    "tres-per-job": ("has no counterpart", "write --gpus-per-node=8, say"),
    "tres-per-task": ("has no counterpart", "write --gpus-per-task=1, say"),
    "usage": ("asks for no job", "leave it out"),
    "version": ("asks for no job", "leave it out"),
    "wrap": ("is a script in place of this one", "write its command as the script's last line"),
}
"""Options without which a job would be another one, or start at another time: why, and what to do."""
_KNOWN = FLAGS | OPTIONAL | frozenset(_WITH_VALUE.split()) | NOT_MEANT.keys()


def full_name(given: str) -> str:
    """The option that a long one is, which may be cut short where that is clear; empty for none."""
    if given in _KNOWN:
        return given
    begun = [name for name in _KNOWN if given and name.startswith(given)]
    return begun[0] if len(begun) == 1 else ""


def advice(given: str) -> str:
    """The fix for a long option that Slurm has not, or more than one that begins so."""
    begun = sorted(name for name in _KNOWN if name.startswith(given))
    near = begun or difflib.get_close_matches(given, sorted(_KNOWN), n=1)
    return f"write {' or '.join(f'--{name}' for name in near[:3])}" if near else "leave it out"
