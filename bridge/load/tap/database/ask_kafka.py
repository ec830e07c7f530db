"""Asks a Kafka. A program for the Python of the tap, which has the tap's driver.

stdin is a question, as JSON: `servers`, `group`, `topic`, `partitions`. stdout is the answer: for each partition that
could be asked, the first offset that Kafka still has and the one that the next message gets.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

_SECONDS = 5
"""For each partition."""


def main() -> None:
    """Answer what stdin asks. No group is joined, and nothing is committed."""
    question: dict[str, Any] = json.load(sys.stdin)
    driver = importlib.import_module("confluent_kafka")
    consumer = driver.Consumer({"bootstrap.servers": question["servers"], "group.id": question["group"]})
    answer = {}
    for number in question["partitions"]:
        try:
            place = driver.TopicPartition(question["topic"], number)
            answer[number] = consumer.get_watermark_offsets(place, timeout=_SECONDS)
        except driver.KafkaException:
            continue
    consumer.close()
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
