"""Times of the lease that could make work run twice are refused, and words that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import spec
from holdfast._base import config, extras
from holdfast._base.job_file.label_match import Condition
from holdfast.errors import AddressUnavailable, ConfigError, InvalidSpec
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.accounts.users import GroupGrant, Role, SignInPolicy
from holdfast_controller.core.model.hosts.locality import Locality, Segments
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.base.oidc_config import OidcConfig, OidcGrantConfig
from holdfast_controller.shell.base.spares_config import SparesConfig
from holdfast_controller.shell.base.underuse_config import UnderuseConfig
from holdfast_controller.shell.convert.gang_from_spec import gang_of
from holdfast_controller.shell.convert.job_defaults import JobDefaults
from holdfast_controller.shell.main import check
from holdfast_controller.shell.main.reload import policies_of


def made(**changes: Any) -> ControllerConfig:
    values: dict[str, Any] = {"listen": ":1", "cluster": "c"}
    values |= dict.fromkeys(("state_dir", "ca", "cert", "key"), Path("x"))
    return ControllerConfig(**values | changes)


def test_defaults_are_good() -> None:
    assert (made().lease, made().lost_after) == (60.0, 66.0)


def test_a_file_that_is_not_there_is_answered_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        config.load(ControllerConfig, tmp_path / "none.toml")
    assert str(refused.value).endswith("or make it: holdfast-controller init --advertise NAME")
    with pytest.raises(ConfigError, match=r"Is a directory\.$"):
        config.load(ControllerConfig, tmp_path)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({"lease": 70.0}, "lease is 70 s; with lost_after at 66 s it must be above 0 and at most 60 s"),
        ({"lease": 0.0}, "lease is 0 s"),
        ({"lost_after": 55.0}, "at most 50 s"),
        ({"suspect_after": 4.0}, "each longer than the one before"),
        ({"heartbeat_interval": 0.0}, "must be above 0"),
        ({"suspect_after": 80.0}, "each longer than the one before"),
    ],
)
def test_times_that_do_not_fit_are_refused(times: dict[str, float], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(**times)


def test_jobs_leave_isolated_hosts_unless_the_cluster_or_the_job_says_otherwise() -> None:
    assert made().disconnect_policy == "REPLACE_IF_ISOLATED"
    with pytest.raises(
        ConfigError, match=r"disconnect_policy is 'MOVE'\. Write KEEP or STOP_AND_REPLACE or REPLACE_"
    ):
        made(disconnect_policy="MOVE")
    pool = {"replicaCount": 1, "processSpec": {"command": ["x"]}}

    def rules(default: str, own: str | None) -> tuple[bool, bool]:
        tolerance = {"disconnectPolicy": own} if own else {}
        parsed = spec.parse({"jobSpec": {"workerPoolSpecs": [pool], "faultTolerance": tolerance}})
        gang = gang_of(parsed.job_spec, JobDefaults(disconnect_policy=spec.DisconnectPolicy[default]))
        return gang.replace_when_lost, gang.replace_if_isolated

    assert rules("REPLACE_IF_ISOLATED", None) == (False, True)
    assert rules("REPLACE_IF_ISOLATED", "KEEP") == (False, False)
    assert rules("REPLACE_IF_ISOLATED", "STOP_AND_REPLACE") == (True, False)
    assert rules("KEEP", None) == (False, False)
    assert rules("STOP_AND_REPLACE", "REPLACE_IF_ISOLATED") == (False, True)


def test_run_as_is_one_of_two_words() -> None:
    assert (made().run_as, made(run_as="same-name").run_as) == ("service", "same-name")
    with pytest.raises(ConfigError, match=r"run_as is 'root'. Write \"service\" .*, or \"same-name\""):
        made(run_as="root")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"log_level": "loud"}, r"log_level: 'loud' is unknown\. Write one of debug, info"),
        ({"log_file_mb": 0}, "log_file_mb is 0. Write 1 or more"),
        ({"hang_action": "KILL"}, "hang_action is 'KILL'. Write NOTIFY or RESTART or OFF"),
        ({"max_jobs": 0}, "max_jobs is 0"),
        ({"health_cordons": 101}, "health_cordons is 101"),
        (
            {"topology": ("pod", "rack", "pod")},
            "topology names pod twice. Name each level once, the outermost first",
        ),
        ({"topology": ("pod", "")}, "topology names the label ''. Write keys of labels"),
        ({"topology": tuple("abcdefghi")}, "topology has 9 levels"),
        ({"listen": "ctl.lab"}, r"listen is 'ctl\.lab'. Write HOST:PORT"),
        ({"listen": ":70000"}, "listen is ':70000'"),
        ({"advertise": "ctl lab"}, "advertise: 'ctl lab' is no host"),
        ({"names": ("ok", "")}, "names: '' is no host"),
        ({"quotas": {"llm": Quota(gpus=-1)}}, r"quotas\.llm\.gpus is -1"),
    ],
)
def test_what_makes_no_sense_is_refused_as_the_settings_are_read(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"quotas": {"Team.A": Quota(gpus=1)}},
        {"underuse": {"ml_team": UnderuseConfig()}},
        {"injection_projects": ("x" * 64,)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_for_a_project_that_no_job_can_be_in_are_refused(changes: dict[str, Any]) -> None:
    """They would bound nobody."""
    with pytest.raises(ConfigError, match=rf"{next(iter(changes))}: no job can be in a project") as refused:
        made(**changes)
    with pytest.raises(ConfigError, match=r"oidc.grants: no job can be in a project 'A'"):
        OidcGrantConfig("lab", project="A")
    assert refused.value.fix == 'A project must be lower-case letters, digits and dashes, or "*" for all of them.'


FILE = """# listen = 1
max_jobs = 1

[quotas."*"]
gpus = 4
[quotas.llm]
running_jobs = 2 # gpus = 3

[[notifications]]
name = "a"
[[notifications]]
name = "b"
url = "x"
"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("listen is 1.", ""),
        ("max_jobs must be a whole number", ":2"),
        ("unknown key 'quotas.*.gpus'.", ":5"),
        ("quotas.llm.gpus is -1.", ":6"),
        ("quotas.llm.running_jobs is -1.", ":7"),
        ("notifications[1].url must be text in quotes", ":13"),
        ("notifications[1] 'b': its url is none.", ":11"),
        ("notifications[0].service must be true", ":9"),
        ("the key 'cluster' is missing.", ""),
        ("", ""),
    ],
)
def test_a_problem_gets_the_line_of_its_key(tmp_path: Path, said: str, line: str) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(FILE)
    for message in (said, f"{path}: {said}"):
        assert str(config.placed(ConfigError(message, fix="Mend."), path)) == f"{path}{line}: {said} Mend."


def test_an_address_that_may_come_yet_is_no_wrong_setting(tmp_path: Path) -> None:
    placed = config.placed(AddressUnavailable("Cannot listen."), tmp_path / "none.toml")
    assert (placed.exit_status, ConfigError("x").exit_status) == (1, 2)


ISSUER = "https://id.lab/realms/main"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"issuer": "http://id.lab"}, r"oidc\.issuer is 'http://id\.lab'. Write its URL, which begins with https"),
        ({"issuer": "https://"}, r"oidc\.issuer is 'https://'"),
        ({"issuer": ISSUER}, r"oidc\.client_id is missing"),
        ({"issuer": ISSUER, "client_id": "c"}, r"oidc\.grants is empty, so no user could sign in"),
        ({"issuer": ISSUER, "client_id": "c", "scopes": ("profile",)}, r"oidc\.scopes lacks openid"),
        ({"issuer": ISSUER, "client_id": "c", "lifetime": 5.0}, r"oidc\.lifetime is 5 s"),
    ],
)
def test_a_provider_that_could_sign_nobody_in_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        OidcConfig(**keys)


def test_grants_of_a_provider_are_read_from_tables(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    keys = "listen = ':1'\nstate_dir = 's'\nca = 'c'\ncert = 'c'\nkey = 'k'\ncluster = 'c'\n"
    listen = "ca_directory = 'ca'\nenrolment_listen = ':2'\n"
    table = f"[oidc]\nissuer = '{ISSUER}'\nclient_id = 'c'\nlifetime = '8h'\n"
    grant = "[[oidc.grants]]\ngroup = 'ml'\nrole = '{}'\nproject = 'vision'\n"
    file.write_text(keys + listen + table + grant.format("admin"))
    read = config.load(ControllerConfig, file)
    assert read.oidc.grants == (OidcGrantConfig("ml", "admin", "vision"),)
    assert read.oidc.policy == SignInPolicy((GroupGrant("ml", "vision", Role.ADMIN),), 8 * 3600.0)
    file.write_text(keys + listen + table + grant.format("boss"))
    with pytest.raises(ConfigError, match=r"oidc\.grants: the role 'boss' is none"):
        config.load(ControllerConfig, file)
    file.write_text(keys + table + grant.format("user"))
    with pytest.raises(ConfigError, match=r"oidc\.issuer is set, and enrolment_listen is not"):
        config.load(ControllerConfig, file)
    assert made().oidc.policy == SignInPolicy()


def test_a_database_without_its_driver_is_a_problem_of_the_settings_that_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.MODULES, "postgresql", {"psycopg": "no_such_module"})
    file = tmp_path / "controller.toml"
    own = "".join(f'{key} = "x"\n' for key in ("state_dir", "ca", "cert", "key", "cluster"))
    file.write_text(f'listen = "127.0.0.1:0"\ndatabase_url = "postgresql://db1/holdfast"\n{own}')
    (said,) = check.problems(file)
    assert said.startswith(f"{file}:2: database_url needs packages that are not installed: psycopg.")
    assert "Install holdfast-controller-postgresql, or pip install 'holdfast[controller,postgresql]'" in said


def test_jobs_that_leave_gpus_unused_are_told_unless_the_project_or_the_job_says_otherwise() -> None:
    tables = {"*": UnderuseConfig(duration=3600.0), "notes": UnderuseConfig(action="PAUSE", below=10)}
    defaults = JobDefaults.of(made(underuse=tables))
    pool = {"replicaCount": 1, "processSpec": {"command": ["x"]}}

    def policy(project: str, **own: object) -> tuple[str, int, float, str] | None:
        scheduling = {"underuse": own} if own else {}
        parsed = spec.parse({"jobSpec": {"workerPoolSpecs": [pool], "scheduling": scheduling}})
        found = gang_of(parsed.job_spec, defaults, project=project).underuse
        return None if found is None else (found.action.name, found.below_pct, found.duration_s, found.of.name)

    assert policy("llm") == ("NOTIFY", 5, 3600.0, "ANY")
    assert policy("notes") == ("PAUSE", 10, 7200.0, "ALL")
    assert policy("notes", of="ANY", duration="30m") == ("PAUSE", 10, 1800.0, "ANY")
    assert policy("notes", action="NOTIFY") == ("NOTIFY", 10, 7200.0, "ANY")
    assert policy("llm", action="STOP", below=1) == ("STOP", 1, 3600.0, "ALL")
    assert policy("llm", action="OFF") is None


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"below": 0}, r"underuse\.llm\.below is 0\. Write a percentage, 1 to 100"),
        ({"duration": 59.0}, r"underuse\.llm\.duration is 59 s\. Write 1m or more"),
        ({"of": "SOME"}, r"underuse\.llm\.of is 'SOME'\. Write ANY or ALL"),
        ({"action": "KILL"}, r"underuse\.llm\.action is 'KILL'\. Write NOTIFY, PAUSE, STOP or OFF"),
    ],
)
def test_settings_of_unused_gpus_that_mean_nothing_are_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(underuse={"llm": UnderuseConfig(**table)})


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"hosts": 0}, r"spares\.h200\.hosts is 0\. Write a number of hosts, 1 to 10,000, or leave the table out"),
        ({"hosts": 10_001}, r"spares\.h200\.hosts is 10001"),
        (
            {"match": "gpu in (a,"},
            r"spares\.h200\.match: 'gpu in \(a,' is no condition on a label\. Write conditions",
        ),
        ({"match": "a,!a"}, r"spares\.h200\.match holds for no host: what is asked of the label a excludes"),
        ({"per": "row"}, r"spares\.h200\.per is 'row', which is no level of topology\. Write one of pod, rack"),
    ],
)
def test_spares_that_can_not_be_kept_are_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        made(topology=("pod", "rack"), spares={"h200": SparesConfig(**table)})


def test_spares_of_each_domain_need_a_topology_and_a_name() -> None:
    with pytest.raises(ConfigError, match=r"no level of topology\. Name the levels: topology, above"):
        made(spares={"h200": SparesConfig(per="rack")})
    with pytest.raises(ConfigError, match="is no name"):
        made(spares={"": SparesConfig()})


def test_the_core_takes_spares_with_the_path_of_levels() -> None:
    found = made(topology=("pod", "rack", "nvlink"), spares={"h200": SparesConfig(2, "NVIDIA_H200", "rack")})
    assert policies_of(found, b"k").spares == (SpareRule("h200", 2, "NVIDIA_H200", ("pod", "rack")),)
    assert policies_of(made(spares={"any": SparesConfig()}), b"k").spares == (SpareRule("any", 1),)
    some = made(spares={"new": SparesConfig(match="!old")})
    assert policies_of(some, b"k").spares == (SpareRule("new", 1, match=(Condition("old", unwanted=True),)),)


def near(
    placement: dict[str, object], *, workers: int = 4, gpus: int = 1, levels: tuple[str, ...] = ("pod", "rack")
) -> object:
    """How near the gang of a job with this placement is to be, in a cluster with these levels."""
    machine = {"machineSpec": {"acceleratorCount": gpus}} if gpus else {}
    pool = {"processSpec": {"command": ["x"]}, **machine}
    pools = [{**pool, "replicaCount": count} for count in (1, workers - 1) if count]
    parsed = spec.parse({"jobSpec": {"workerPoolSpecs": pools, "scheduling": {"placement": placement}}})
    return gang_of(parsed.job_spec, JobDefaults.of(made(topology=levels))).near


def test_gangs_with_gpus_are_placed_near_each_other_where_there_are_levels() -> None:
    levels = ("pod", "rack")
    assert near({}) == Locality(levels, "rack")
    assert near({}, levels=()) is None
    assert near({}, workers=1) is None
    assert near({}, gpus=0) is None, "a gang without GPUs is spread"
    assert near({"within": "pod"}, gpus=0) == Locality(levels, "pod")
    assert near({"within": "pod", "mode": "REQUIRED"}) == Locality(levels, "pod", required=True)
    segment = {"size": 2, "within": "rack"}
    assert near({"within": "pod", "segment": segment}) == Locality(levels, "pod", segments=Segments(2, "rack"))
    assert near({"segment": segment}) == Locality(levels, "rack", segments=Segments(2, "rack"))


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        (
            {"within": "row"},
            r"placement\.within: row is no level of the cluster's topology \(use one of pod, rack\)",
        ),
        ({"mode": "REQUIRED"}, r"placement\.within: is required by the mode REQUIRED"),
        ({"segment": {"size": 2, "within": "row"}}, r"placement\.segment\.within: row is no level"),
        ({"within": "rack", "segment": {"size": 2, "within": "pod"}}, r"segment\.within: pod lies outside of rack"),
        (
            {"segment": {"size": 3, "within": "rack"}},
            r"segment\.size: is 3, which doesn't divide the job's 4 workers",
        ),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(placement: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        near(placement)


def test_levels_that_nobody_has_named_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="names a level, and the cluster has none"):
        near({"within": "rack"}, levels=())
