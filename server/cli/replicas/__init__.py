"""Commands about replicas: the brokers and directories that have them, and who leads.

reassign.py  `ottla reassign`: moves of partitions
spread.py    `ottla spread`: moves partitions evenly over brokers
elect.py     `ottla elect`: elections of leaders
dirs.py      `ottla dirs`: log directories, and moves between them
plans.py     plans of moves: even ones, and those that are given
moves.py     requests about reassignments and elections, and the throttle
"""
