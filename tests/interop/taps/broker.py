"""A Kafka of one node on loopback, from Maven, and a client of it that is not the tap's."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.realtaps import installed
from tests.interop.loopback import free_port, started, wait_for
from tests.interop.maven import java, maven_files

VERSION = "4.1.1"
TAP = "8.2.1"
"""The version of pipelinewise-tap-kafka."""
_CLIENT = Path(__file__).with_name("kafka_client.py")
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True)
class Kafka:
    """A broker of our own."""

    address: str

    def topic(self, name: str, partitions: int = 3) -> None:
        self._ask("make", name, str(partitions))

    def send(self, topic: str, messages: Iterable[tuple[int, str, str | None]]) -> None:
        """Send messages: partition, key, value."""
        self._ask("send", topic, text="".join(json.dumps(message) + "\n" for message in messages))

    def messages(self, topic: str) -> list[list[Any]]:
        """All that the topic has: partition, offset, key and value."""
        return [json.loads(line) for line in self._ask("read", topic).splitlines()]

    def committed(self, topic: str, group: str) -> list[int | None]:
        return list(json.loads(self._ask("committed", topic, group)))

    def remove(self, topic: str, partition: int, before: int) -> None:
        """Remove messages as the broker does when they are too old."""
        self._ask("remove", topic, str(partition), str(before))

    def drop(self, topic: str) -> None:
        self._ask("drop", topic)

    def answers(self) -> bool:
        try:
            self._ask("ask", "")
        except AssertionError:
            return False
        return True

    def _ask(self, verb: str, topic: str, *rest: str, text: str = "") -> str:
        python = installed("kafka-python==3.0.12", "python")
        argv = [python, _CLIENT, self.address, verb, topic, *rest]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def kafka() -> Iterator[Kafka]:
    """Run a broker without topics for the block."""
    jars = maven_files(f"kafka-{VERSION}", f"org.apache.kafka:kafka_2.13:{VERSION}")
    run = [java(17) / "bin/java", "-Xmx512m", "-cp", f"{jars}/*"]
    with tempfile.TemporaryDirectory(prefix="bridge-kafka-") as folder:
        port, settings = free_port(), Path(folder) / "server.properties"
        settings.write_text(_SETTINGS.format(port=port, controller=free_port(), folder=folder))
        made = [*run, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", settings]
        subprocess.run(made, check=True, capture_output=True, timeout=120)
        process = started([*run, "kafka.Kafka", settings], os.environ)
        broker = Kafka(f"127.0.0.1:{port}")
        try:
            wait_for(process, "Kafka", broker.answers)
            yield broker
        finally:
            process.terminate()
            process.wait(60)
