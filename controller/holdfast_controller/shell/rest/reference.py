"""A job at the addresses of the reference, whose clients read names and errors in forms of its own."""

from __future__ import annotations

from holdfast._sdk.json_view import Json

_STRATEGY = "SCHEDULING_STRATEGY_"
_DETAIL = "type.googleapis.com/google.rpc.DebugInfo"


def in_its_form(printed: Json, location: str) -> Json:
    """The printed job: its name as the address has it, strategies without our prefix, details that are messages."""
    found = printed | {
        "name": f"projects/{printed['project']}/locations/{location}/customJobs/{printed['id']}",
        "jobSpec": _spec(printed["jobSpec"]),
    }
    if error := printed.get("error"):
        details = [{"@type": _DETAIL, "stackEntries": [], "detail": each} for each in error["details"]]
        found["error"] = error | {"details": details}
    return found


def _spec(spec: Json) -> Json:
    scheduling = spec.get("scheduling", {})
    if "strategy" not in scheduling:
        return spec
    return spec | {"scheduling": scheduling | {"strategy": scheduling["strategy"].removeprefix(_STRATEGY)}}
