"""The lab: brokers inside a test, on disks in memory, with a clock that can be advanced. `ottla.testing` is its public face.

    kafka.py         the object that a test uses
    records.py       its records, as a consumer reads them
    groups.py        its groups: members, offsets, evictions, rebalances
    transactions.py  its transactions, how to fence a producer, and when markers are written
    partitions.py    its partitions: leaders, ISR, moves
    in_sync.py       the in-sync replicas of a partition: shrink and expand the ISR
    brokers.py       its brokers: kill, stop, isolate, fill or break a disk
    why.py           why something happened, and what became of an offset
    lab_history.py   what clients saw, held against the logs of the brokers
    tls.py           certificates of brokers with TLS
    registry.py      a schema registry beside the brokers
    service.py       a service with HTTP beside the brokers, in a thread of its own
    command.py       `ottla test`
    errors.py        the error of wrong use
    control/         the control port: all of it by HTTP
    chaos/           faults by a seed, and the fewest of them that make a test fail
    snapshots/       snapshot, restore and fork of a world, and the file of a snapshot
    world/           a broker or a cluster from nothing, on a clock of its own in a thread of its own
    wire_tap/        what clients and brokers say to each other
    profiles/        releases of Kafka and hosted services to behave as
    memory/          disks, connections and a coordination ensemble in memory
    simulation/      a cluster on virtual time, repeatable by its seed
    client/          a client in trio, over simulated connections or real ones
    history/         what clients saw, held against Kafka's promises

No module of the product outside may import this package; import-linter checks it, and that these know each other in one
direction only.
"""
