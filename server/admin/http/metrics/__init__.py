"""/metrics: the broker's counters, as Prometheus reads them.

    page.py         the page for Prometheus: all metrics put together, made piece by piece
    exposition.py   the two text formats, and the choice between them
    cluster.py      metrics of replicas, topics and groups, of this broker in its cluster, and of the controller
    process.py      metrics of the process, of the event loop, of requests and connections
    upkeep.py       room on the disks of the log directories, certificates that expire

Each metrics function yields pieces of text, none of which takes more than a millisecond or so; between two pieces everything may
change. The names are those that Kafka's metrics get from the usual rules of the JMX exporter
(`kafka.server<type=ReplicaManager, name=LeaderCount>` is `kafka_server_replicamanager_leadercount`), so that published
dashboards and alerts find them. Metrics that Kafka lacks are called `ottla_...`, `process_...` as every exporter has it, and
`kafka_consumergroup_...` as in kafka_exporter. `server/admin/http/dashboards/` rests on these names, and a test holds it to them.
"""
