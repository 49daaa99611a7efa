"""Commands that write and read records.

produce.py           `ottla produce`: sends records
consume.py           `ottla consume`: prints records; bounds.py: where it begins and ends
consume_in_group.py  `ottla consume -g`: records that a group assigns
consume_shared.py    `ottla consume --share`: records of a share group
paced_output.py      output of a member of a group, and signals
formats.py           formats of `ottla consume`; printing.py: prints batches by them
bench.py             `ottla bench`: measures a cluster
"""
