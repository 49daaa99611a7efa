"""Settings, modes and contexts."""

import json

import pytest

from ottla.server.tests.registry.registry import MemoryRegistry, record

A = record("a")


async def test_compatibility_of_a_subject_of_its_context_or_of_all() -> None:
    registry = MemoryRegistry()
    ask = registry.ask
    assert await ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("GET", "/config/s") == (40408, "Subject 's' does not have subject-level compatibility configured")
    assert await ask("GET", "/config/s?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert await ask("PUT", "/config/:.c:", {"compatibilityLevel": "NONE"}) == {"compatibility": "NONE"}
    assert await ask("PUT", "/config/:.c:s", {"compatibility": "FORWARD"}) == {"compatibility": "FORWARD"}
    for subject, level in (("s", "FULL"), (":.c:t", "NONE"), (":.c:s", "FORWARD"), (":.d:s", "BACKWARD")):
        assert await ask("GET", f"/config/{subject}?defaultToGlobal=true") == {"compatibilityLevel": level}
    assert await ask("PUT", "/config/:.__GLOBAL:", {"compatibility": "FORWARD"}) == {"compatibility": "FORWARD"}
    assert await ask("GET", "/config/:.d:s?defaultToGlobal=true") == {"compatibilityLevel": "FORWARD"}
    assert await ask("DELETE", "/config/:.c:s") == {"compatibilityLevel": "FORWARD"}
    assert (await ask("DELETE", "/config/:.c:s"))[0] == 40401
    assert await ask("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert await ask("GET", "/config/:.:") == {"compatibilityLevel": "BACKWARD"}
    for level in ("X", ""):
        assert (await ask("PUT", "/config", {"compatibility": level}))[0] == 42203
    assert (await ask("PUT", "/config", {"normalize": "x"}))[0] == 400


async def test_settings_are_changed_one_by_one() -> None:
    registry = MemoryRegistry()
    ask = registry.ask
    await ask("PUT", "/config/s", {"compatibility": "FULL"})
    assert await ask("PUT", "/config/s", {"normalize": True}) == {"compatibility": "FULL", "normalize": True}
    assert await ask("PUT", "/config/s", {"compatibility": None}) == {"normalize": True}
    assert await ask("GET", "/config/s") == {"compatibilityLevel": "BACKWARD", "normalize": True}
    one, other = {**A, "x": 1, "y": 2}, {**A, "y": 2, "x": 1}
    assert await registry.register("s", one) == await registry.register("s", other)
    assert '"x":1,"y":2' in (await ask("GET", "/schemas/ids/1"))["schema"]


async def test_a_compatibility_group_separates_versions() -> None:
    registry = MemoryRegistry()
    await registry.ask("PUT", "/config/s", {"compatibilityGroup": "major"})
    assert await registry.register("s", A, metadata={"properties": {"major": "1"}}) == 1
    assert (await registry.register("s", record("b"), metadata={"properties": {"major": "1"}}))[0] == 40901
    assert await registry.register("s", record("b"), metadata={"properties": {"major": "2"}}) == 2
    found = await registry.ask("GET", "/subjects/s/metadata?key=major&value=1")
    assert found["version"] == 1 and found["metadata"] == {"properties": {"major": "1"}}
    assert (await registry.ask("GET", "/subjects/s/metadata?key=major&value=3"))[0] == 40403
    assert (await registry.ask("GET", "/subjects/x/metadata?key=major&value=3"))[0] == 40401


async def test_metadata_is_that_of_the_version_before_unless_it_is_given() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A, metadata={"properties": {"owner": "me"}})
    await registry.register("s", record("a", "b", b=0))
    assert (await registry.ask("GET", "/subjects/s/versions/2"))["metadata"] == {"properties": {"owner": "me"}}
    body = {"schema": json.dumps(record("a", "b", b=0))}
    assert (await registry.ask("POST", "/subjects/s", body))["version"] == 2


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
async def test_a_read_only_subject_does_not_change(mode: str) -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    assert await registry.ask("GET", "/mode") == {"mode": "READWRITE"}
    assert await registry.ask("PUT", "/mode/s", {"mode": mode.lower()}) == {"mode": mode}
    assert await registry.ask("GET", "/mode/s") == {"mode": mode}
    assert await registry.register("s", A) == 1
    for answer in (
        await registry.register("s", record("a", "b", b=0)),
        await registry.ask("DELETE", "/subjects/s"),
        await registry.ask("DELETE", "/subjects/s/versions/1"),
        await registry.ask("PUT", "/config/s", {"compatibility": "NONE"}),
    ):
        assert answer == (42205, "Subject s in context  is in read-only mode")
    assert await registry.register("t", A) == 1
    assert await registry.ask("DELETE", "/mode/s") == {"mode": mode}
    assert await registry.register("s", record("a", "b", b=0)) == 2
    assert (await registry.ask("DELETE", "/mode/s"))[0] == 40401


async def test_an_import_keeps_ids_and_versions() -> None:
    registry = MemoryRegistry()
    assert (await registry.register("s", A, id=7))[0] == 42205
    await registry.register("s", A)
    assert await registry.ask("PUT", "/mode", {"mode": "IMPORT"}) == (
        42205,
        "Cannot import since found existing subjects",
    )
    await registry.ask("DELETE", "/subjects/s")
    assert await registry.ask("PUT", "/mode", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert await registry.ask("GET", "/subjects?deleted=true") == []
    assert await registry.register("s", A, id=7, version=3) == 7
    assert await registry.register("s", record("z"), id=9, version=5) == 9
    assert (await registry.register("t", record("z"), id=7))[0] == 42205
    assert (await registry.register("t", record("z")))[0] == 42205
    assert await registry.ask("GET", "/subjects/s/versions") == [3, 5]
    await registry.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert await registry.register("t", record("q")) == 10
    assert (await registry.ask("GET", "/schemas/ids/9?fetchMaxId=true"))["maxId"] == 10


async def test_modes_that_do_not_exist_are_refused() -> None:
    registry = MemoryRegistry()
    assert (await registry.ask("PUT", "/mode", {"mode": "X"}))[0] == 42204
    assert (await registry.ask("GET", "/mode/s"))[0] == 40409
    assert await registry.ask("GET", "/mode/s?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert (await registry.ask("PUT", "/mode/a%0Ab", {"mode": "IMPORT"}))[0] == 42208
    await registry.ask("PUT", "/mode/:.c:s", {"mode": "READONLY"})
    assert await registry.ask("DELETE", "/mode/:.c:?recursive=true") == {}
    assert (await registry.ask("GET", "/mode/:.c:s"))[0] == 40409


async def test_contexts_have_ids_of_their_own_and_are_found_without_being_named() -> None:
    registry = MemoryRegistry()
    await registry.register("s", A)
    await registry.register(":.c:t", record("x"))
    await registry.register(":.c:u", record("y"))
    assert "x" in (await registry.ask("GET", "/schemas/ids/1?subject=:.c:t"))["schema"]
    assert "x" in (await registry.ask("GET", "/schemas/ids/1?subject=:.c:"))["schema"]
    assert "y" in (await registry.ask("GET", "/schemas/ids/2?subject=u"))["schema"]
    assert "a" in (await registry.ask("GET", "/schemas/ids/1?subject=s"))["schema"]
    assert (await registry.ask("GET", "/schemas/ids/2"))[0] == 40403
    assert (await registry.ask("GET", "/subjects/t/versions/1"))["subject"] == ":.c:t"
    body = {"schema": json.dumps(record("x"))}
    assert (await registry.ask("POST", "/subjects/t", body))["subject"] == ":.c:t"
    assert await registry.ask("GET", "/contexts?contextPrefix=.c") == [".c"]
    assert (await registry.ask("DELETE", "/contexts/.c"))[0] == 42211
    for subject in (":.c:t", ":.c:u"):
        await registry.ask("DELETE", f"/subjects/{subject}")
        await registry.ask("DELETE", f"/subjects/{subject}?permanent=true")
    assert await registry.ask("DELETE", "/contexts/:.c:") is None
    assert await registry.ask("GET", "/contexts") == ["."]


async def test_a_reference_in_a_context_is_shown_with_it_on_demand() -> None:
    registry = MemoryRegistry()
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "r", "type": "R"}]}
    await registry.register(":.c:s", A)
    reference = {"name": "R", "subject": "s", "version": 1}
    assert await registry.register(":.c:t", outer, references=[reference]) == 2
    path = "/subjects/:.c:t/versions/1"
    assert (await registry.ask("GET", path))["references"] == [reference]
    qualified = (await registry.ask("GET", f"{path}?referenceFormat=qualified"))["references"]
    assert qualified == [{**reference, "subject": ":.c:s"}]


async def test_the_registry_tells_of_itself() -> None:
    registry = MemoryRegistry()
    assert await registry.ask("GET", "/") == {}
    assert await registry.ask("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    clusters = {"kafka-cluster": "a-cluster", "schema-registry-cluster": "schema-registry"}
    assert await registry.ask("GET", "/v1/metadata/id") == {"id": "", "scope": {"path": [], "clusters": clusters}}
    assert (await registry.ask("GET", "/v1/metadata/version"))["version"]


async def test_the_lenient_policy_is_a_setting() -> None:
    registry = MemoryRegistry()
    one = {"type": "object", "properties": {"a": {}}}
    other = {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}}
    assert await registry.register("s", one, schemaType="JSON") == 1
    assert (await registry.register("s", other, schemaType="JSON"))[0] == 40901
    await registry.ask("PUT", "/config/s", {"compatibilityPolicy": "LENIENT"})
    assert await registry.register("s", other, schemaType="JSON") == 2


async def test_metadata_of_the_settings_is_merged_into_what_is_registered() -> None:
    registry = MemoryRegistry()
    ask = registry.ask
    defaults = {"properties": {"owner": "all", "team": "x"}, "tags": {"a": ["PII"]}, "sensitive": ["owner"]}
    override = {"properties": {"team": "y"}, "tags": {"b": ["z", "PII", "z"]}}
    await ask("PUT", "/config/s", {"defaultMetadata": defaults, "overrideMetadata": override})
    await registry.register("s", A, metadata={"properties": {"owner": "me", "team": "me"}})
    assert (await ask("GET", "/subjects/s/versions/1"))["metadata"] == {
        "tags": {"a": ["PII"], "b": ["PII", "z"]},
        "properties": {"owner": "me", "team": "y"},
        "sensitive": ["owner"],
    }
    # A later version begins with that of the latest one, and an equal one is found whether its metadata is sent or not.
    await registry.register("s", record("a", "b", b=0))
    second = await ask("GET", "/subjects/s/versions/2")
    assert second["metadata"]["properties"] == {"owner": "me", "team": "y"}
    assert (await ask("POST", "/subjects/s", {"schema": json.dumps(record("a", "b", b=0))}))["version"] == 2
    assert await registry.register("s", record("a", "b", b=0)) == second["id"]
    # Without a schema: one more version of the latest schema, with other metadata.
    body = {"metadata": {"properties": {"owner": "you"}}}
    third = await ask("POST", "/subjects/s/versions", body)
    found = await ask("GET", "/subjects/s/versions/3")
    assert found["id"] == third["id"] != second["id"] and found["schema"] == second["schema"]
    assert found["metadata"]["properties"] == {"owner": "you", "team": "y"}


async def test_rules_are_merged_by_their_names() -> None:
    registry = MemoryRegistry()
    ask = registry.ask

    def rules(**types: str) -> dict[str, object]:
        return {"domainRules": [{"name": name, "type": kind} for name, kind in types.items()]}

    await ask("PUT", "/config", {"defaultRuleSet": rules(a="1", b="1"), "overrideRuleSet": rules(c="3")})
    await registry.register("s", A, ruleSet={**rules(b="2", c="2"), "enableAt": "CLIENT"})
    found = (await ask("GET", "/subjects/s/versions/1"))["ruleSet"]
    assert [(each["name"], each["type"]) for each in found["domainRules"]] == [("a", "1"), ("b", "2"), ("c", "3")]
    assert found["enableAt"] == "CLIENT" and found["domainRules"][0]["mode"] == "WRITEREAD"
    for wrong, message in (
        (rules(a="1") | {"migrationRules": [{"name": "a", "type": "x", "mode": "UPGRADE"}]}, "duplicate name 'a'"),
        ({"migrationRules": [{"name": "a", "type": "x", "mode": "READ"}]}, "Migration rules can only be"),
        ({"domainRules": [{"name": "a"}]}, "Missing rule type"),
        ({"domainRules": [{"type": "a"}]}, "Missing rule name"),
        (rules(**{"1a": "x"}), "Illegal initial character"),
        (rules(**{"a.b": "x"}), "Illegal character"),
        (rules(**{"a" * 257: "x"}), "too long"),
        ({"domainRules": [{"name": "a", "type": "x", "mode": "READ", "onFailure": "A,B"}]}, "Multiple actions"),
    ):
        code, text = await ask("POST", "/subjects/t/versions", {"schema": json.dumps(A), "ruleSet": wrong})
        assert code == 42210 and message in text
    for name, wrong in (("ruleSet", {"domainRules": {}}), ("metadata", {"tags": []}), ("metadata", {"sensitive": "x"})):
        assert (await ask("POST", "/subjects/t/versions", {"schema": json.dumps(A), name: wrong}))[0] == 400


async def test_version_minus_one_is_noted_in_the_metadata_from_then_on() -> None:
    registry = MemoryRegistry()
    ask = registry.ask
    assert await registry.register("s", A) == 1
    assert await registry.register("s", record("a", "b", b=0), version=-1) == 2
    assert (await ask("GET", "/subjects/s/versions/2"))["metadata"] == {"properties": {"confluent:version": "2"}}
    # The latest version is found with and without the property, and as the latest.
    assert await registry.register("s", record("a", "b", b=0)) == 2
    assert await registry.register("s", record("a", "b", b=0), version=-1) == 2
    await registry.register("s", record("a", "b", "c", b=0, c=0))
    assert (await ask("GET", "/subjects/s/versions/3"))["metadata"] == {"properties": {"confluent:version": "3"}}
    # An older schema becomes the latest one again.
    await registry.register("s", A, version=-1)
    assert (await ask("GET", "/subjects/s/versions/latest"))["version"] == 4
