"""Common parts of consumer, share and streams groups.

group.py       state and epochs
manager.py     base of managers: look-up of groups, records in force at once
assignor.py    assignments, and the input of assignors
describing.py  descriptions
"""
