"""README's table of what is served is what is served."""

import re
from pathlib import Path

from ottla.server.gate.dispatch import all_routes

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_table_lists_every_served_request_with_its_versions():
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \|", README.read_text(), re.MULTILINE)
    served = []
    for key, route in sorted(all_routes().items()):
        first, last = route.versions.first, route.versions.last
        served.append((str(key), route.name, str(first) if first == last else f"{first}-{last}"))
    assert rows == served
