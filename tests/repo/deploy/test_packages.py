"""What the packages hold, who may read it, and what their scripts do; deploy/packages/build.py makes them."""

from __future__ import annotations

import gzip
import importlib.util
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import entry_points, packages_distributions, requires
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import grimp
import pytest
from packaging.requirements import Requirement

from holdfast.cli import reference
from holdfast_controller import __main__ as controller
from holdfast_controller.shell.base.config import ControllerConfig

ROOT = Path(__file__).parents[3]
STAGE = Path("/stage")


def _build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packages_build", ROOT / "deploy/packages/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _build()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PARTS = build.parts()
every_part = pytest.mark.parametrize("part", sorted(PARTS))
every_environment = pytest.mark.parametrize("part", sorted(name for name in PARTS if "joins" not in PARTS[name]))


def described(part: str) -> dict[str, Any]:
    found: dict[str, Any] = build.description(part, PARTS[part], STAGE, "1.2.3", "amd64")
    return found


@every_part
def test_each_file_of_a_package_exists(part: str) -> None:
    for entry in described(part)["contents"]:
        assert not entry["src"].startswith(str(ROOT)) or Path(entry["src"]).is_file(), entry
        assert ".." not in Path(entry["src"]).parts, "which the packager can't open"


@every_part
def test_what_a_package_brings_is_for_root_to_change(part: str) -> None:
    modes = {
        entry["dst"]: entry["file_info"]["mode"] for entry in described(part)["contents"] if "file_info" in entry
    }
    programs = {name for name in modes if "/fence/" in name}
    assert {modes.pop(name) for name in programs} <= {0o755}, "to be called, or copied to where they are"
    assert set(modes.values()) <= {0o644}


def test_every_command_of_the_project_is_in_one_package() -> None:
    commands = [command for about in PARTS.values() for command in about["commands"]]
    assert sorted(commands) == sorted(PROJECT["scripts"])


def test_every_unit_is_in_one_package() -> None:
    units = [unit for about in PARTS.values() for unit in about.get("units", ())]
    assert sorted(units) == sorted(path.name for path in (ROOT / "deploy/systemd").iterdir())


def test_settings_are_kept_on_upgrade() -> None:
    kept = [entry["dst"] for entry in described("agent")["contents"] if entry.get("type") == "config|noreplace"]
    assert kept == ["/etc/holdfast/worker.env"]


@every_part
def test_a_package_depends_on_the_python_that_it_was_made_with(part: str) -> None:
    assert f"python3.{sys.version_info.minor}" in described(part)["depends"]


def shared(part: str, tmp_path: Path) -> Path:
    """What build.py draws for /usr/share, from the code of this environment."""
    site = sysconfig.get_paths()["purelib"]
    drawn = [("manual.py", part, site)] if PARTS[part]["commands"] else []
    for program, *words in (*drawn, ("documents.py", f"holdfast-{part}", "1.2.3", site)):
        command = [sys.executable, str(ROOT / "deploy/packages" / program), *words, str(tmp_path)]
        subprocess.run(command, check=True, timeout=120)
    (tmp_path / "lintian-overrides").touch()
    return tmp_path


@every_part
def test_manual_pages_completions_and_licences_are_made_and_packed(part: str, tmp_path: Path) -> None:
    made = {str(path.relative_to(tmp_path)) for path in shared(part, tmp_path).rglob("*") if path.is_file()}
    entries = [entry for entry in described(part)["contents"] if entry["src"].startswith(f"{STAGE}/share/")]
    assert {entry["src"].removeprefix(f"{STAGE}/share/") for entry in entries} == made
    places = {entry["dst"] for entry in entries}
    for command in PARTS[part]["commands"]:
        (page,) = (place for place in places if re.match(rf"/usr/share/man/man\d/{command}\.\d\.gz", place))
        text = gzip.decompress((tmp_path / page.removeprefix("/usr/share/")).read_bytes()).decode()
        assert text.startswith(f".TH {command.upper()} ")
        assert not [line for line in text.splitlines() if re.match(r"[.'](?!TH|SH|SS|PP|TP)", line)]
        assert f"/usr/share/bash-completion/completions/{command}" in places
        assert f"/usr/share/fish/vendor_completions.d/{command}.fish" in places
    assert f"/usr/share/doc/holdfast-{part}/copyright" in places
    assert f"/usr/share/doc/holdfast-{part}/changelog.gz" in places


def page_of(folder: Path, name: str) -> str:
    text = gzip.decompress((folder / f"man/man{name[-1]}/{name}.gz").read_bytes()).decode()
    return text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")


def test_the_client_s_page_has_every_command_with_its_options(tmp_path: Path) -> None:
    page = page_of(shared("client", tmp_path), "holdfast.1")
    assert '.SS "holdfast run [OPTIONS] COMMAND..."' in page
    assert "\n--restart-on-hang\nRelaunch in place when it hangs" in page
    assert len(re.findall(r"^\.SS", page, re.M)) == len(re.findall(r"^## ", reference.markdown(), re.M))


def test_the_daemons_pages_have_their_commands_and_settings(tmp_path: Path) -> None:
    folder = shared("controller", tmp_path)
    page = page_of(folder, "holdfast-controller.8")
    for name in (*controller.COMMANDS, "ca show", "ca rotate"):
        assert name == "ca" or f'.SS "holdfast-controller {name} ' in page
    assert "\n--passphrase-file FILE\n" in page
    keys = page_of(folder, "controller.toml.5")
    assert all(f"\n.TP\n{each.name}\n" in keys for each in fields(ControllerConfig) if not is_table(each.name))
    assert '.SS "[certificates]"' in keys
    of_agent = shared("agent", tmp_path / "agent")
    assert '.SS "holdfast-agent join ' in page_of(of_agent, "holdfast-agent.8")
    assert "\n.TP\nworker_user\n" in page_of(of_agent, "agent.toml.5")


def is_table(name: str) -> bool:
    """A key whose value has keys of its own; it has a section."""
    hint = get_type_hints(ControllerConfig)[name]
    return any(is_dataclass(each) for each in (hint, *get_args(hint)))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["ba"], {"backup"}),
        (["backup", "--pass"], {"--passphrase-file"}),
        (["ca", "r"], {"rotate"}),
        (["ca", "rotate", "--f"], {"--finish", "--force"}),
    ],
)
def test_a_shell_completes_a_daemon_s_words(tmp_path: Path, typed: list[str], offered: set[str]) -> None:
    script = shared("controller", tmp_path) / "completions/bash/holdfast-controller"
    words = " ".join(["holdfast-controller", *typed])
    line = f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}; _holdfast_controller; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", f"source {script}; {line}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert set(done.stdout.split()) == offered


def test_the_changelog_has_each_release_once_in_debians_form(tmp_path: Path) -> None:
    text = gzip.decompress((shared("client", tmp_path) / "changelog.gz").read_bytes()).decode()
    heads = re.findall(r"^holdfast-client \((.+)\) unstable; urgency=medium$", text, re.M)
    assert heads == list(dict.fromkeys(heads)) and heads[0] == "1.2.3"
    ends = re.findall(r"^ -- .+ <.+>  (.+)$", text, re.M)
    assert len(ends) == len(heads) and all(parsedate_to_datetime(end) for end in ends)
    assert not [
        line for line in text.splitlines() if line and not re.match(r"holdfast-client |  \* |    | -- ", line)
    ]


def test_what_a_part_has_no_use_for_is_left_out_of_it(tmp_path: Path) -> None:
    record = tmp_path / "holdfast-1.dist-info/RECORD"
    record.parent.mkdir()
    names = ("holdfast", "holdfast_agent", "holdfast_controller")
    for name in names:
        (tmp_path / name).mkdir()
    record.write_text("".join(f"{name}/__init__.py,,\n" for name in names))
    build._leave_out([name for name in build.OURS if name not in PARTS["client"]["modules"]], tmp_path)
    assert record.read_text() == "holdfast/__init__.py,,\n"
    assert {path.name for path in tmp_path.iterdir()} == {"holdfast", "holdfast-1.dist-info"}


def test_packages_need_none_of_the_tools_for_development() -> None:
    rule = re.search(r"^packages:(.*)\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert rule is not None and rule[1].split() == [] and ".venv" not in rule[2] and "$(PY)" not in rule[2]


ENTRIES = {
    "controller": ("holdfast_controller",),
    "agent": ("holdfast_agent", "holdfast._security.enrolment"),
    "client": ("holdfast.cli", "holdfast.client", "holdfast.training"),
}
"""What runs of each part: with it everything that it imports, even late."""
ALONG = {"pydantic_core": "pydantic"}
"""Packages that are part of another one."""
PROGRAMS = {"py-spy", "pystack", "psycopg-binary"}
"""Carried though no module of ours imports them."""


def imported(entries: Iterable[str]) -> set[str]:
    """Other projects' packages that these import, and whatever of ours they import."""
    graph = grimp.build_graph(
        "holdfast",
        "holdfast_controller",
        "holdfast_agent",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )
    seen: set[str] = set()
    found = {module for entry in entries for module in (entry, *graph.find_descendants(entry))}
    while found:
        seen |= found
        found = {other for module in found for other in graph.find_modules_directly_imported_by(module)} - seen
    return {
        module for module in seen if not module.startswith("holdfast") and module not in sys.stdlib_module_names
    }


def carried_by(part: str) -> set[str]:
    """Packages that a part's environment is made of, and those that join it where an admin asks for them."""
    about = PARTS[part]
    found = build.requirements(PROJECT, about.get("leaves_out", ()), about.get("extras", ()))
    joining = (name for other in PARTS.values() if other.get("joins") == part for name in other["packages"])
    return {build._name(text) for text in (*found, *joining)}


@every_environment
def test_a_package_carries_what_its_part_imports_and_nothing_else(part: str) -> None:
    carried = carried_by(part)
    used: set[str] = set()
    owners = packages_distributions()
    for module in imported(ENTRIES[part]):
        brought_by = {build._canonical(ALONG.get(name, name)) for name in owners[module]}
        assert brought_by & carried, f"the {part} imports {module}, which its package lacks"
        used |= brought_by
    assert carried - PROGRAMS <= used, "carried for nothing"


def needed(names: Iterable[str]) -> set[str]:
    """Packages of others that these requirements bring here, by the metadata of what is installed."""
    found: set[tuple[str, str]] = set()
    fresh = {(build._canonical(r.name), extra) for r in map(Requirement, names) for extra in ("", *r.extras)}
    while fresh:
        found |= fresh
        wanted = [(Requirement(text), extra) for name, extra in fresh for text in requires(name) or ()]
        wanted = [(r, extra) for r, extra in wanted if r.marker is None or r.marker.evaluate({"extra": extra})]
        fresh = {(build._canonical(r.name), more) for r, _ in wanted for more in ("", *r.extras)} - found
    return {name for name, _ in found}


@pytest.mark.parametrize("extra", ["postgresql", "s3"])
def test_what_a_store_takes_is_a_package_that_joins_the_controllers_and_brings_none_of_its_files(
    extra: str,
) -> None:
    part = f"controller-{extra}"
    about = PARTS[part]
    controller_has = needed(
        build.requirements(PROJECT, PARTS["controller"]["leaves_out"], PARTS["controller"]["extras"])
    )
    assert not controller_has & set(about["packages"]), "a store in a file has no use for them"
    assert needed(PROJECT["optional-dependencies"][extra]) - controller_has == set(about["packages"])
    (tree,) = (entry for entry in described(part)["contents"] if entry.get("type") == "tree")
    assert tree["dst"] == "/opt/holdfast/controller"
    assert "holdfast-controller" in described(part)["depends"]
    assert f"`holdfast-{part}`" in (ROOT / "docs/admins/postgresql.md").read_text()


NAMED = {
    ("controller", "apprise"): (
        "users/notifications.md",
        "a service of [apprise](https://github.com/caronc/apprise)",
    ),
    ("agent", "py-spy"): ("users/hang-detection.md", "stacks of every rank (py-spy)"),
    ("agent", "pystack"): ("users/hang-detection.md", "C frames of suspects (pystack, on x86_64 and"),
    ("agent", "uv"): ("admins/agent.md", "[uv](https://docs.astral.sh/uv/), which comes with the agent"),
}
"""What the pages promise of a daemon that is a package of others: by part and package, the page and its words."""


@pytest.mark.parametrize(("part", "name"), NAMED)
def test_a_daemons_package_carries_what_the_pages_name(part: str, name: str, tmp_path: Path) -> None:
    page, words = NAMED[part, name]
    assert words in " ".join((ROOT / "docs" / page).read_text().split())
    carried = build.requirements(PROJECT, PARTS[part].get("leaves_out", ()), PARTS[part]["extras"])
    [wanted] = [Requirement(text) for text in carried if build._name(text) == name]
    for machine in ("x86_64", "aarch64"):
        environment = {"sys_platform": "linux", "platform_machine": machine, "python_version": "3.11"}
        assert wanted.marker is None or wanted.marker.evaluate(environment), f"not on {machine}"
    copyright_of = (shared(part, tmp_path) / "copyright").read_text()
    assert re.search(rf"^Files: \S*{name.replace('-', '[-_]')}\S*$", copyright_of, re.M | re.I), (
        "its licence is not told"
    )


def test_each_script_that_the_agent_starts_is_made_for_the_packages_python(tmp_path: Path) -> None:
    scripts = {point.name: point.value for point in entry_points(group="console_scripts")}
    programs = PARTS["agent"]["programs"]
    assert programs == {name: scripts[name] for name in PROGRAMS & scripts.keys()}
    assert build._there(programs, tmp_path) == {}, "no wheel for this processor"
    (tmp_path / "pystack").mkdir()
    assert build._there(programs, tmp_path) == programs


def test_a_client_is_what_pip_installs_with_the_live_screen() -> None:
    assert PARTS["client"]["extras"] == ["top"] and "leaves_out" not in PARTS["client"]


def test_a_misspelt_dependency_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves out no-such-thing"):
        build.requirements(PROJECT, ["no-such-thing"], [])


def test_the_controllers_state_is_for_its_own_user() -> None:
    text = (ROOT / "deploy/packages/files/controller.tmpfiles").read_text()
    assert "d /var/lib/holdfast/controller 0700 holdfast holdfast" in text


STUB = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$(basename "$0") $*" in
    "timeout "*) shift; exec "$@" ;;
    "holdfast-agent "*) exit "$FINDS" ;;
    *is-active*) exit "$INACTIVE" ;;
esac
"""


def installed(tmp_path: Path, part: str, *, inactive: int = 0, finds: int = 0) -> list[str]:
    """What the script calls after an upgrade of a part, on a machine with systemd."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    for name in ("systemctl", "timeout", "holdfast-agent"):
        (tmp_path / name).write_text(STUB)
        (tmp_path / name).chmod(0o755)
    text = build.script("postinst.sh", part, PARTS[part]).replace("/run/systemd", str(tmp_path / "run/systemd"))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}
    env |= {"INACTIVE": str(inactive), "FINDS": str(finds)}
    subprocess.run(["sh", "-c", text, "postinst", "configure", "0.2.0"], env=env, check=True, timeout=180)
    called = (tmp_path / "calls").read_text().splitlines()
    return [line for line in called if not line.startswith("timeout") and "daemon-reload" not in line]


@pytest.mark.parametrize("finds", [0, 1], ids=["all is well", "something is wrong"])
def test_an_upgrade_of_the_agent_waits_and_compares_whatever_comes_of_it(tmp_path: Path, finds: int) -> None:
    assert installed(tmp_path, "agent", finds=finds) == [
        "systemctl is-active --quiet holdfast-agent.service",
        "holdfast-agent upgrade before --max-wait 2m",
        "systemctl try-restart holdfast-agent.service",
        "holdfast-agent upgrade after --max-wait 1m",
    ]


def test_an_agent_that_does_not_run_is_not_waited_for(tmp_path: Path) -> None:
    assert not any("upgrade" in call for call in installed(tmp_path, "agent", inactive=1))


def test_the_controller_is_restarted_at_once(tmp_path: Path) -> None:
    assert installed(tmp_path, "controller") == ["systemctl try-restart holdfast-controller.service"]


@every_part
@pytest.mark.parametrize("name", sorted(build.SCRIPTS.values()))
def test_scripts_are_scripts_and_start_nothing(part: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(build.script(name, part, PARTS[part]))
    assert subprocess.run(["sh", "-n", str(path)], timeout=180).returncode == 0
    assert "@" not in path.read_text().replace("$@", "")
    assert "enable" not in path.read_text()
    if name == "postinst.sh":
        assert "systemctl start" not in path.read_text()
