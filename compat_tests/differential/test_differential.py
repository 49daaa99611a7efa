"""Every scenario in every version: what Ottla answers beside what Apache Kafka answered, field by field.

make golden                                    ask Apache Kafka 4 and 3.9 anew, and compare with that
make golden ARGS="-k fetch"                    some of it
"""

import importlib
from pathlib import Path

import pytest
from compat_tests.apache import brokers
from compat_tests.differential import golden
from compat_tests.differential.allowed import ALLOWED
from compat_tests.differential.comparison import differences
from compat_tests.differential.conftest import RECORDS
from compat_tests.differential.conversation import SCENARIOS, release_for

from ottla.server.dispatch.dispatch import all_routes

HERE = Path(__file__).resolve().parent
for module in sorted((HERE / "scenarios").glob("*.py")):
    importlib.import_module(f"compat_tests.differential.scenarios.{module.stem}")

# What brokers of Kafka 3.9 send each other, and brokers of 4.4 neither send nor answer.
ONLY_AMONG_BROKERS_OF_3_9 = {
    *("LeaderAndIsrRequest", "StopReplicaRequest", "UpdateMetadataRequest", "ControlledShutdownRequest"),
    *("AlterPartitionRequest", "AllocateProducerIdsRequest"),
}
# What brokers of Kafka 4.4 send their controllers, which are no brokers.
ONLY_TO_CONTROLLERS = {"EnvelopeRequest"}
AREAS_OF_RIGHTS = ("rights_to_", "tokens")
WITHOUT_RIGHTS = {"ApiVersionsRequest", "SaslHandshakeRequest", "SaslAuthenticateRequest"}
# They are served by a broker of Kafka with a plug-in only: `clients/test_telemetry_beside_kafka.py`.
WITH_PLUG_IN = {"GetTelemetrySubscriptionsRequest", "PushTelemetryRequest"}

# Some scenarios are about sessions of a tenth of a second, which may end too early on a busy machine.
TELLINGS = 3

needed = set()
compared = set()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_ottla_answers_as_apache_kafka(scenario, address_of):
    if RECORDS:
        golden.write(
            scenario.id, {version: told_by_kafka(scenario, version, address_of) for version in scenario.versions}
        )
    told = golden.read(scenario.id)
    assert set(told) == set(scenario.versions), "the versions of this scenario changed: `make golden`"
    ottla = address_of("ottla", scenario.settings)
    unexpected = []
    for version in scenario.versions:
        unexpected += unexpected_each_time(scenario, version, told[version].steps, ottla)
    compared.add(scenario.id)
    assert not unexpected, "\n".join(unexpected)


def unexpected_each_time(scenario, version, expected, ottla):
    """The differences of the last telling that are not allowed. One without any ends it: whatever depends on the time goes away."""
    for telling in range(TELLINGS):
        try:
            told = scenario.tell(ottla, version)
        except (AssertionError, OSError):
            if telling + 1 < TELLINGS:
                continue
            raise
        found = [
            (each, [allowed for allowed in ALLOWED if allowed.allows(scenario.id, each)])
            for each in differences(expected, told)
        ]
        if all(reasons for _, reasons in found):
            needed.update(reason for _, reasons in found for reason in reasons)
            return []
    return [f"v{version} {difference}" for difference, reasons in found if not reasons]


def told_by_kafka(scenario, version, address_of):
    release = release_for(scenario.subject, version)
    steps = scenario.tell(address_of(release, scenario.settings), version)
    return golden.Told(brokers.version(release), steps)


def test_every_allowed_difference_is_one():
    if compared == set(SCENARIOS):  # only then: it may be needed by a scenario that was not selected
        assert [allowed for allowed in ALLOWED if allowed not in needed] == []


def test_every_request_is_asked_with_and_without_rights():
    served = {each.request_class.__name__ for each in all_routes().values()}
    asked = {each.subject.__name__ for each in SCENARIOS.values() if each.area.startswith(AREAS_OF_RIGHTS)}
    assert served - asked == ONLY_AMONG_BROKERS_OF_3_9 | ONLY_TO_CONTROLLERS | WITHOUT_RIGHTS | WITH_PLUG_IN


def test_every_golden_file_has_its_scenario():
    files = {f"{path.parent.name}/{path.stem}" for path in golden.FOLDER.glob("*/*.txt")}
    assert files == set(SCENARIOS)
