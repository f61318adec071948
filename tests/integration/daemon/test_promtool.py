"""Prometheus' own tool takes the rules, their tests, the expressions of the dashboard, and what daemons tell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from holdfast._daemon.metrics.exposition import Exposition
from holdfast._daemon.metrics.series import Family, Kind, Series
from holdfast_agent.core.metrics import families as of_agent
from holdfast_controller.core.views import metric_families as of_controller

MONITORING = Path(__file__).parents[3] / "deploy/monitoring"
pytestmark = pytest.mark.require("promtool")


def promtool(*words: str, told: bytes = b"") -> None:
    done = subprocess.run(["promtool", *words], input=told, capture_output=True, timeout=120, cwd=MONITORING)
    assert done.returncode == 0, f"{done.stdout.decode()}{done.stderr.decode()}"
    assert b"use of" not in done.stderr and b"should" not in done.stderr, done.stderr.decode()


def test_rules_are_valid() -> None:
    promtool("check", "rules", "holdfast.rules.yml")


def test_alerts_fire_where_they_have_to_and_nowhere_else() -> None:
    promtool("test", "rules", "holdfast-rules-test.yml")


def test_example_is_a_valid_configuration_with_the_jobs_that_the_rules_expect() -> None:
    promtool("check", "config", "--syntax-only", "prometheus.example.yml")
    jobs = yaml.safe_load((MONITORING / "prometheus.example.yml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["holdfast-controller", "holdfast-agent"]


def test_every_expression_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    panels = json.loads((MONITORING / "grafana/holdfast.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    # What Grafana puts in the place of its variables.
    written = [each.replace("$__rate_interval", "5m").replace("$host", ".*") for each in asked]
    assert written and not any("$" in each for each in written)
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(written)]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(path))


@pytest.mark.parametrize("families", [of_controller.FAMILIES, of_agent.FAMILIES], ids=["controller", "agent"])
def test_page_with_every_metric_in_it_is_valid(families: tuple[Family, ...]) -> None:
    series = Series()
    for family in families:
        labels = tuple(f"some {label}" for label in family.labels)
        if family.kind is Kind.HISTOGRAM:
            series.observe(family, 0.3, *labels)
        else:
            series.set(family, 1.0, *labels)
    text, content_type = Exposition(families, lambda: (series,)).text()
    assert content_type.startswith("text/plain; version=0.0.4")
    assert all(f"# TYPE {family.name} {family.kind.value}\n".encode() in text for family in families)
    promtool("check", "metrics", told=text)
