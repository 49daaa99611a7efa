"""Generated test data, with the result that a job has to find.

kinds.py       kinds of data
arrival.py     order of arrival: late, doubled, poisonous
avro.py        values in Avro
statements.py  changes of a table as SQL
"""
