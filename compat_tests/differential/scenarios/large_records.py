"""Looking for times among compressed records that a topic would no longer take, because its limit became smaller."""

from compat_tests.differential.asking_administration import SET, TOPIC, alter, settle
from compat_tests.differential.asking_reading import append
from compat_tests.differential.asking_records import read_back
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.scenarios.compression import AREA, CODECS, compressed

from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

SIZE = len(AREA) // 3 - 2
FIRST_TIME = 1_000_000
MAX_TIMESTAMP = -3


# What is found does not depend on the version; 7 brought the offset of the highest time.
@scenario(ListOffsetsRequest, versions="7-8")
def times_of_large_records(talk: Talk) -> None:
    for codec in CODECS:
        topic = talk.topic(codec.name)
        append(talk, topic, compressed(codec))
        for limit in (SIZE, SIZE - 1):
            name = "max.decompressed.message.bytes"
            talk.do(alter(((TOPIC, topic.name), [(name, SET, str(limit))])))
            settle(talk, (TOPIC, topic.name), max_decompressed_message_bytes=str(limit))
            for time in (FIRST_TIME, FIRST_TIME + 1, FIRST_TIME + 2, FIRST_TIME + 3, MAX_TIMESTAMP, -1, -2):
                asked = ListOffsetsTopic(
                    name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=time)]
                )
                request = ListOffsetsRequest(replica_id=-1, topics=[asked])
                talk.ask(request, label=f"{codec.name}, {limit - SIZE} from the size, time {time}")
        read_back(talk, topic)
