"""Commands about replicas: the brokers and directories that have them, and who leads.

reassign.py      `ottla reassign`: moves of partitions; plans.py: reads plans, throttle.py: limits the traffic
spread.py        `ottla spread`: moves partitions evenly over brokers
elect.py         `ottla elect`: elections of leaders
dirs.py          `ottla dirs`: log directories, and moves between them
reassignment.py  plans moves of partitions, and has them carried out
moves.py         requests about reassignments and elections
"""
