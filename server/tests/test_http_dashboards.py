"""The dashboard and the alerts: their queries are such, each alert fires when it should, and all names are in a scrape."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import ottla.server.admin.http
from ottla.server.tests.admin.test_http_health import config_for, get, running
from ottla.server.tests.dashboards import ALERTS, DASHBOARD, names_in, queries

FOLDER = Path(ottla.server.admin.http.__file__).parent / "dashboards"

# What Strimzi's dashboard for Kafka and its alerts ask for, without what is Java's.
PUBLISHED = """
kafka_cluster_partition_atminisr
kafka_cluster_partition_underminisr
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_controller_kafkacontroller_activecontrollercount
kafka_controller_kafkacontroller_offlinepartitionscount
kafka_log_log_size
kafka_log_logmanager_offlinelogdirectorycount
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_brokertopicmetrics_bytesin_total
kafka_server_brokertopicmetrics_bytesout_total
kafka_server_brokertopicmetrics_failedfetchrequests_total
kafka_server_brokertopicmetrics_failedproducerequests_total
kafka_server_brokertopicmetrics_messagesin_total
kafka_server_brokertopicmetrics_totalfetchrequests_total
kafka_server_brokertopicmetrics_totalproducerequests_total
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_kafkaserver_linux_disk_read_bytes
kafka_server_kafkaserver_linux_disk_write_bytes
kafka_server_replicamanager_leadercount
kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underminisrpartitioncount
kafka_server_replicamanager_underreplicatedpartitions
kafka_server_socket_server_metrics_connection_count
process_open_fds
"""

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus) is not here")


def panels() -> list[dict[str, Any]]:
    return [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]


def run(*command: str, folder: Path = FOLDER) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_says_what_it_shows_and_asks_for_something() -> None:
    found = panels()
    assert len(found) > 20
    assert len({each["id"] for each in found}) == len(found)
    for panel in found:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert all(target["expr"] for target in panel["targets"])


def test_panels_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_names_are_found_in_queries() -> None:
    query = 'sum by (instance) (rate(ottla_x_sum{job=~"kafka_y"}[5m])) / ignoring(le) kafka_z_total > 0 and process_w'
    assert names_in(query) == {"ottla_x_sum", "kafka_z_total", "process_w"}
    assert len(queries()) > 40


async def test_every_name_in_a_query_is_in_a_scrape_and_those_of_published_dashboards_too(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as broker:
        text = (await get(broker, "/metrics"))[1]
    told = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        told |= {name, *(f"{name}_{part}" for part in ("bucket", "sum", "count") if kind in ("summary", "histogram"))}
    assert {name for query in queries() for name in names_in(query)} - told == set()
    assert set(PUBLISHED.split()) - told == set()


@promtool
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    run("promtool", "check", "rules", ALERTS.name)
    run("promtool", "test", "rules", "prometheus-alerts-test.yml")


def test_each_alert_has_a_test() -> None:
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    tested = set(re.findall(r'alertname="(\w+)"', (FOLDER / "prometheus-alerts-test.yml").read_text()))
    assert len(alerts) > 10
    assert tested == alerts


@promtool
def test_every_query_of_the_dashboard_is_one(tmp_path: Path) -> None:
    rules = []
    for number, query in enumerate(target["expr"] for panel in panels() for target in panel["targets"]):
        plain = query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
        rules.append({"record": f"query_{number}", "expr": plain})
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    run("promtool", "check", "rules", "rules.yml", folder=tmp_path)
