"""Checks the dashboard for mistakes that Grafana would refuse, or would silently lay out badly."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "disks.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRID_COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def test_it_can_be_imported_anywhere() -> None:
    """The dashboard has a fixed uid, so a second import replaces it. It has no id, because an id is valid in one Grafana
    instance only."""
    assert DASHBOARD["uid"] == "diskraft-disks"
    assert "id" not in DASHBOARD
    assert DASHBOARD["schemaVersion"] >= 36
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job", "instance"]


def test_panels_are_told_apart() -> None:
    """Ids and titles are unique, and each panel has a description."""
    assert sorted(panel["id"] for panel in PANELS) == list(range(1, len(PANELS) + 1))
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert all(panel["description"].endswith(".") for panel in PANELS)


def test_panels_lie_within_the_grid_and_beside_each_other() -> None:
    """Positions are integers, and panels do not overlap."""
    boxes = []
    for panel in PANELS:
        position = panel["gridPos"]
        assert all(type(position[key]) is int for key in "xywh"), panel["title"]
        assert 0 <= position["x"] < position["x"] + position["w"] <= GRID_COLUMNS, panel["title"]
        boxes.append((panel["title"], position))
    overlapping = [
        (one, other)
        for (one, a), (other, b) in combinations(boxes, 2)
        if a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    ]
    assert overlapping == []


def test_every_query_names_its_source_and_stays_within_the_job() -> None:
    """Every metric in a query is limited to the chosen job, so metrics of other clusters are never included."""
    for panel in PANELS:
        assert panel["datasource"] == DATASOURCE, panel["title"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])]), panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == DATASOURCE, panel["title"]
            selectors = re.findall(r"\b(?:kafka|diskraft)_\w+(\{[^}]*\})?", target["expr"])
            assert selectors, target["expr"]
            assert all('job="$job"' in selector for selector in selectors), target["expr"]


def test_counters_are_shown_as_rates() -> None:
    """Counters are only used in rates over $__rate_interval, which Grafana adapts to the scrape interval."""
    for panel in PANELS:
        for target in panel["targets"]:
            if "_total{" in target["expr"]:
                assert re.search(r"(rate|increase)\([^)]*\[\$__rate_interval\]\)", target["expr"]), target["expr"]
