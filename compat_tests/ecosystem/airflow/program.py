"""Airflow's provider for Kafka: its hooks and operators, run without a scheduler: program.py SOURCE COUNT RESULTS.

The connection is in AIRFLOW_CONN_KAFKA_DEFAULT.
"""

import sys
from pathlib import Path

from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook
from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator
from airflow.providers.apache.kafka.operators.produce import ProduceToTopicOperator

source, count, results = sys.argv[1:]


def numbers():
    return ((str(number), str(number * number)) for number in range(int(count)))


def keep(messages):
    with Path(results).open("a") as file:
        file.writelines(f"{message.value().decode()}\n" for message in messages)


KafkaAdminClientHook("kafka_default").create_topic([(source, 2, 1)])
ProduceToTopicOperator(task_id="produce", topic=source, producer_function=numbers).execute({})
ConsumeFromTopicOperator(
    task_id="consume",
    topics=[source],
    apply_function_batch=keep,
    max_batch_size=100,
    max_messages=int(count),
    poll_timeout=30,
    commit_cadence="end_of_batch",
).execute({})
