"""The reference of all settings as a page of Markdown. `docs/settings.md` is this page; a test holds the two together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.server.settings.reference import BROKER, CLIENT_METRICS, GROUP, TOPIC, Reference

_HEAD = """\
# Settings

Ottla has Apache Kafka's settings, under Kafka's names. This page is made by `ottla settings --markdown`; `ottla settings NAME`
tells the same of one setting.

*Change* says where a setting can be changed while a broker runs: nowhere (*read-only*: it is given at the start, in
server.properties or with `--override`), for one broker (*per-broker*) or for all brokers of the cluster (*cluster-wide*). What
such a change does is in the last column. A setting marked with `*` may have a value for one listener, as
`listener.name.<listener>.<setting>`, and one marked with `z` is described only by members of a cluster with ZooKeeper.
"""

_SECTIONS = (
    ("Brokers", BROKER, True, "What a broker is started with."),
    (
        "Topics",
        TOPIC,
        True,
        "What a topic does not set is as the broker has it, by the first of the settings in brackets that is given.",
    ),
    (
        "Groups",
        GROUP,
        True,
        "Consumer, share and streams groups. What a group does not set is as the broker has it, by the setting in brackets.",
    ),
    (
        "Brokers: without effect",
        BROKER,
        False,
        "These are accepted, checked and described to clients, so that a file for Apache Kafka works as it is. They do nothing.",
    ),
    ("Topics: without effect", TOPIC, False, "The same of settings of topics."),
    ("Groups: without effect", GROUP, False, "The same of settings of groups."),
    (
        "Subscriptions to metrics of clients",
        CLIENT_METRICS,
        True,
        "A broker with the HTTP endpoint asks clients for metrics. Others keep the subscriptions.",
    ),
)


def reference_page(settings: Sequence[Reference]) -> str:
    """The page with these settings; sections that have none are left out."""
    parts = [_HEAD]
    for title, scope, has_effect, about in _SECTIONS:
        rows = [each for each in settings if (each.scope, each.has_effect) == (scope, has_effect)]
        if rows:
            parts.append("\n".join([f"## {title}", "", about, "", *_table(rows)]) + "\n")
    return "\n".join(parts)


def _table(settings: Sequence[Reference]) -> Iterator[str]:
    is_changeable = any(each.has_effect for each in settings)
    heads = ["Setting", "Type and values", "Default", "Change", "What it does"]
    if is_changeable:
        heads.append("What a change does at run time")
    yield _row(heads)
    yield _row(["-"] * len(heads))
    for each in settings:
        cells = [_name(each), _type(each), _default(each), each.change, _escaped(each.what)]
        if is_changeable:
            cells.append(_escaped(each.on_change))
        yield _row(cells)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(setting: Reference) -> str:
    marks = ("*" if setting.per_listener else "") + ("z" if setting.cluster_only else "")
    return f"`{setting.name}`" + (f" {_escaped(marks)}" if marks else "")


def _type(setting: Reference) -> str:
    return (
        f"{setting.type}, {_escaped(setting.allowed)}"
        if setting.allowed and setting.type != "boolean"
        else setting.type
    )


def _default(setting: Reference) -> str:
    value = "none" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    return value + (f" ({', '.join(f'`{each}`' for each in setting.defaults_from)})" if setting.defaults_from else "")


def _escaped(text: str) -> str:
    for special in "\\|*<>_":
        text = text.replace(special, f"\\{special}")
    return text
