"""Who may describe the quorum and forget brokers, controllers and voters: each request with and without the right."""

from compat_tests.differential.asking_rights import Right, everybody_asks
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.logins import SECURED
from compat_tests.differential.scenarios.quorum import NOBODY, added, described, removed
from compat_tests.differential.scenarios.rights_to_records import CLUSTER, DESCRIBE
from compat_tests.differential.scenarios.rights_to_the_cluster import ALTER

from ottla.wire.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)


@scenario(DescribeQuorumRequest, "2", settings=SECURED)
def describing_a_quorum_of_another_name(talk: Talk) -> None:
    everybody_asks(talk, described("no quorum"), Right(DESCRIBE, CLUSTER))


@scenario(AddRaftVoterRequest, settings=SECURED)
def adding_a_voter(talk: Talk) -> None:
    everybody_asks(talk, added(None), Right(ALTER, CLUSTER))


@scenario(RemoveRaftVoterRequest, settings=SECURED)
def removing_a_voter(talk: Talk) -> None:
    everybody_asks(talk, removed(None), Right(ALTER, CLUSTER))


@scenario(UnregisterBrokerRequest, settings=SECURED)
def unregistering_a_broker(talk: Talk) -> None:
    everybody_asks(talk, UnregisterBrokerRequest(broker_id=NOBODY), Right(ALTER, CLUSTER))


@scenario(UnregisterControllerRequest, settings=SECURED)
def unregistering_a_controller(talk: Talk) -> None:
    everybody_asks(talk, UnregisterControllerRequest(controller_id=NOBODY), Right(ALTER, CLUSTER))
