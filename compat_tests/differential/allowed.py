"""The differences from Apache Kafka that are meant, each with its reason. `test_differential.py` finds those nobody needs."""

from compat_tests.differential.comparison import Allowed

ALLOWED: list[Allowed] = [
    Allowed(
        "create_topics/what_the_answer_tells",
        r"main .* topics\[0\]\.configs\[21\]\.config_source",  # min.insync.replicas
        "Kafka's controller sets min.insync.replicas for all brokers by itself, for eligible leader replicas (KIP-966)",
        ottla=5,
    ),
    Allowed(
        "create_partitions/too_many",
        r"main \d+ of 1 results\[0\]\.error_(code|message)",
        "Kafka fails in the middle: it answers UNKNOWN_SERVER_ERROR and keeps 10,000 of the partitions; Ottla refuses all",
    ),
    Allowed(
        "record_batches/lengths_of_compressed_records",
        r"length .* (error_code|base_offset)",
        "Kafka does not look at the lengths of compressed records; such a batch would stop every consumer that reads it",
    ),
    Allowed(
        "record_batches/records_of_*",
        r"length in ten bytes error_code",
        "Kafka answers UNKNOWN_SERVER_ERROR to this one malformed record, because nobody catches the exception there",
        ottla=87,
    ),
    Allowed(
        "record_batches/records_of_*",
        r"in the log records\[0\]\[4\]\[0\]\[0\]",  # the key of a header
        "where Kafka compresses anew, header keys that are not UTF-8 lose their bytes; Ottla keeps what was sent",
    ),
    Allowed(
        "produce/null_records",
        r"main hears nothing yet ",
        "Kafka never answers this request (a null pointer while it makes up the answer); Ottla refuses it",
    ),
    Allowed(
        "*/a_transaction*",
        r"main .*(error_code|error_message|producer_id|producer_epoch)",
        "transactions are not served yet: a transactional id is refused, and no transaction is ever open",
    ),
    Allowed(
        "fetch/*records*",
        r"main .* responses\[0\]\.partitions\[0\]\.records\[\d\]",
        "where records grow as they are converted down, Kafka cuts the last ones off at their former size; they come next",
    ),
]
