"""ottla features [describe | upgrade | downgrade]"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla import __version__
from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, done_word, report, undo_command
from ottla.server.cli.client.output import UsageError, print_json, print_line, print_table
from ottla.server.cli.command_line import EXIT_OK, is_number
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.cli.client.cluster import Cluster
    from ottla.wire.messages.api_versions import ApiVersionsResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
LEVEL_MAX = 32767

DESCRIPTION = """\
Tells which levels of features a cluster supports and uses (its finalized levels), or changes them. A level that somebody has set
stays until somebody sets it again; the others rise by themselves when all brokers support more.
"""

EXAMPLES = """\
examples:
  ottla features                                 list them
  ottla features upgrade transaction.version=2   fails while a broker does not support it
  ottla features downgrade transaction.version=0 before brokers go back to a release without it
"""


class FeatureLevels(NamedTuple):
    """Levels of a feature: the range that all brokers support, and the finalized level (0: none)."""

    feature: str
    finalized: int
    supported: tuple[int, int] | None
    """None: not all of them support it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla features`; the default is `describe`."""
    actions = Actions(parser, "describe", _describe)
    actions.add("describe", "tell which levels are supported and finalized", _describe)
    for name, what in (("upgrade", "raise levels"), ("downgrade", "lower levels; 0 turns a feature off")):
        changing = actions.add(name, what, _change)
        changing.add_argument("levels", nargs="+", metavar="FEATURE=LEVEL")
        add_dry_run(changing)
        if name == "downgrade":
            lossy = "even if data written at the higher level is lost"
            changing.add_argument("--unsafe", action="store_true", help=lossy)
            add_yes(changing)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line, or `describe` without one; return the exit code."""
    return run_action(options)


def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    features = _features_of(cluster)
    if wants_json(options):
        print_json([_as_json(each) for each in features])
    elif not features:
        print_line(
            "no broker tells of features: one that knows none is in the cluster, or levels are not finalized yet"
        )
    else:
        rows = [(each.feature, each.finalized, _range(each)) for each in features]
        print_table(("FEATURE", "FINALIZED", "SUPPORTED"), rows)
    return EXIT_OK


def _range(levels: FeatureLevels) -> str:
    return "not by all brokers" if levels.supported is None else f"{levels.supported[0]}-{levels.supported[1]}"


def _as_json(levels: FeatureLevels) -> dict[str, Any]:
    least, most = levels.supported or (None, None)
    return {"feature": levels.feature, "finalized": levels.finalized, "supported_min": least, "supported_max": most}


def _features_of(cluster: Cluster) -> list[FeatureLevels]:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)

    def ask(node_id: int) -> ApiVersionsResponse:
        answer: ApiVersionsResponse = cluster.broker(node_id).ask(request)
        return answer

    answers = [cluster.patiently(partial(ask, node_id)) for node_id in cluster.brokers()]
    # Brokers hear of a change one after the other; who has heard of the most is right.
    newest = max(answers, key=lambda answer: answer.finalized_features_epoch, default=None)
    finalized = {} if newest is None else {each.name: each.max_version_level for each in newest.finalized_features}
    ranges = [
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features} for answer in answers
    ]
    names = sorted({*finalized, *(name for each in ranges for name in each)})
    return [FeatureLevels(name, finalized.get(name, 0), _common([each.get(name) for each in ranges])) for name in names]


def _common(ranges: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    known = [each for each in ranges if each is not None]
    if len(known) < len(ranges):
        return None
    least, most = max(low for low, _ in known), min(high for _, high in known)
    return (least, most) if least <= most else None


def _change(cluster: Cluster, options: argparse.Namespace) -> int:
    kind = UPGRADE
    if options.action == "downgrade":
        kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    levels = dict(map(_level, options.levels))
    if len(levels) < len(options.levels):
        raise UsageError("a feature is named twice")
    before = {each.feature: each.finalized for each in _features_of(cluster)}
    _ask(cluster, levels, kind, only_checks=True)
    told = ", ".join(f"{name} is at level {level}" for name, level in levels.items())
    if not options.dry_run:
        if kind == UNSAFE_DOWNGRADE:
            lowered = " and ".join(f"{name} to {level}" for name, level in levels.items())
            agree(options, f"Lower {lowered}, even if data written at the higher level is lost")
        carry_out([Step(told, partial(_ask, cluster, levels, kind, only_checks=False))])

    def show() -> None:
        for name, level in levels.items():
            print_line(f"{name} {done_word(options)} at level {level}")

    raised = {name: before.get(name, 0) for name in levels if before.get(name, 0) != levels[name]}
    back = "downgrade" if kind == UPGRADE else "upgrade"
    undo = [undo_command(options, "features", back, *(f"{name}={level}" for name, level in raised.items()))]
    report(options, {"levels": levels}, show, undo if raised else [])
    return EXIT_OK


def _ask(cluster: Cluster, levels: dict[str, int], kind: int, *, only_checks: bool) -> None:
    """Set levels; `only_checks`: validate only. Raises RequestFailed."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE)
            for name, level in levels.items()
        ],
        validate_only=only_checks,
    )

    def ask() -> None:
        controller = cluster.controller()
        # Version 0 knows no trial, and would change the levels.
        if only_checks and controller.version_of(UpdateFeaturesRequest) < 1:
            return
        answer = controller.ask(request)
        cluster.check("the levels are not changed", answer.error_code, answer.error_message)
        for each in answer.results:
            cluster.check(each.feature, each.error_code, each.error_message)

    cluster.patiently(ask)


def _level(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not name or not separator or not is_number(level) or int(level) > LEVEL_MAX:
        raise UsageError(f"{text!r} is not FEATURE=LEVEL, such as transaction.version=2")
    return name, int(level)
