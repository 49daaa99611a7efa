"""Options of a run of pytest with the plugin and without what the project's own runs have."""

from importlib.metadata import entry_points

_IS_INSTALLED = any(each.value == "ottla.testing.plugin" for each in entry_points(group="pytest11"))

# An installation from before the plugin does not name it to pytest.
WORDS = (*(() if _IS_INSTALLED else ("-p", "ottla.testing.plugin")), "-p", "no:trio", "-p", "no:cacheprovider")
