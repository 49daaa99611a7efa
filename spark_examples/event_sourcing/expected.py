"""What the places hold in the end, by plain addition.

    python expected.py

Nothing here knows of Kafka, Spark, transactions or compaction.
"""

from warehouse import COUNT, OUTSIDE, moves


def state(count: int = COUNT) -> dict[str, int]:
    """What places hold, by item@place, where it is not nothing."""
    found: dict[str, int] = {}
    for move in moves(count):
        if not move.is_aborted:
            for place, change in ((move.source, -move.count), (move.target, move.count)):
                if place != OUTSIDE:
                    found[f"{move.item}@{place}"] = found.get(f"{move.item}@{place}", 0) + change
    return {key: held for key, held in found.items() if held}


def main() -> None:
    for key, held in sorted(state().items()):
        print(f"{key:20} {held:5}")


if __name__ == "__main__":
    main()
