"""The console: a web page on the HTTP endpoint that shows the broker's topics, records, groups and settings.

    console.py       puts the paths together: the page's static files, the log's last lines, and the views under /api/
    requests.py      who may ask; checked parameters; pages of long lists; calls of the broker's handlers, without a socket
    cluster_view.py  brokers, topics, partitions
    records.py       pages of records, and live; batches.py finds them, cells.py makes text of them
    avro/            values in Avro, by the schemas of a registry; protobuf_values.py those in Protobuf
    groups_view.py   groups: members, offsets, lag, the last rebalance
    transactions_view.py  transactional ids; producers of a partition, and hanging transactions
    topic_changes.py, group_changes.py  changes of topics and of groups
    access_view.py   rules of the authorizer, users and quotas, and changes of them
    history.py       the last hour of rates, lag, delays and free disk space
    why_view.py      why the broker removed, fenced, refused or closed, for `ottla why`
    schemas_view.py  subjects and versions of a schema registry, and changes of them
    settings_view.py settings with their documentation; changes one, and produces a record
    learning.py      the small load of the Learn tab, and its readers

    static/          plain HTML, CSS and ES modules, served as they are; `app.js` is where the page begins

The page gets JSON and makes text of it (`textContent`), never markup: its Content-Security-Policy allows neither inline scripts nor
markup that is made from strings (Trusted Types), so a record that contains HTML is shown as it is.

Each answer is bounded: lists come in pages with a cursor (`next`), and long work is sliced. The console asks no other broker: sizes,
records and groups are those of this broker, the rest is the cluster as this broker sees it.
"""
