"""`ottla features`: levels told and changed."""

from compat_tests.support.brokers import wait_until

FEATURE = "transaction.version"
OTHERS = ("group.version", "streams.version")


def become(ottla, level):
    """Wait until the broker tells this level, of which the controller knows first. Returns all levels."""

    def levels():
        told = {each["feature"]: each["finalized"] for each in ottla("features", "--json").json}
        return told if told[FEATURE] == level else None

    return wait_until(levels, f"it is at level {level}", 60)


def test_levels_are_listed_and_changed(ottla):
    listed = {each["feature"]: each for each in ottla("features", "--json").json}
    assert listed[FEATURE] == {"feature": FEATURE, "finalized": 2, "supported_min": 0, "supported_max": 2}
    lines = [line.split() for line in ottla("features").lines]
    assert lines[0] == ["FEATURE", "FINALIZED", "SUPPORTED"]
    assert [FEATURE, "2", "0-2"] in lines
    try:
        dry = ottla("features", "downgrade", f"{FEATURE}=1", "--dry-run")
        assert dry.lines == [f"{FEATURE} would be at level 1", "Nothing is changed: this is a dry run."]
        told = {each["feature"]: each["finalized"] for each in ottla("features", "describe", "--json").json}
        assert told[FEATURE] == 2
        told = ottla("features", "downgrade", f"{FEATURE}=1")
        assert told.lines[0] == f"{FEATURE} is at level 1"
        assert told.lines[1].startswith(f"To undo: ottla features upgrade {FEATURE}=2")
        changed = become(ottla, 1)
        assert {name: changed[name] for name in OTHERS} == dict.fromkeys(OTHERS, 1)
        unsafe = ("features", "downgrade", "--unsafe", "--json", f"{FEATURE}=0")
        assert "There is nobody to ask: give --yes" in ottla(*unsafe, status=2).err
        told = ottla(*unsafe, "--yes").json
        assert (told["levels"], told["dry_run"]) == ({FEATURE: 0}, False)
        become(ottla, 0)
    finally:
        ottla("features", "upgrade", f"{FEATURE}=2")
    become(ottla, 2)


def test_refusals_are_the_brokers_own_words(ottla):
    for action, change, words in (
        ("upgrade", f"{FEATURE}=1", "Can't downgrade the version of this feature"),
        ("downgrade", f"{FEATURE}=3", "only supports versions 0-2"),
        ("upgrade", "no.such=1", "does not support this feature"),
    ):
        told = ottla("features", action, change, status=1).err
        assert words in told and "INVALID_UPDATE_VERSION" in told
        assert len(told.splitlines()) == 1
    for wrong in (FEATURE, "=1", f"{FEATURE}=-1", f"{FEATURE}=x", f"{FEATURE}=40000"):
        assert "is not FEATURE=LEVEL" in ottla("features", "upgrade", wrong, status=2).err
