"""Which hosts ``--hosts`` names, what is sent to one to start a task there, and what its answer means. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Mapping, Sequence

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import BACKDATED_S
from holdfast._base.version import __version__
from holdfast.errors import ConfigError, HoldfastError, Unavailable
from holdfast.guard.allocation import hostlist

MARK = b"holdfast-guard-answer "
"""Begins the line after which a host's stdout is the guard's; what start-up files of a shell print comes before."""
COMMAND = "exec /bin/sh"
"""What ssh runs, whatever the user's login shell is: all else, secrets included, goes through stdin."""
PYTHON = (3, 11)
_FIRST_WORDS = f"""\
import json, os, sys, time
sys.path[:] = [each for each in sys.path if each]
said = {{"python": sys.version.split()[0], "program": sys.executable, "clock": time.time(), "problem": ""}}
said.update(login=os.environ.get("SSH_CONNECTION", ""), folder=os.path.isdir(sys.argv[1]), holdfast="")
try:
    from holdfast._base.version import __version__
    said["holdfast"] = __version__
    from holdfast.cli.jobs.guard import remote
except Exception as error:
    said["problem"] = str(error)
sys.stdout.write({MARK.decode()!r} + json.dumps(said) + chr(10))
sys.stdout.flush()
if not said["problem"]:
    remote()
"""
_SLOTS = re.compile(r"([^:\[\]]+|\[[^\]]+\]):\d+")
"""A host of MPICH's, and how many slots it has: not what is an address of IPv6 without brackets, nor a port."""
_URI = "ssh://"


@dataclass(frozen=True, slots=True)
class Login:
    """A host as ``--hosts`` names it."""

    target: str
    """The destination for ssh: a name of its configuration, an address, ``user@host``, or ``ssh://user@host:port``."""

    @property
    def host(self) -> str:
        """The host alone, as it was named."""
        host = self.target.removeprefix(_URI).rpartition("@")[2]
        return re.sub(r":\d+\Z", "", host) if self.target.startswith(_URI) else host

    @property
    def name(self) -> str:
        """The host's name in the job and in sentences."""
        return re.sub(r"[^A-Za-z0-9._-]", "-", self.host)[:50]


@dataclass(frozen=True, slots=True)
class Answer:
    """The first words of a host."""

    login: Login
    python: str = ""
    program: str = ""
    holdfast: str = ""
    problem: str = ""
    clock: float = 0.0
    folder: bool = False
    client: str = ""
    """The address from which the host was logged in to, as it sees it."""
    server: str = ""
    """The address by which it was reached."""


def logins(text: str, file: str | None = None) -> tuple[Login, ...]:
    """The hosts in a list (``a,b[1-3]``), or in a file with one a line, as PBS, LSF and MPI write them.

    A host that a file repeats, once for each slot, counts once. Raises ``ConfigError``.
    """
    if file is None:
        names = list(hostlist(text))
    else:
        lines = (line.partition("#")[0].split() for line in file.splitlines())
        names = list(dict.fromkeys(_without_slots(words[0]) for words in lines if words))
    found = tuple(Login(name.strip()) for name in names)
    for each in found:
        if not each.name or each.target.startswith("-") or re.search(r"\s", each.target):
            raise ConfigError(f"--hosts: {each.target!r} is no host.", fix="Name them as for ssh: --hosts a,b,c")
        port = re.search(r":(\d*)\Z", each.target) if each.target.startswith(_URI) else None
        if port is not None and not (0 < len(port[1]) < 6 and 0 < int(port[1]) < 1 << 16):
            raise ConfigError(
                f"--hosts: {each.target!r} has no port from 1 to 65535.", fix="Name it ssh://HOST:PORT."
            )
    twice = next((each.name for each in found if [other.name for other in found].count(each.name) > 1), "")
    if twice:
        raise ConfigError(
            f"--hosts names {twice} twice.", fix="For several ranks on each host say how many: --nproc 8."
        )
    if not found:
        raise ConfigError("--hosts names no host.", fix="Name them as for ssh: --hosts a,b,c")
    return found


def _without_slots(word: str) -> str:
    found = _SLOTS.fullmatch(word)
    return found[1].strip("[]") if found else word


def first_script(program: str, folder: str, python_path: str) -> bytes:
    """The shell script that runs first on a host: this Python, or that of its PATH, reports what it finds."""
    lacking = json.dumps({"problem": "no Python"})
    return "".join(
        f"{line}\n"
        for line in (
            *([f"PYTHONPATH={shlex.quote(python_path)}; export PYTHONPATH"] if python_path else []),
            f"python={shlex.quote(program)}",
            '[ -x "$python" ] || python=$(command -v python3) || '
            f"{{ echo {shlex.quote(MARK.decode() + lacking)}; exit 0; }}",
            f'exec "$python" -c {shlex.quote(_FIRST_WORDS)} {shlex.quote(folder)}',
        )
    ).encode(errors="surrogateescape")


def answer(login: Login, line: bytes) -> Answer:
    """A host's first words. Raises ``ValueError`` for a line that is none."""
    said = json.loads(line.removeprefix(MARK))
    if not isinstance(said, dict):
        raise ValueError("no object")
    texts = {name: str(said.get(name, "")) for name in ("python", "program", "holdfast", "problem")}
    ends = str(said.get("login", "")).split()
    client, server = (ends[0], ends[2]) if len(ends) == 4 else ("", "")
    return Answer(
        login,
        **texts,
        clock=float(said.get("clock", 0)),
        folder=bool(said.get("folder")),
        client=client,
        server=server,
    )


def refusal(said: Answer, program: str, folder: str, clock: float) -> HoldfastError | None:
    """Why no task can start on a host that has answered; None where one can."""
    name = said.login.name
    if not said.program:
        return Unavailable(
            f"{name} has no Python: neither {program} nor python3.",
            fix="Install Python and Holdfast there, at the same path as here.",
        )
    python = tuple(int(part) for part in re.findall(r"\d+", said.python)[:2])
    if python < PYTHON:
        return Unavailable(
            f"{name} has no {program}, and its {said.program} is Python {said.python}: Holdfast needs 3.11 or later.",
            fix="Install Python and Holdfast there, at the same path as here.",
        )
    if not said.holdfast:
        return Unavailable(
            f"{said.program} on {name}, Python {said.python}, has no Holdfast: {said.problem}.",
            fix=f"Install it there: {said.program} -m pip install 'holdfast[controller,agent]=={__version__}'",
        )
    if said.holdfast != __version__:
        return Unavailable(
            f"{name} has Holdfast {said.holdfast:.40}, and this machine {__version__}.",
            fix=f"Install one release: {said.program} -m pip install 'holdfast[controller,agent]=={__version__}'",
        )
    if said.problem:
        return Unavailable(f"Holdfast can't be loaded on {name}: {said.problem}.", fix="Install it there again.")
    if abs(apart := said.clock - clock) >= BACKDATED_S:
        return Unavailable(
            f"The clock of {name} is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} this machine's: "
            "certificates would not hold there.",
            fix="Set the clocks, by NTP for instance.",
        )
    if not said.folder:
        return Unavailable(
            f"{name} has no folder {folder}, in which the command is to run.",
            fix="Start it from a folder that all hosts have.",
        )
    return None


def first_addresses(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Addresses by which the others reach the first host, the likeliest first."""
    first, others = answers[0], answers[1:]
    if not _loopback(first.server) or not others:
        return (first.server,) if first.server else (first.login.name,)
    # It is the machine from which all were logged in to, so they have seen an address of its.
    seen = dict.fromkeys(each.client for each in others if not _loopback(each.client))
    return tuple(seen) or (first.server,)


def bare_script(
    command: Sequence[str], env: Mapping[str, str], folder: str, task: int, tasks: int, per_task: int, address: str
) -> bytes:
    """The shell script that runs the command without a guard, once for each rank, until its login ends."""
    lines = [f"cd {shlex.quote(folder)} || exit 1", "pids=; exec 3<&0"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    lines += [f"export MASTER_ADDR={shlex.quote(address)} MASTER_PORT={BARE_PORT} WORLD_SIZE={tasks * per_task}"]
    lines += [f"export LOCAL_WORLD_SIZE={per_task} GROUP_RANK={task}"]
    for local in range(per_task):
        ranks = f"RANK={task * per_task + local} LOCAL_RANK={local}"
        lines += [f"{ranks} {shlex.join(command)} </dev/null 3<&- &", 'pids="$pids $!"']
    lines += ["(cat <&3; kill $pids) >/dev/null 2>&1 &", "keeper=$!; status=0"]
    lines += ['for pid in $pids; do wait "$pid" || status=$?; done', "kill $keeper 2>/dev/null; exit $status"]
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


BARE_PORT = 29_500
"""As torchrun's default."""


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return not address
