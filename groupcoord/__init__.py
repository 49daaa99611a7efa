"""Consumer groups and other state machines that live in a partition of an internal topic.

The way in is `ottla.groupcoord.service.GroupCoordinator`; it needs a `runtime.CoordinatorLog` and the topics that exist.
"""
