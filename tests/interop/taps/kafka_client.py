"""Asks a broker by kafka-python, which the tap does not use. Run by the Python of a venv that has it.

Arguments: the broker, a verb, a topic. `make N`: a topic of N partitions. `send`: lines of stdin, each [partition, key,
value]. `read`: all messages, a line each. `committed GROUP`: a line of offsets. `remove PARTITION OFFSET`: what is
before that offset. `drop`: the topic. `ask`:
whether it answers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic


def read(broker: str, topic: str) -> list[list[Any]]:
    """Each message of a topic: partition, offset, key and value."""
    consumer = KafkaConsumer(bootstrap_servers=broker, enable_auto_commit=False)
    places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(places)
    consumer.seek_to_beginning()
    ends, found = consumer.end_offsets(places), []
    while any(consumer.position(place) < ends[place] for place in places):
        for batch in consumer.poll(timeout_ms=500).values():
            found += [[m.partition, m.offset, m.key.decode(), m.value and m.value.decode()] for m in batch]
    return found


def main(broker: str, verb: str, topic: str, *rest: str) -> None:
    """Do what the verb says."""
    if verb == "send":
        producer = KafkaProducer(bootstrap_servers=broker)
        for partition, key, value in map(json.loads, sys.stdin):
            text = None if value is None else value.encode()
            producer.send(topic, text, key=key.encode(), partition=partition)
        producer.flush()
    elif verb == "read":
        for message in read(broker, topic):
            print(json.dumps(message))
    elif verb == "committed":
        consumer = KafkaConsumer(bootstrap_servers=broker, group_id=rest[0], enable_auto_commit=False)
        numbers = sorted(consumer.partitions_for_topic(topic))
        print(json.dumps([consumer.committed(TopicPartition(topic, number)) for number in numbers]))
    else:
        admin = KafkaAdminClient(bootstrap_servers=broker)
        if verb == "make":
            admin.create_topics([NewTopic(topic, int(rest[0]), 1)])
        elif verb == "remove":
            admin.delete_records({TopicPartition(topic, int(rest[0])): int(rest[1])})
        elif verb == "drop":
            admin.delete_topics([topic])
        else:
            admin.list_topics()


if __name__ == "__main__":
    main(*sys.argv[1:])
