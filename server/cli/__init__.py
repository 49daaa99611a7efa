"""The `ottla` command: a module for each subcommand, in rooms by what it is about.

cli.py              finds the subcommand and runs it
command_line.py     exit codes, parsers, settings on the command line
on_cluster.py       common parts of commands that speak to a cluster
changes.py          changes by commands: dry runs, questions, the way back
places.py           options that name partitions, offsets and times
http_service.py     common parts of commands that serve HTTP: `ottla registry`, `ottla rest`
client/             client of a cluster of any make
administration/     topics, groups, transactions, settings and features of a cluster
records/            writes, reads and measures records
generation/         generated test data
replicas/           where replicas are and who leads: moves between brokers and directories, elections
security/           rules, users, quotas, tokens, certificates
inspection/         looks into data directories, and says why things happened
completion.py       `ottla completion`: for shells
help.py             `ottla help`: prints the help of commands, or pages for man
settings.py         `ottla settings`: explains settings
start.py            `ottla start`: runs a broker
stop.py             `ottla stop`: stops a broker
cluster.py          `ottla cluster`: several brokers on this machine
ping.py             `ottla ping`: does a broker answer
example.py          `ottla example`: example pipelines
spark.py            `ottla spark`: versions of Spark and of its connector
spark_submit.py     `ottla spark-submit`: runs Spark with its connector
"""
