"""The text of a batch script of Slurm: its ``#SBATCH`` lines, its commands, the one that ``srun`` starts. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.rank_variables import purpose_of
from holdfast.cli.kit.parameters import is_utf8
from holdfast.cli.submission import sbatch_options
from holdfast.cli.submission.sbatch_options import SHORT
from holdfast.errors import Violation

OF_SRUN = {"label", "l", "unbuffered", "u", "kill-on-bad-exit", "K", "cpu-bind", "exclusive", "mpi", "wait", "W"}
"""Options of srun that change nothing here."""
SIZES = {
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
}
"""Options of srun that say again what the script's own say, or what these leave open."""
SRUN_WITH_VALUE = SIZES | {"cpu-bind", "mpi", "wait", "W", "export"}
SHELLS = ("bash", "sh", "dash", "ksh", "zsh")
TASK_VARIABLES = (
    "export SLURM_PROCID=$RANK SLURM_NTASKS=$WORLD_SIZE SLURM_LOCALID=$LOCAL_RANK SLURM_NODEID=$GROUP_RANK "
    'SLURM_JOB_ID=$(printf %s "$HOLDFAST_JOB" | cksum | cut -d " " -f 1) SLURM_NPROCS=$WORLD_SIZE '
    "SLURM_RESTART_COUNT=$HOLDFAST_RESTART_COUNT; export SLURM_JOBID=$SLURM_JOB_ID"
)
"""Programs reckon with the number of a job: Lightning makes a port of its last digits."""
ARRAY_VARIABLES = (
    "export SLURM_ARRAY_TASK_ID=$HOLDFAST_ARRAY_INDEX SLURM_ARRAY_TASK_COUNT=$HOLDFAST_ARRAY_COUNT "
    "SLURM_ARRAY_JOB_ID=$HOLDFAST_ARRAY_ID"
)
LOOKED_AT = 2_000
"""Characters of a line in which commands and variables of Slurm are looked for."""
_DIRECTIVE = re.compile(r"#SBATCH(.*)")
_OF_OTHERS = re.compile(r"(#(?:PBS|BSUB|COBALT|OAR))\s+-")
_BEFORE_SRUN = r"""(?:(?:exec|time)\s+|\w+=(?:"[^"]*"|'[^']*'|[^\s"'])*\s+)*"""
_SRUN = re.compile(rf"({_BEFORE_SRUN})(?:/\S*/)?srun\s+")
_COMMAND = r"""(?:^|[;&|(`]|=["']?|\b(?:then|do|else|time|exec|nohup|env|timeout\s+\S+)\s)\s*(?:/\S*/)?"""
"""Where a command may begin in a line."""
_ANOTHER_SRUN = re.compile(_COMMAND + r"srun\s")
_UNSET = re.compile(
    rf"(SLURM_(?:JOB_|STEP_)?(?:NODELIST|HOSTS)|scontrol)"
    rf"|{_COMMAND}(sbatch|salloc|squeue|scancel|sacct|sbcast|sattach|sstat)(?![\w.-])"
)
_VARIABLE = re.compile(r"\$(?:\{(SLURMD?_\w+)(:?[-+=?])?|(SLURMD?_\w+))")
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)")
_IN_ARITHMETIC = re.compile(r"(?<![\w${])SLURMD?_\w+")
_MEETING = re.compile(r"""(?:^|[\s;&|])(MASTER_(?:ADDR|PORT))=(?!["']?\$\{?MASTER_)""")
_OWN_NAME = r"RANK|PROCID|LOCALID|NODEID|HOSTNAME|hostname|HOLDFAST_HOST|\$\$"
"""In the name of a file: each rank has one of its own."""
_LAUNCHED = re.compile(
    r"(--(?:rdzv[-_](?:id|endpoint)|master[-_](?:addr|port)))[ =]\S*(?:\$\(|`|\$\{?(?:HOST|RANDOM))"
)
"""Places to meet that a batch script finds out on its one node, and each rank of a job here would find otherwise."""


@dataclass(slots=True)
class Script:
    """A script as it was read, and what has no clear meaning in it."""

    options: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    problems: list[Violation] = field(default_factory=list)
    exports: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = ("bash",)
    written: dict[str, int] = field(default_factory=dict)
    """The line that each option is from."""
    notes: list[str] = field(default_factory=list)
    """What is read and counts for nothing."""

    def refuse(self, where: str, why: str, fix: str) -> None:
        """Note what has no clear meaning here, and what to do."""
        self.problems.append(Violation(where, why, fix))

    def refuse_option(self, name: str, why: str, fix: str) -> None:
        """The same of an option of the script's, which is named with its line."""
        line = f"line {self.written[name]}: " if name in self.written else ""
        self.refuse(f"{line}#SBATCH --{name}", why, fix)

    def number(self, name: str, default: int) -> int:
        """A whole number above 0."""
        text = self.options.pop(name, "")
        if text and not (text.isdecimal() and 0 < int(text) < 1_000_000):
            self.refuse_option(name, f"{text!r} is no number above 0", "write one, such as 2")
            return default
        return int(text) if text else default


def read(text: str) -> Script:
    """Its options, and its lines behind them."""
    script, header = Script(), True
    for number, line in enumerate(text.replace("\r\n", "\n").removesuffix("\n").split("\n"), 1):
        found = _DIRECTIVE.match(line)
        if found and header:
            _directive(script, number, found[1].strip().removesuffix("\\"))
        elif found:
            script.notes.append(f"line {number}: #SBATCH behind the first command counts for nothing, as in Slurm")
        elif line.startswith("#!") and not script.lines:
            _interpreter(script, line[2:])
        elif header and (other := _OF_OTHERS.match(line)):
            script.notes.append(f"line {number}: {other[1]} counts for nothing; write #SBATCH")
        elif line.strip() and not line.lstrip().startswith("#"):
            header = False  # Slurm reads no options after the first command
        script.lines.append("" if header else line)
    return script


def _interpreter(script: Script, text: str) -> None:
    """Note the shell that runs the script, with its options, such as -l, by which modules and conda are known."""
    words = [word for word in text.split() if word.rpartition("/")[2] != "env" and word != "-S"]
    name, options = (words[0].rpartition("/")[2], words[1:]) if words else ("", [])
    if name not in SHELLS or not all(re.fullmatch(r"-[a-zA-Z]+|--login", option) for option in options):
        script.refuse("line 1", f"{text.strip()!r} is no shell", "submit a script of bash that runs it")
        return
    script.shell = ("bash" if name == "sh" else name, *options)


def _directive(script: Script, number: int, text: str) -> None:
    """Take the options of a line as Slurm does: by getopt's rules, the last one of a name."""
    where = f"line {number}: #SBATCH"
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        script.refuse(f"{where} {text}", "has a quote without an end", "close it")
        return
    while words:
        word = words.pop(0)
        if word in ("hetjob", "packjob") or not word.startswith("-"):
            fix = "options begin with a dash" if word[3:] != "job" else "write a job file with a pool for each part"
            script.refuse(f"{where} {word}", "has no counterpart", fix)
            return
        if not word.strip("-"):
            script.refuse(f"{where} {word}", "names no option", "remove it")
            continue
        given, equals, value = word[2:].partition("=")
        name = sbatch_options.full_name(given)
        if not word.startswith("--"):
            name, equals, value = SHORT.get(word[1], ""), word[2:], word[2:]
        if not name:
            fix = sbatch_options.advice(given) if word.startswith("--") else "leave it out"
            script.refuse(f"{where} {word}", "is no option of sbatch", fix)
            continue
        if name in sbatch_options.FLAGS:
            if equals and word.startswith("--"):
                script.refuse(f"{where} {word}", "has no value in Slurm", f"write --{name}")
            elif value:
                words.insert(0, f"-{value}")  # -Hv is -H -v
            value = ""
        elif name not in sbatch_options.OPTIONAL and not value:
            value = words.pop(0) if words and not equals else ""
            if not value:
                script.refuse(f"{where} {word}", "needs a value", f"write --{name}=…, or leave it out")
        if name in ("requeue", "no-requeue"):
            script.options.pop("requeue", None)
            script.options.pop("no-requeue", None)
        script.options.pop(name, None)  # the order is that of the last ones
        script.options[name] = value
        script.written[name] = number


def export(script: Script, environ: Mapping[str, str], text: str) -> None:
    """Variables that ``--export`` names, with a value or as they are where the job is submitted."""
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if name.upper() in ("ALL", "NONE", "NIL") and not equals:
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or not (equals or name in environ):
            script.refuse("--export", f"{part!r} is no variable that is set here", "write NAME=VALUE")
        elif purpose := purpose_of(name):
            script.refuse("--export", f"{name} {purpose}; Holdfast sets it", "leave it out")
        elif not is_utf8(part if equals else environ[name]):
            script.refuse("--export", f"the value of {name} is not UTF-8", "have the script set it")
        else:
            script.exports[name] = value if equals else environ[name]


@dataclass(frozen=True, slots=True)
class Step:
    """The lines of the script that start ranks: ``first`` to ``last``, and what runs without srun; else none."""

    first: int = -1
    last: int = -1
    command: str = ""


def step_of(script: Script) -> Step:
    """The one srun, whose sizes stand in for those that the script doesn't give."""
    commands = _commands(script.lines)
    steps = [(first, last, found) for first, last, line in commands if (found := _SRUN.match(line.lstrip()))]
    if len(steps) > 1 or (steps and steps[0][:2] != commands[-1][:2]):
        which = ", ".join(str(first + 1) for first, _, _ in steps)
        fix = "submit one job for each, or a script that ends with one srun"
        script.refuse(f"line {which}", "srun is not the one last command of the script", fix)
        return Step()
    if not steps:
        return Step()
    ((first, last, found),) = steps
    return Step(first, last, found[1] + _without_srun(script, first, commands[-1][2].lstrip()[found.end() :]))


def _commands(lines: list[str]) -> list[tuple[int, int, str]]:
    """(First line, last line, text) of each command that is one as a shell reads lines, as far as srun needs it."""
    found, index = [], 0
    while index < len(lines):
        first, line, before = index, lines[index], list[str]()
        index += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        srun = _SRUN.match(line.lstrip())
        quote, goes_on = _end_of(line)
        while index < len(lines):
            if goes_on:
                before.append(line[:-1])
            elif srun and quote:
                before.append(f"{line}\n")
            else:
                break
            line = lines[index]
            quote, goes_on = _end_of(line, quote)
            index += 1
        found.append((first, index - 1, "".join((*before, line))))
    return found


def _end_of(line: str, quote: str = "") -> tuple[str, bool]:
    """The quote that is open behind a line, or none, and whether its last backslash joins the next one to it.

    ``quote`` is open before it.
    """
    is_escaped = False
    for char in line:
        if is_escaped:
            is_escaped = False
        elif char == "\\" and quote != "'":
            is_escaped = True
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
    return quote, is_escaped


def program(script: Script, step: Step, tasks: int, values: Mapping[str, str]) -> str:
    """The script as each rank runs it."""
    lines = list(script.lines)
    if step.command:
        lines[step.first : step.last + 1] = [step.command]
    array = bool(script.options.get("array"))
    if tasks > 1:
        _note_overwritten(script, step, tasks)
    known = set(re.findall(r"SLURM_\w+", " ".join((TASK_VARIABLES, ARRAY_VARIABLES if array else "")))) | set(
        values
    )
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            _check_line(script, f"line {number}", line, known, alone=tasks == 1)
    if not step.command and tasks > 1 and not script.problems:
        why = f"has no srun, so Slurm would run it once, not as {tasks} tasks"
        script.refuse("", why, "write srun before the program, or ask for one task")
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    first = next((index for index, line in enumerate(lines) if line), 0)
    return "\n".join([TASK_VARIABLES, *([ARRAY_VARIABLES] if array else []), f"export {given}", *lines[first:]])


def _check_line(script: Script, where: str, line: str, known: set[str], *, alone: bool) -> None:
    """Refuse what names a part of Slurm that isn't there, and a place to meet that is another for each rank."""
    line = line[:LOOKED_AT]
    if unset := _UNSET.search(line):
        fix = "leave it out: MASTER_ADDR and MASTER_PORT are set for every rank"
        if unset[2]:
            fix = "leave it out: no command of Slurm is of use here"
        script.refuse(where, f"{unset[1] or unset[2]} knows nothing of a job here", fix)
        return
    if _ANOTHER_SRUN.search(line) and not _SRUN.match(line.lstrip()):
        script.refuse(where, "srun is not at the beginning of the last command", "begin that line with srun")
    if not alone and (met := _MEETING.search(line)):
        fix = "leave it out, or write ${MASTER_PORT:-…}: both are set for every rank"
        script.refuse(where, f"{met[1]} {purpose_of(met[1])}; Holdfast sets it", fix)
    if not alone and (met := _LAUNCHED.search(line)):
        script.refuse(where, f"{met[1]} would be another one on each host", "leave it out: torchrun has it here")
    known |= {word.partition("=")[0] for word in line.replace(";", " ").split() if "=" in word}
    named = [(braced or bare, otherwise) for braced, otherwise, bare in _VARIABLE.findall(line)]
    named += [(name, "") for inner in _ARITHMETIC.findall(line) for name in _IN_ARITHMETIC.findall(inner)]
    for name, otherwise in dict.fromkeys(named):
        if name not in known and not otherwise:
            fix = f"write its value, or ${{{name}:-…}} with one for here"
            script.refuse(where, f"{name} is not set here", fix)


def _without_srun(script: Script, index: int, rest: str) -> str:
    """The command that srun starts, as it is written."""
    where = f"line {index + 1}"
    while rest.startswith("-"):
        word, rest = _next_word(rest)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, value = word[1:2], word[2:]
            equals = value
        name = SHORT.get(name, name) if name in ("N", "n", "c") else name
        if name not in OF_SRUN | SIZES | {"export"}:
            script.refuse(where, f"srun's option {word} has no counterpart", "leave it out")
        if name in SRUN_WITH_VALUE and not equals:
            value, rest = _next_word(rest)
        value = value.strip("\"'")
        if name == "export" and "$" in value:
            script.refuse(
                where, f"srun's --export={value} is not known before it runs", "export it in a line before"
            )
        elif name == "export":
            export(script, {}, value)
        elif name == "mpi" and value != "none":
            script.options[name] = value
        elif name in SIZES and "$" not in value and (problem := _same_size(script, name, value)):
            script.refuse(
                where, f"srun's --{name}={value} is not the script's {problem}", "submit a job for this step"
            )
    if rest.rstrip().endswith("&"):
        script.refuse(where, "srun runs in the background", "leave out the &")
    if any(word == ":" and before.strip("();<>|&") for before, word in pairwise(_words(rest))):
        script.refuse(where, "srun starts several programs", "write a job file with a pool for each")
    return rest


def _words(command: str) -> list[str]:
    """The words and the signs of a command as a shell tells them apart, with their quotes; none if it can't be read."""
    lexer = shlex.shlex(command, posix=False, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def _note_overwritten(script: Script, step: Step, tasks: int) -> None:
    """Name the files that each rank writes from the beginning, where srun would write one for all of them."""
    words = _words(step.command)
    for sign, name in pairwise(words):
        opens = sign in (">", "&>", ">|") or (sign == ">&" and not re.fullmatch(r"\d+|-", name)) or sign == "tee"
        if not opens or name.startswith(("-", "(", ">", "/dev/")) or re.search(_OWN_NAME, name):
            continue
        script.notes.append(
            f"line {step.first + 1}: each of the {tasks} ranks writes {name} from its beginning, over what the others "
            f"wrote; leave it out, since holdfast logs has what each writes, or write "
            + (f"tee -a {name}" if sign == "tee" else f">> {name}")
        )


def _next_word(text: str) -> tuple[str, str]:
    found = re.match(r"""((?:"[^"]*"|'[^']*'|[^\s"'])+)\s*""", text)
    return (found[1], text[found.end() :]) if found else (text, "")


def _same_size(script: Script, name: str, value: str) -> str:
    """Take a size of srun's that the script leaves open; returns the script's where it is another."""
    options = script.options
    if name == "ntasks" and name not in options and options.get("ntasks-per-node", "").isdecimal():
        nodes = options.get("nodes", "1")
        whole = str(int(nodes) * int(options["ntasks-per-node"])) if nodes.isdecimal() else ""
        return "" if whole == value else f"{whole} tasks"
    if name == "nodes" and name not in options:
        options[name] = "1"
    if options.setdefault(name, value) != value:
        return f"--{name}={options[name]}"
    return ""
