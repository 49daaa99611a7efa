"""What the dashboard and the alerts ask Prometheus for."""

import json
import re
from pathlib import Path

import ottla.server.admin.http

_FOLDER = Path(ottla.server.admin.http.__file__).parent / "dashboards"
DASHBOARD, ALERTS = _FOLDER / "grafana-ottla.json", _FOLDER / "prometheus-alerts.yml"


def queries() -> list[str]:
    """All of them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    of_panels = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    # `expr:` with the query behind it, or in the lines below that are further in.
    of_alerts = re.findall(r"^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", ALERTS.read_text(), re.MULTILINE)
    return of_panels + [long or short for long, short in of_alerts]


def names_in(query: str) -> set[str]:
    """The metrics that a query names."""
    return set(re.findall(r"\b(?:kafka|ottla|process)_\w+", re.sub(r"\{[^}]*\}", "", query)))
