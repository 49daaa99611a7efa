"""The active controller: carries out what `replication/controller/` decides.

controller_election.py        election of the controller
active_controller.py          the controller from election to resignation
events.py                     its queue of events
decision_writer.py            writes decisions and notifies brokers
controller_channel_manager.py channels to brokers
partition_requests.py         requests about partitions: AlterPartition, elections, reassignments, controlled shutdown
finalized_levels.py           levels of features
tree.py                       writes to the tree, fenced by the controller's epoch
"""
