"""The lab: brokers inside a test, on disks in memory, with a clock that can be advanced. `ottla.testing` is its public face.

    kafka.py                the object that a test uses
    records.py              its records, as a consumer reads them
    groups.py               its groups: members, offsets, evictions, rebalances
    transactions.py         its transactions, and how to fence a producer
    partitions.py           its partitions: leaders, ISR, moves
    in_sync.py              the in-sync replicas of a partition: shrink and expand the ISR
    brokers.py              its brokers: kill, stop, isolate, fill or break a disk
    why.py                  why something happened, and what became of an offset
    chaos.py                faults by a seed
    tls.py                  certificates of brokers with TLS
    wire_faults.py          those of them on the wire towards clients
    shrinking.py            the fewest of them that make a test fail
    command.py              `ottla test`
    lab.py                  a world as other threads reach it
    service.py              a service with HTTP beside the brokers, in a thread of its own
    registry.py             a schema registry beside the brokers
    control.py              the control port: all of it by HTTP
    control_operations.py   what that offers
    world.py                a broker or a cluster from nothing; requests without a connection
    node.py                 one broker: start, stop, kill
    snapshots.py            snapshot, restore and fork of a world
    snapshot_files.py       a snapshot and its file
    kept_connections.py     connections that outlive a restore
    living_producers.py     producers that outlive a restore
    loop.py                 the thread in which all brokers of the process live
    clock.py                its clock
    memory_storage.py       a file system in memory, with faults on request, and its snapshots
    memory_contents.py      contents of its files, which snapshots share
    memory_chunks.py        memory of long files, used again by later ones
    memory_coordination.py  a coordination ensemble in memory, with faults on request
    memory_transport.py     connections of brokers with files in memory
    cuts.py                 cuts between the brokers of a cluster
    profiles.py             releases of Kafka and hosted services to behave as
    profile_versions.py     their versions of APIs
    errors.py               the error of wrong use
    client/                 a client in trio, over simulated connections or real ones
    simulation/             a cluster on virtual time, repeatable by its seed
    history/                what clients saw, held against Kafka's promises
    control_wire.py         operations of the control port on the wire tap
    wire_tap/               what clients and brokers say to each other

No module of the product outside may import this package; import-linter checks it.
"""
