"""Stand-ins for the surroundings of a broker: a file system and a coordination ensemble in memory, with faults on request.

Simulations and unit tests use them. No other module of the product may import this package; import-linter checks it.
"""
