"""/metrics: what the broker counts, as Prometheus reads it.

    exposition.py   the two text formats, and which of them a request wants
    scrape.py       the handler: all of it in turns
    topics.py, partitions.py, requests.py, cluster.py, groups.py, process.py     what there is to tell
    loop_lag.py     measures how late the event loop is

Each of them has a function that yields pieces of text, none of which takes more than a millisecond or so; between two pieces
everything may change. The names are those that Kafka's metrics get from the usual rules of the JMX exporter
(`kafka.server<type=ReplicaManager, name=LeaderCount>` is `kafka_server_replicamanager_leadercount`), so that published
dashboards and alerts find them. What Kafka has not is called `ottla_...`, `process_...` as every exporter has it, and
`kafka_consumergroup_...` as in kafka_exporter. `server/http/dashboards/` rests on these names, and a test holds it to them.
"""
