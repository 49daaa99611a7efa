"""Stand-ins for the surroundings of a broker, with faults on request.

    memory_storage.py       a file system in memory, and its snapshots
    memory_contents.py      contents of its files, which snapshots share
    memory_coordination.py  a coordination ensemble in memory
    simulation/             a cluster on virtual time, repeatable by its seed
    history/                what clients saw, held against Kafka's promises

Simulations and unit tests use them. No other module of the product may import this package; import-linter checks it.
"""
