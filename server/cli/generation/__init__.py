"""Generated test data, with the result that a job has to find.

generate.py  `ottla generate`: writes it to a cluster and to files
kinds.py     kinds of data; their changes of a table also as SQL
arrival.py   order of arrival: late, doubled, poisonous
avro.py      values in Avro
"""
