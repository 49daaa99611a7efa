"""What can go wrong in the protocol, in three kinds.

`ErrorCode` is Kafka's error table: a value that travels in a response. `KafkaError` carries such a code up to where the
response is made. `ProtocolViolation` means bytes that are not the protocol: there is nobody to answer, so the
connection is closed. Any other exception is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Self, TypeVar

MESSAGE_LENGTH_MAX = 8_000  # characters, of at most four bytes each; a string has 32,767 bytes at most


class ErrorCode(IntEnum):
    """Kafka's error codes; `retriable` says whether a client may simply try again, `message` explains the code."""

    retriable: bool
    message: str

    def __new__(cls, code: int, message: str, retriable: bool = False) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = retriable
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The error of a number that a peer sent; one that this table lacks is UNKNOWN_SERVER_ERROR."""
        return cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)  # type: ignore[return-value]

    UNKNOWN_SERVER_ERROR = -1, "The broker failed in an unexpected way."
    NONE = 0, ""
    OFFSET_OUT_OF_RANGE = 1, "The offset is not within the range of offsets this broker holds."
    CORRUPT_MESSAGE = 2, "A record failed its checksum, has a wrong size, or is otherwise damaged.", True
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not host this topic-partition.", True
    INVALID_FETCH_SIZE = 4, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", True
    NOT_LEADER_OR_FOLLOWER = 6, "This broker is not the leader, or not a replica, of the topic-partition.", True
    REQUEST_TIMED_OUT = 7, "The request timed out.", True
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available for the topic-partition.", True
    MESSAGE_TOO_LARGE = 10, "The batch is larger than this topic accepts."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the committed offset is too large."
    NETWORK_EXCEPTION = 13, "The connection ended before a response was received.", True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is loading and cannot answer yet.", True
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available.", True
    NOT_COORDINATOR = 16, "This broker is not the coordinator.", True
    INVALID_TOPIC_EXCEPTION = 17, "The topic name or the operation on this topic is not valid."
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than the segment size of the partition."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than the topic requires.", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but to fewer in-sync replicas than the topic requires.", True
    INVALID_REQUIRED_ACKS = 21, "The number of required acknowledgements must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation is not the current one of the group."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocol type or protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the range the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing, so a rejoin is needed."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offsets to commit are too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "The timestamp of a record is outside the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The version is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name already exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", True
    INVALID_REQUEST = (
        42,
        (
            "This most likely occurs because of a request being malformed by the client library or the message was sent to "
            "an incompatible broker. See the broker logs for more details."
        ),
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format of the log does not allow this."
    POLICY_VIOLATION = 44, "The request violates a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number leaves a gap or goes back."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was seen before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is larger than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, "Another operation on this transaction is still running.", True
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "Security features are turned off."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another operation of the same request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk that holds the log failed.", True
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker holds no state of this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "A partition reassignment is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are turned off."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The broker knows no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal is neither owner nor renewer of the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens are not handled on this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The type of the principal is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "There is no such fetch session.", True
    INVALID_FETCH_SESSION_EPOCH = 71, "The epoch of the fetch session is not the expected one.", True
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name this request came through.", True
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is turned off."
    FENCED_LEADER_EPOCH = 74, "The leader epoch is older than the broker's.", True
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the broker's.", True
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The client does not support the compression of the batch."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The leader's high watermark has not caught up after its election.", True
    MEMBER_ID_REQUIRED = 79, "A member must join again with the id it was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", True
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may become leader is available.", True
    ELECTION_NOT_NEEDED = 84, "Leader election not needed for topic partition.", True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No partition reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic whose offsets were to be deleted."
    INVALID_RECORD = 87, "The broker refused a record."
    UNSTABLE_OFFSET_COMMIT = 88, "Offset commits of an open transaction are pending.", True
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up.", True
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The resource exists already."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The set of voters does not include or does not match the other side."
    INVALID_UPDATE_VERSION = 95, "The update was made for another version."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The principal of a forwarded request could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This server does not host this topic ID.", True
    DUPLICATE_BROKER_REGISTRATION = 101, "A live broker has this id already."
    BROKER_ID_NOT_REGISTERED = 102, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The log belongs to a topic of another id.", True
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session changed between names and ids of topics.", True
    INELIGIBLE_REPLICA = 107, "A new in-sync replica is not eligible."
    NEW_LEADER_ELECTED = 108, "A new leader was elected while the in-sync replicas changed."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is only held in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is not the current one, so it must rejoin."
    UNRELEASED_INSTANCE_ID = 111, "Another member of the group still holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is older than the current one; retry with the newer."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request was sent to an endpoint of the wrong kind."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription of the client has changed."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The registration of the broker is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction failed and must be aborted."
    INVALID_RECORD_STATE = 121, "The state of the record does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "There is no such share session.", True
    INVALID_SHARE_SESSION_EPOCH = 123, "The epoch of the share session is not the expected one.", True
    FENCED_STATE_EPOCH = 124, "The share group's state has a newer epoch."
    INVALID_VOTER_KEY = 125, "The voter's key does not match."
    DUPLICATE_VOTER = 126, "The voter is already one of the voters."
    VOTER_NOT_FOUND = 127, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client must start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The epoch of the topology is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker holds as many share sessions as it may.", True


class KafkaError(Exception):
    """An error of Kafka's table on its way to the response. `message` goes to the client, if there is one.

    It may quote the client's own text, so it is cut to the length of a string of the protocol.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > MESSAGE_LENGTH_MAX:
            message = message[: MESSAGE_LENGTH_MAX - 3] + "..."
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or self.code.message}"


E = TypeVar("E", bound=BaseException)
R = TypeVar("R")


def bare(error: E) -> E:
    """The error as a value, without the frames that it went through.

    They hold whoever keeps it, the request in work with all its records: a circle, which only a full collection of garbage
    would find, and a broker hardly ever makes one.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def result_of(work: Callable[[], R]) -> R | KafkaError:
    """What `work` comes to, or its KafkaError as a value: raised across threads it would be part of a circle."""
    try:
        return work()
    except KafkaError as error:
        return bare(error)


class KeptError:
    """An error for later, or none. It is kept as `bare` has it, and given away when it is raised."""

    __slots__ = ("_error",)

    def __init__(self) -> None:
        self._error: Exception | None = None

    def keep(self, error: Exception) -> None:
        """Raise this one later."""
        self._error = bare(error)

    def raise_it(self) -> None:
        """Raise what was kept, once."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error


class ProtocolViolation(Exception):
    """Bytes of a peer or a file that are not what the protocol says."""
