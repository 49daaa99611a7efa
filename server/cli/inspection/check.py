"""ottla check DIR ... [--config server.properties] [--json]"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, given_texts
from ottla.server.standard_streams import OutputUnread

if TYPE_CHECKING:
    from ottla.server.cli.inspection.examination import Examined, Finding
    from ottla.server.cli.inspection.rehearsal import Change, Rehearsal

DESCRIPTION = """\
Looks through data directories without a broker, at every batch, index entry and checkpoint, and says what a start on them would
do: what it cuts, removes or makes anew, or why it would be refused. Nothing is changed. A broker must not run on them.

Give all directories of log.dirs together, as a start would have them. The id of the broker is the one in meta.properties, or
that of --config. A member of a cluster is looked at as if it were alone: ZooKeeper is not asked what it hosts.

Ends with 1 if something is damaged, or a start would be refused; with 2 if a setting in --config is wrong, or settings do not fit
together.
"""

EXAMPLES = """\
examples:
  ottla check ~/.local/share/ottla
  ottla check /disk1/ottla /disk2/ottla
  ottla check --config server.properties         the directories, and the id of the broker, as a start takes them
"""

_TAKEN = ("node.id", "broker.id", "log.dirs", "log.dir")
_ROUTINE = (".kafka_cleanshutdown", "coordination.journal")
_PROGRESS_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla check`: the data directories and the settings of the broker."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="data directories, all of one broker")
    config = "server.properties, whose settings are checked as a start does; has log.dirs and the broker's id"
    parser.add_argument("--config", type=Path, metavar="FILE", help=config)
    parser.add_argument("--json", action="store_true", help="one object, for programs")


def run(options: argparse.Namespace) -> int:
    """Examine the data directories, and simulate a broker start on them; return the exit code."""
    from ottla.replication.log.locks import share_lock
    from ottla.replication.log.names import LOCK, path_in
    from ottla.server.config.broker_config import ConfigError, load_config

    try:
        texts = _start_settings(options.folders, options.config)
        config = load_config(texts)
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    folders = [Path(os.path.abspath(each)) for each in config.log_dirs]
    for folder in folders:
        if not folder.is_dir():
            return fail(f"{folder} is no directory", EXIT_USAGE)
        if any(folder.glob("*.log")):
            return fail(f"{folder} is a partition; give the data directory that it is in, {folder.parent}", EXIT_USAGE)
    locks = []
    for folder in folders:
        lock = share_lock(path_in(str(folder), LOCK))
        if lock is None:
            return fail(f"{folder} is in use by a broker; stop it first", EXIT_FAILED)
        locks.append(lock)
    try:
        return _check(folders, config, is_json=options.json)
    except OSError as error:
        return fail(f"cannot read {error.filename or folders[0]}: {error.strerror or error}", EXIT_FAILED)
    finally:
        for lock in locks:
            lock.release()


def _start_settings(folders: Sequence[Path], file: Path | None) -> dict[str, str]:
    """Collect the settings for the simulated start. Raises ConfigError, also if a broker does not start with `file`."""
    from ottla.server.config.broker_config import ConfigError, load_config

    given = given_texts(file, [])
    if file is not None:
        try:
            load_config(given)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None
    texts = {name: given[name] for name in _TAKEN if name in given}
    if folders:
        texts["log.dirs"] = ",".join(os.path.abspath(each) for each in folders)
    elif "log.dirs" not in texts and "log.dir" not in texts:
        raise ConfigError("give a data directory, or a --config that has log.dirs")
    if "node.id" not in texts and "broker.id" not in texts:
        texts["node.id"] = str(_node_id(folders))
    return texts


def _node_id(folders: Sequence[Path]) -> int:
    """Return the broker id in the first readable meta.properties; 1, the default, if none is readable."""
    from ottla.replication.log.checkpoints import CorruptCheckpoint, decode_meta_properties
    from ottla.replication.log.names import META_PROPERTIES
    from ottla.server.cli.inspection.dump import read_small

    for folder in folders:
        try:
            node_id = decode_meta_properties(read_small(folder / META_PROPERTIES)).node_id
        except (OSError, CorruptCheckpoint):
            continue
        if node_id is not None:
            return node_id
    return 1


def _check(folders: Sequence[Path], config: Any, *, is_json: bool) -> int:
    from ottla.server.cli.inspection.examination import Examined, examine, log_bytes
    from ottla.server.cli.inspection.rehearsal import NoRoomForCheck, OverlayStorage, rehearse

    progress = _Progress(sum(map(log_bytes, folders)))
    examined = Examined(on_progress=progress.add)
    for folder in folders:
        examine(folder, examined)
    progress.end()
    try:
        rehearsal = rehearse(config, OverlayStorage())
    except NoRoomForCheck as error:
        return fail(f"a start cannot be rehearsed: {error}; TMPDIR can be another folder", EXIT_FAILED)
    lines = [_as_json(folders, examined, rehearsal)] if is_json else _lines(examined, rehearsal)
    with suppress(OutputUnread):  # whoever wants the first lines alone is told of damage all the same
        print("\n".join(lines))
    return EXIT_FAILED if examined.damage_count or rehearsal.refusal is not None else EXIT_OK


class _Progress:
    """Progress line on a terminal. It shows the percentage of log bytes that have been read."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._is_shown = sys.stderr.isatty()
        self._next_s = time.monotonic() + _PROGRESS_S

    def add(self, count: int) -> None:
        self._done += count
        if self._is_shown and (now_s := time.monotonic()) >= self._next_s:
            self._next_s = now_s + _PROGRESS_S
            percent = 100 * self._done // max(self._total, 1)
            print(f"\r{min(percent, 100):3d} % of {self._total:,} bytes", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_shown and self._done:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------- telling


def _as_json(folders: Sequence[Path], examined: Examined, rehearsal: Rehearsal) -> str:
    changed = {each.path: each for each in rehearsal.changes}
    return json.dumps(
        {
            "directories": [str(each) for each in folders],
            "partitions": examined.partitions,
            "segments": examined.segments,
            "batches": examined.batches,
            "bytes": examined.bytes,
            "damage": examined.damage_count,
            "findings_count": examined.findings_count,
            "findings": [{**each._asdict(), "at_start": _fate(each, changed, rehearsal)} for each in examined.findings],
            "start": {
                "refusal": rehearsal.refusal,
                "changes": [each._asdict() for each in rehearsal.changes],
                "logs": [each._asdict() for each in rehearsal.logs],
                "said": rehearsal.said,
            },
        },
        indent=2,
    )


def _lines(examined: Examined, rehearsal: Rehearsal) -> list[str]:
    from ottla.server.cli.inspection.rows import escaped

    changed = {each.path: each for each in rehearsal.changes}
    shown = []
    for each in examined.findings:
        place = "" if each.position is None else f" at position {each.position}"
        shown.append(f"{'damaged' if each.is_damage else 'note'}: {each.path}: {each.reason}{place}")
        if each.is_damage and rehearsal.refusal is None:
            shown.append(f"  a start {_fate(each, changed, rehearsal)}")
    if examined.findings_count > len(examined.findings):
        shown.append(f"... and {examined.findings_count - len(examined.findings)} more")
    shown += _start_lines(rehearsal)
    shown.append(
        f"{examined.partitions} partitions, {examined.segments} segments, {examined.batches} batches,"
        f" {examined.bytes:,} bytes: {examined.damage_count or 'nothing'} damaged"
    )
    return [escaped(each) for each in shown]


def _start_lines(rehearsal: Rehearsal) -> Iterator[str]:
    if rehearsal.refusal is not None:
        yield f"a start is refused: {rehearsal.refusal}"
        return
    given_up = [each for each in rehearsal.changes if each.kind == "removed" and each.path.endswith(".deleted")]
    shown = [
        each
        for each in rehearsal.changes
        if each not in given_up and os.path.basename(each.path) not in _ROUTINE and _is_of_log(each)
    ]
    ends = {each.directory: each for each in rehearsal.logs}
    for each in shown:
        log = ends.get(os.path.dirname(each.path))
        behind = (
            f"; the log ends at offset {log.log_end_offset}" if log is not None and each.path.endswith(".log") else ""
        )
        yield f"a start {_does(each)} {each.path}{behind}"
    if given_up:
        yield f"a start removes {len(given_up)} files that were given up before"
    for said in rehearsal.said:
        yield f"a start says: {said}"
    if not shown and not rehearsal.said:
        yield "a start takes everything as it is"


def _is_of_log(change: Change) -> bool:
    """Return True if `change` is worth printing. Checkpoints of all logs are not: they are rewritten constantly."""
    return not change.path.endswith("-checkpoint") or change.path.endswith("leader-epoch-checkpoint")


def _does(change: Change) -> str:
    if change.kind == "cut":
        return f"cuts {change.before} bytes to {change.after} of"
    if change.kind == "renamed":
        return f"renames {change.source} to"
    return {"removed": "removes", "created": "makes", "rewritten": "makes anew"}[change.kind]


def _fate(finding: Finding, changed: dict[str, Change], rehearsal: Rehearsal) -> str:
    if rehearsal.refusal is not None:
        return "is refused"
    change = changed.get(finding.path)
    if change is None:
        return "leaves it as it is"
    if change.kind == "cut" and finding.position is not None and finding.position < (change.after or 0):
        return f"leaves it as it is, and cuts the file at {change.after} bytes"
    if change.kind == "cut":
        return f"cuts the file at {change.after} bytes"
    return {"removed": "removes it", "created": "makes it", "rewritten": "makes it anew", "renamed": "renames it"}[
        change.kind
    ]
