"""Types what pages print: at a shell, or at a bare machine's, of whose files nothing is there afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.warm_start import in_shells

ROOT = Path(__file__).parents[3]
TYPED_WITHIN_S = 120.0
MACHINE = """
set -e
mount -t tmpfs none "$1"
for folder in etc var root home srv usr/local; do
    upper="$1/${folder##*/}"
    mkdir "$upper" "$upper.work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$upper,workdir=$upper.work" "/$folder"
done
chmod 711 /root
mount -t tmpfs none /run
mkdir -m 1777 /run/lock
mount -t proc proc /proc
ip link set lo up
hostname ctl
printf '127.0.0.1 localhost\\n127.0.0.1 ctl ctl.lab gpu-01\\n' > /etc/hosts
for name in holdfast holdfast-agent holdfast-controller; do ln -sf "$2/$name" /usr/local/bin/; done
cd /root
exec env -i HOME=/root USER=root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash
"""
SUPERVISOR = r"""
# In place of systemd, whose units tests/machines runs: the daemons, in the background.
systemctl() {
    local service="${!#}" name
    name="${service#holdfast-}"
    case "$1" in
    stop | restart | disable)
        [ -e "/run/$name.pid" ] && kill "$(cat "/run/$name.pid")" && tail --pid="$(cat "/run/$name.pid")" -f /dev/null
        rm -f "/run/$name.pid" ;;
    esac
    case "$1" in
    enable | start | restart)
        "$service" --config "/etc/holdfast/$name.toml" >>"/run/$name.log" 2>&1 </dev/null &
        echo $! >"/run/$name.pid" ;;
    esac
}
"""


@dataclass
class Page:
    """A page of a folder, and which of the lines that it has one type were typed."""

    name: str
    folder: str = "docs/admins"
    languages: Sequence[str] = ("",)
    """Languages of the blocks that are to be typed; most have none."""
    typed: set[str] = field(default_factory=set)

    def blocks(self) -> dict[str, list[list[str]]]:
        """The fenced blocks that are to be typed, by the heading of their section. A backslash continues a line."""
        found: dict[str, list[list[str]]] = {}
        for section in re.split(r"^## ", (ROOT / self.folder / f"{self.name}.md").read_text(), flags=re.M):
            heading, _, text = ("", "", section) if section.startswith("# ") else section.partition("\n")
            blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S)
            typed = [block.rstrip() for language, block in blocks if language in self.languages]
            found[heading] = [re.split(r"(?<!\\)\n", block) for block in typed]
        return found

    def lines(self, heading: str) -> list[str]:
        """What a section says to type."""
        return [line for block in self.blocks()[heading] for line in block]

    def untyped(self) -> list[str]:
        """Lines that nothing has typed so far."""
        return [line for heading in self.blocks() for line in self.lines(heading) if line not in self.typed]


class Typist:
    """Types lines at a machine's shell, and reads what is printed."""

    def __init__(self, shell: subprocess.Popen[bytes], within_s: float = TYPED_WITHIN_S) -> None:
        self._shell = shell
        self._within_s = within_s
        self._count = 0

    def type(self, line: str, *, ends: Sequence[int] = (0,)) -> str:
        """What a line prints; asserts how it ended."""
        assert self._shell.stdin is not None
        self._count += 1
        mark = f"--- {self._count} "
        self._shell.stdin.write(f"{{ {line}\n}} </dev/null\nended=$?; echo; echo '{mark}'$ended\n".encode())
        self._shell.stdin.flush()
        said = self._until(re.compile(rf"^{mark}(\d+)\n", re.M), line)
        text, status = said
        assert status in ends, f"{line}\n{text}\nended with {status}"
        return text

    def type_all(self, page: Page, lines: Sequence[str], instead: dict[str, str] | None = None, **how: int) -> str:
        """Type lines of a page, with other words in place of those that stand for something; what all print.

        ``how``: the status with which a line may end beside 0, by the word that it has in it.
        """
        said = ""
        for line in lines:
            page.typed.add(line)
            typed = line
            for word, real in (instead or {}).items():
                typed = re.sub(word, real, typed)
            said += self.type(typed, ends=(0, *(status for word, status in how.items() if word in line)))
        return said

    def until(self, wanted: str, line: str) -> str:
        """What a line prints once that matches, a regular expression."""
        deadline = time.monotonic() + self._within_s
        while not re.search(wanted, said := self.type(line, ends=range(256))):
            assert time.monotonic() < deadline, f"{line} never says {wanted!r}, but:\n{said}"
            time.sleep(0.5)
        return said

    def _until(self, mark: re.Pattern[str], line: str) -> tuple[str, int]:
        assert self._shell.stdout is not None
        said, deadline = b"", time.monotonic() + self._within_s
        while not (found := mark.search(said.decode(errors="replace"))):
            ready, _, _ = select.select([self._shell.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._shell.stdout.fileno(), 1 << 16) if ready else b""
            assert piece, f"{line}\n{said.decode(errors='replace')}\ndoes not end"
            said += piece
        return said.decode(errors="replace")[: found.start()], int(found[1])


@contextlib.contextmanager
def bare_machine(folder: Path) -> Iterator[Typist]:
    """A machine without anything of Holdfast's but its commands. Needs root, mounts and a network namespace."""
    command = ["unshare", "-mnpu", "--fork", "--kill-child", "--propagation", "private"]
    programs = ROOT / ".venv/bin"
    with subprocess.Popen(
        [*command, "bash", "-c", MACHINE, "machine", str(folder), str(programs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as shell:
        try:
            typist = Typist(shell)
            typist.type(SUPERVISOR.strip())
            yield typist
        finally:
            shell.kill()


@contextlib.contextmanager
def user_shell(folder: Path, env: Mapping[str, str]) -> Iterator[Typist]:
    """The shell of someone who uses a cluster, in their folder."""
    with (
        in_shells.command(folder.with_name(f"{folder.name}-commands")) as commands,
        subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**env, "PATH": f"{commands}:{ROOT}/.venv/bin:{env['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell,
    ):
        try:
            yield Typist(shell)
        finally:
            shell.kill()
