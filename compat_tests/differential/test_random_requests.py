"""Random requests, asked of Apache Kafka 4 and of Ottla: they have to be answered alike.

A difference is shrunk to its smallest case and kept: the sequence in regressions/<name>.json, with what Apache Kafka
answered in golden/regressions/<name>.txt. From then on `test_differential.py` tells it as one more scenario.

make golden-hunt                       look for differences for ten minutes, each round with other requests
make golden-hunt MINUTES=60
"""

import contextlib
import hashlib
import json
import os
import time

import pytest
from compat_tests.apache import brokers
from compat_tests.differential import golden
from compat_tests.differential.allowed import ALLOWED
from compat_tests.differential.asking_records import new_producer
from compat_tests.differential.comparison import differences
from compat_tests.differential.conversation import Talk
from compat_tests.differential.random_requests import ANYTHING, fields_of, sequences, served, without_chance
from compat_tests.differential.random_themes import THEMES
from compat_tests.differential.random_values import DEFAULTED, LEFT_OUT, VALUES, WHOLE
from compat_tests.differential.random_world import GROUPS, REQUESTS, tell
from compat_tests.differential.scenarios import regressions
from hypothesis import HealthCheck, Phase, given, seed, settings

from ottla.server.dispatch.dispatch import served_routes

EXAMPLES, FEWER = 40, 20
EXAMPLES_OF_A_ROUND = 150
TOLD_AGAIN = 4
ABOUT = (ANYTHING, *THEMES)
COORDINATORS = (22, 24, 25, 26, 27, 28, 61, 65, 66, 68, 69, *range(76, 80), *range(83, 94))
HUNT_MINUTES = float(os.environ.get("OTTLA_HUNT_MINUTES", "0"))


class Different(AssertionError):
    """The brokers answered differently."""


class Search:
    """One search through random sequences; remembers the last that made a difference, which is the smallest in the end.

    It tells the first `told` of them only, if that is said: fewer examples would not be the first ones, but others.
    """

    def __init__(self, kafka, ottla, told=None):
        self.kafka, self.ottla = kafka, ottla
        self.left = told
        self.last = None

    def compare(self, steps):
        """Kafka does not always answer alike: whatever depends on the time is no difference if it goes away."""
        if self.left is not None and self.last is None:
            if not self.left:
                return
            self.left -= 1
        for _ in range(1 + TOLD_AGAIN):
            told = self._tell("Apache Kafka", self.kafka, steps)
            found = unexpected(told, self._tell("Ottla", self.ottla, steps))
            if not found:
                return
        self.last = steps, told, found
        raise Different("\n".join(map(str, found)))

    @staticmethod
    def _tell(who, address, steps):
        """A broker that is silent, or never gets ready, is named with what it was asked."""
        try:
            return tell(address, steps)
        except (AssertionError, OSError) as error:
            error.add_note(f"{who} was asked {json.dumps(steps)}")
            raise


def unexpected(kafka, ottla):
    scenario = "regressions/random"
    return [
        each for each in differences(kafka, ottla) if not any(allowed.allows(scenario, each) for allowed in ALLOWED)
    ]


def keep(steps, told):
    """Writes a sequence and Kafka's answers down; returns its name."""
    text = json.dumps(steps, indent=1) + "\n"
    apis = "_".join(step["api"] for step in steps[-2:])
    name = f"{apis}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    regressions.FOLDER.mkdir(exist_ok=True)
    regressions.file_of(name).write_text(text)
    golden.write(f"regressions/{name}", {regressions.VERSION: golden.Told(brokers.version("kafka_4"), told)})
    return name


@pytest.fixture
def both(address_of):
    """The addresses of Apache Kafka and of Ottla, whose coordinators and producer ids are ready."""
    addresses = address_of("kafka_4", regressions.SETTINGS), address_of("ottla", regressions.SETTINGS)
    for address in addresses:
        talk = Talk(address, REQUESTS["ApiVersions"], regressions.VERSION)
        for number in range(4):
            for kind in GROUPS:
                talk.group(f"{kind}-{number}")
        new_producer(talk)
        talk.close()
    return addresses


def search(both, about, examples, random_seed=None, told=None):
    searching = Search(*both, told)

    @settings(
        max_examples=examples,
        derandomize=random_seed is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(steps=sequences(about))
    def compare(steps):
        searching.compare(steps)

    try:
        (compare if random_seed is None else seed(random_seed)(compare))()
    except Different:
        drop_needless_steps(searching)
        steps, told, found = searching.last
        shown = "\n".join(map(str, found))
        pytest.fail(f"kept as regressions/{keep(steps, told)}.json:\n{json.dumps(steps, indent=1)}\n{shown}")


def drop_needless_steps(searching):
    """What hypothesis leaves is sometimes still longer than it has to be."""
    steps, number = searching.last[0], 0
    while number < len(steps):
        fewer = steps[:number] + steps[number + 1 :]
        try:
            searching.compare(fewer)
            number += 1
        except Different:
            steps = fewer
    with contextlib.suppress(Different):
        searching.compare(steps)  # so that it is the last again


@pytest.mark.timeout(900 + 60 * HUNT_MINUTES)  # to shrink a difference takes a while
@pytest.mark.parametrize("told", [pytest.param(EXAMPLES, marks=pytest.mark.long), FEWER])
@pytest.mark.parametrize("about", ABOUT)
def test_random_requests_are_answered_alike(both, about, told):
    if not HUNT_MINUTES:
        search(both, about, EXAMPLES, told=told)
    end = time.monotonic() + 60 * HUNT_MINUTES / len(ABOUT)
    while time.monotonic() < end:
        search(both, about, EXAMPLES_OF_A_ROUND, random_seed=time.time_ns())


def test_a_difference_is_shrunk_and_kept(monkeypatch, tmp_path):
    def answers(broker, steps):
        is_other = broker == "ottla" and any(step["api"] == "ListOffsets" and step["version"] >= 5 for step in steps)
        return [(step["api"], "other" if is_other else "same") for step in steps]

    monkeypatch.setattr(regressions, "FOLDER", tmp_path / "regressions")
    monkeypatch.setattr(golden, "FOLDER", tmp_path / "golden")
    monkeypatch.setattr(brokers, "version", lambda release: "4.4.0")
    monkeypatch.setitem(globals(), "tell", answers)
    with pytest.raises(pytest.fail.Exception, match=r"kept as regressions/ListOffsets_\w+\.json"):
        search(("kafka", "ottla"), ANYTHING, 500)
    [kept] = regressions.FOLDER.iterdir()
    [step] = json.loads(kept.read_text())
    assert (step["api"], step["version"], step["fields"]["topics"]) == ("ListOffsets", 5, [])
    told = golden.read(f"regressions/{kept.stem}")[regressions.VERSION]
    assert told == golden.Told("4.4.0", [("ListOffsets", "same")])


def marker_for(name, index=0):
    return {"topics": [{"name": name, "partition_indexes": [index]}]}


@pytest.mark.parametrize(
    ("markers", "is_left_out"),
    [
        ([], False),
        ([marker_for("nothing")], False),
        ([marker_for("nothing"), marker_for("<one>")], False),
        ([marker_for("<one>"), marker_for("<two>", 1)], False),
        ([marker_for("<one>"), marker_for("nothing")], True),
        ([marker_for("<one>"), marker_for("<one>", 1)], True),
    ],
)
def test_markers_that_kafka_never_answers_are_left_out(markers, is_left_out):
    steps = [{"api": "WriteTxnMarkers", "version": 1, "fields": {"markers": markers}}]
    assert without_chance(steps) == ([] if is_left_out else steps)


def test_members_that_become_static_while_they_are_in_are_left_out():
    def beat(member, instance):
        fields = {"group_id": "<group>", "member_id": member, "instance_id": instance}
        return {"api": "ConsumerGroupHeartbeat", "version": 0, "fields": fields}

    steps = [beat("a", None), beat("b", "instance"), beat("a", "other"), beat("b", None), beat("a", None)]
    assert without_chance(steps) == [steps[0], steps[1], steps[3], steps[4]]


def test_every_served_request_is_drawn():
    drawn = {request.__name__.removesuffix("Request") for request, _ in served()}
    assert drawn | set(LEFT_OUT) == {route.name for route in served_routes(is_in_cluster=False).values()}


def test_every_field_has_values():
    for request, version in served():
        assert fields_of(request, version).is_empty is False


def test_every_named_value_is_of_a_field():
    names = {name for request, _ in served() for each in request.structs().values() for name in named_fields(each)}
    assert {*VALUES, *WHOLE, *DEFAULTED} <= names


def test_every_request_about_coordinators_is_in_a_theme():
    said = {api for theme in THEMES.values() for api, _ in theme.lines}
    anew = {route.name for key, route in served_routes(is_in_cluster=False).items() if key in COORDINATORS}
    assert anew <= said | {"StreamsGroupTopologyDescriptionUpdate"}


def test_lines_of_themes_say_what_there_is_to_say():
    for theme in THEMES.values():
        for api, fields in theme.lines:
            assert set(fields) <= set(REQUESTS[api].wire_fields), api


def named_fields(struct):
    return [*struct.wire_fields, *(f"{struct.__name__}.{name}" for name in struct.wire_fields)]
