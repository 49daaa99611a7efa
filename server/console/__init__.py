"""The console: a web page on the HTTP endpoint that shows what the broker holds and does.

    console.py       puts the paths together: the page, and what it asks under /api/
    access.py        who may ask: everybody on this machine, or who has the token
    pages.py         the files in static/, by ETag
    questions.py     parameters of a request, checked; paging.py finds the page of a long list that they ask for
    asking.py        asks handlers of the broker as any client does, without a socket
    cluster_view.py  brokers, topics, partitions
    records.py       pages of records, and live; batches.py finds them, cells.py makes text of them
    avro/            values in Avro, by the schemas of a registry
    groups_view.py   groups: members, offsets, lag, the last rebalance; lags.py counts the lag of those in a list
    transactions_view.py  transactional ids; producers of a partition, and whose transactions hang
    settings_view.py settings with their documentation
    writing.py       produces a record, changes a setting; partitioning.py finds the partition of a key
    learning.py      the small load of the Learn tab; learning_reader.py is a member of its group
    log_tail.py      the last lines of the log, and how late the event loop is
    turns.py         the time that all of them may take

    static/          plain HTML, CSS and ES modules, served as they are; `app.js` is where the page begins

The page gets JSON and makes text of it (`textContent`), never markup: its Content-Security-Policy allows neither inline scripts nor
markup that is made from strings (Trusted Types), so a record that contains HTML is shown as it is.

Each answer is bounded: lists come in pages with a cursor (`next`), and long work gives way. What this broker does not hold it does
not ask of others: sizes, records and groups are those of this broker, the rest is the cluster as it sees it.
"""
