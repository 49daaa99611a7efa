"""The `ottla` command: a module for each subcommand.

cli.py              finds the subcommand and runs it
command_line.py     exit codes, parsers, settings on the command line
on_cluster.py       common parts of commands that speak to a cluster
http_service.py     common parts of commands that serve HTTP: `ottla registry`, `ottla rest`
client/             client of a cluster of any make
inspection/         looks into data directories
generation/         generated test data
acls.py             `ottla acls`: rules of the authorizer
bench.py            `ottla bench`: measures a cluster
certificates.py     `ottla certificates`: makes certificates
changes.py          changes by commands: dry runs, questions, the way back
check.py            `ottla check`: examines data directories
cluster.py          `ottla cluster`: several brokers on this machine
completion.py       `ottla completion`: for shells
configs.py          `ottla configs`: settings in force
consume.py          `ottla consume`: prints records
consume_in_group.py  `ottla consume -g`: records that a group assigns
consume_shared.py   `ottla consume --share`: records of a share group
dirs.py             `ottla dirs`: log directories, and moves between them
elect.py            `ottla elect`: elections of leaders
example.py          `ottla example`: example pipelines
features.py         `ottla features`: levels of features
generate.py         `ottla generate`: makes test data
groups.py           `ottla groups`: groups and their offsets; group_members.py: their members; group_changes.py: reset, delete
help.py             `ottla help`: prints the help of commands
man_pages.py        `ottla help --man`: pages for man
logs.py             `ottla logs`: dumps log files
ping.py             `ottla ping`: does a broker answer
places.py           options that name partitions and offsets
produce.py          `ottla produce`: sends records
quotas.py           `ottla quotas`: quotas of users, client ids and addresses
reassign.py         `ottla reassign`: moves of partitions; plans.py: reads plans, throttle.py: limits the traffic
settings.py         `ottla settings`: explains settings
spark.py            `ottla spark`: versions of Spark and of its connector
spark_submit.py     `ottla spark-submit`: runs Spark with its connector
spread.py           `ottla spread`: moves partitions evenly over brokers
start.py            `ottla start`: runs a broker
status.py           `ottla status`: is the cluster well
tokens.py           `ottla tokens`: delegation tokens
stop.py             `ottla stop`: stops a broker
topics.py           `ottla topics`: lists, creates, deletes, describes; topic_changes.py: alters and trims
transactions.py     `ottla transactions`: lists and describes them, finds those that hang, aborts some
users.py            `ottla users`: users of SCRAM
why.py              `ottla why`: why members were removed and writes refused; what became of an offset
"""
