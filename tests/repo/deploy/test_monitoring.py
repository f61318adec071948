"""Alert rules, dashboard and page speak of metrics that there are, with the labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast._daemon.metrics.series import Family, Kind
from holdfast_agent.core.metrics import families as of_agent
from holdfast_controller.core.views import metric_families as of_controller
from holdfast_controller.core.views.gpu_states import GpuState

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy/monitoring"
PAGE = (ROOT / "docs/admins/metrics.md").read_text()
FAMILIES = {family.name: family for family in (*of_controller.FAMILIES, *of_agent.FAMILIES)}
OF_PROMETHEUS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
FROM_SCRAPING = {"job", "instance"}
_METRIC = re.compile(r"\b((?:holdfast_|process_)[a-z0-9_]+|up)\b(?:\{([^}]*)\})?")
_ROW = re.compile(r"^\| `(holdfast_\w+)` \| (\w+) \| (.*?) ?\| .+ \|$", re.MULTILINE)


def rules() -> list[dict[str, Any]]:
    described = yaml.safe_load((MONITORING / "holdfast.rules.yml").read_text())
    return [rule for group in described["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((MONITORING / "grafana/holdfast.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """(where it stands, the expression)."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']!r}", target["expr"]


def family_of(name: str) -> tuple[Family | None, set[str]]:
    """The family that a series belongs to, and labels that its form adds."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base in FAMILIES and FAMILIES[base].kind is Kind.HISTOGRAM:
        return FAMILIES[base], {"le"} if name.endswith("_bucket") else set()
    return FAMILIES.get(name), set()


@pytest.mark.parametrize(("where", "expression"), [pytest.param(*each, id=each[0]) for each in expressions()])
def test_expression_asks_for_metrics_and_labels_that_there_are(where: str, expression: str) -> None:
    asked = [found for found in _METRIC.finditer(expression) if found[1] not in OF_PROMETHEUS]
    known: set[str] = set()
    for found in asked:
        family, more = family_of(found[1])
        assert family is not None, f"{where}: no daemon exports {found[1]}"
        labels = {*family.labels, *more, *FROM_SCRAPING}
        known |= labels
        assert set(re.findall(r"(\w+)\s*[=!]~?", found[2] or "")) <= labels, f"{where}: labels of {found[1]}"
    grouped = {
        label.strip()
        for inside in re.findall(r"(?:by|on|ignoring|without)\s*\(([^)]*)\)", expression)
        for label in inside.split(",")
    }
    assert grouped <= known | {"version"}, where


def test_metrics_of_prometheus_are_all_that_is_asked_for_beside() -> None:
    names = {found[1] for _, expression in expressions() for found in _METRIC.finditer(expression)}
    assert {name for name in names if family_of(name)[0] is None} == OF_PROMETHEUS


def test_every_alert_says_what_is_the_matter_and_where_to_read_on() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        notes = rule["annotations"]
        assert notes["summary"].endswith(".") and notes["description"].endswith("."), rule["alert"]
        assert notes["runbook_url"] == f"docs/admins/metrics.md#{rule['alert'].lower()}"
        assert f"\n### {rule['alert']}\n" in PAGE


def test_every_alert_on_the_page_is_a_rule() -> None:
    on_page = re.findall(r"^### (Holdfast\w+)$", PAGE, re.MULTILINE)
    assert on_page == sorted(set(on_page), key=on_page.index)
    assert set(on_page) == {rule["alert"] for rule in rules()}


def test_every_alert_is_tested_where_it_fires() -> None:
    tested = yaml.safe_load((MONITORING / "holdfast-rules-test.yml").read_text())["tests"]
    firing = {
        re.search(r'alertname="(\w+)"', check["expr"])[1]  # type: ignore[index]
        for test in tested
        for check in test["promql_expr_test"]
        if check["exp_samples"]
    }
    assert firing == {rule["alert"] for rule in rules()}


def test_every_metric_has_its_row_on_the_page_and_every_row_its_metric() -> None:
    rows = {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in _ROW.findall(PAGE)}
    assert rows == {name: (family.kind.value, list(family.labels)) for name, family in FAMILIES.items()}


def test_no_metric_is_told_by_two_families_and_none_names_people_or_jobs() -> None:
    for families in (of_controller.FAMILIES, of_agent.FAMILIES):
        names = [family.name for family in families]
        assert len(names) == len(set(names))
    labels = {label for family in FAMILIES.values() for label in family.labels}
    assert not labels & {"job", "job_id", "user", "owner", "project", "worker", "instance"}


def test_dashboard_is_one_that_grafana_can_show() -> None:
    shown = panels()
    assert len({panel["id"] for panel in shown}) == len(shown)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_dashboard_has_each_state_of_gpus_and_the_queue_those_that_are_idle() -> None:
    states = {state.value for state in GpuState}
    named = {
        where: set(re.findall(r"[a-z]+", found[1]))
        for where, expression in expressions()
        for found in re.finditer(r'holdfast_gpus\{[^}]*state=~?"([^"]*)"', expression)
    }
    assert set().union(*named.values()) <= states
    assert any("by (state) (holdfast_gpus)" in expression for _, expression in expressions()), "all of them"
    queue = next(panel for panel in panels() if panel["title"].startswith("Queue: what is asked for"))
    asked = " ".join(target["expr"] for target in queue["targets"])
    assert {state for state in states if f'state="{state}"' in asked} == {GpuState.FREE, GpuState.RESERVED}
    (alert,) = (rule for rule in rules() if rule["alert"] == "HoldfastJobWaitsThoughGpusAreFree")
    assert f"state='{GpuState.RESERVED}'" in alert["annotations"]["description"]


def test_every_metric_that_can_go_wrong_is_seen_by_somebody() -> None:
    """On the dashboard or in an alert; what is left out is for those who look for it."""
    names = {found[1] for _, expression in expressions() for found in _METRIC.finditer(expression)}
    seen = {family.name for name in names if (family := family_of(name)[0]) is not None}
    assert sorted(set(FAMILIES) - seen) == [
        "holdfast_agent_gpus_readable",
        "holdfast_agent_launch_refusals_total",
        "holdfast_agent_preparation_failures_total",
        "holdfast_agent_sampling_seconds",
        "holdfast_agent_sessions_total",
        "holdfast_agent_shims",
        "holdfast_agent_shims_lost_total",
        "holdfast_audit_unwritten_total",
        "holdfast_event_loop_longest_stall_seconds",
        "holdfast_gpu_energy_joules_total",
        "holdfast_gpu_healthy",
        "holdfast_gpu_memory_busy_ratio",
        "holdfast_gpu_memory_bytes",
        "holdfast_gpu_memory_used_bytes",
        "holdfast_gpu_sm_clock_hertz",
        "holdfast_gpu_temperature_celsius",
        "holdfast_hang_common_causes_total",
        "holdfast_hang_suspects",
        "holdfast_host_checks_total",
        "holdfast_host_health_findings",
        "holdfast_host_refusals_total",
        "holdfast_hosts_lost_total",
        "holdfast_late_exits_total",
        "holdfast_places_fenced_total",
        "holdfast_warm_starts_total",
    ]
