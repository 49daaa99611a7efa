"""The bill of materials of an installed Ottla: what it needs, in which versions and under which licences (CycloneDX 1.5, JSON).

Run by the Python of the environment that Ottla is installed in; only what Ottla itself needs is listed, without its extras. Times
and numbers come from SOURCE_DATE_EPOCH and the list itself, so that the same packages give the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from typing import Any

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

NAME_LENGTH_MAX = 100
_OSI = "License :: OSI Approved :: "


def bill(project: str, now_s: int) -> dict[str, Any]:
    """What is installed of `project` and of all that it needs."""
    needed = {canonicalize_name(project): distribution(project)}
    depends: dict[str, list[str]] = {}
    waiting = list(needed)
    while waiting:
        name = waiting.pop()
        depends[name] = sorted(_needs(needed[name]))
        for each in depends[name]:
            if each not in needed:
                needed[each] = distribution(each)
                waiting.append(each)
    own, *others = (_component(name, needed[name]) for name in sorted(needed, key=lambda name: (name != project, name)))
    references = {name: _reference(name, needed[name]) for name in needed}
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s)),
            "component": {**own, "type": "application"},
        },
        "components": others,
        "dependencies": [
            {"ref": references[name], "dependsOn": [references[each] for each in depends[name]]}
            for name in sorted(depends)
        ],
    }
    made["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True)).urn
    return made


def _needs(found: Distribution) -> Iterable[str]:
    for text in found.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def _reference(name: str, found: Distribution) -> str:
    return f"pkg:pypi/{name}@{found.version}"


def _component(name: str, found: Distribution) -> dict[str, Any]:
    reference = _reference(name, found)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": found.version,
        "purl": reference,
        "licenses": _licenses(found),
    }


def _licenses(found: Distribution) -> list[dict[str, Any]]:
    if expression := found.metadata["License-Expression"]:
        return [{"expression": expression}]
    names = [each.removeprefix(_OSI) for each in found.metadata.get_all("Classifier") or () if each.startswith(_OSI)]
    if not names:
        names = [line for line in (found.metadata["License"] or "").splitlines()[:1] if line]
    return [{"license": {"name": name[:NAME_LENGTH_MAX]}} for name in names]


if __name__ == "__main__":
    print(json.dumps(bill(sys.argv[1], int(os.environ["SOURCE_DATE_EPOCH"])), indent=2))
