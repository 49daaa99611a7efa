"""State machines of the controller: each input gives conditional writes and requests to brokers. Sans-IO.

partition_states.py  decides when brokers, disks and topics come and go
partition_table.py   partitions, brokers and disks as the controller knows them
decisions.py         a decision: writes to the tree, and the requests that follow them
leader_election.py   rules of all leader elections: offline, unclean, preferred, reassignment, controlled shutdown
elect_leaders.py     ElectLeaders, and the balance of preferred leaders (auto.leader.rebalance.enable)
alter_partition.py   AlterPartition: accepts or refuses the in-sync replicas that a leader proposes
reassignment.py      moves partitions to other replicas
topic_planner.py     plans of new, larger and deleted topics
"""
