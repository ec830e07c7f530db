"""pipelinewise-tap-kafka over a real Kafka: each message is in the lake once, as kafka-python reads them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.realtaps import Project, installed
from tests.interop.taps.broker import TAP, Kafka, kafka

pytestmark = pytest.mark.timeout(900)
_NASTY = {
    "twice": '{"i": 1, "i": 2}',
    "list": "[1, [2]]",
    "scalar": "5",
    "null": "null",
    "nested": '{"i": "text now", "Ключ": {"a": [1, "x", null], "a.b": {}}, "": "\\u0000"}',
    "gone": None,
    "k0": '{"again": 18446744073709551615}',
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with kafka() as running:
        yield running


@pytest.fixture
def shop(broker: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose topic has the name of its folder, three partitions, and nasty messages after plain ones."""
    newer = tmp_path / "overrides.txt"
    newer.write_text(
        "orjson>=3.10\ngrpcio-tools>=1.60\nprotobuf>=4\n"
    )  # those that it names have no files for Python 3.11
    monkeypatch.setenv("UV_OVERRIDE", str(newer))
    tap = installed(f"pipelinewise-tap-kafka=={TAP}", "tap-kafka")
    topic = tmp_path.name
    broker.topic(topic)
    broker.send(topic, plain(0, 3000))
    broker.send(topic, [(0, key, value) for key, value in _NASTY.items()])
    settings = {"bootstrap_servers": broker.address, "group_id": topic, "topic": topic, "commit_interval_ms": 1}
    settings |= {"initial_start_time": "beginning", "consumer_timeout_ms": 10000}
    return Project(tmp_path, tap, settings)


def plain(first: int, end: int) -> list[tuple[int, str, str | None]]:
    return [(n % 3, f"k{n}", json.dumps({"i": n, "x": n / 4, "s": "Zoë 😀"})) for n in range(first, end)]


def set_up(shop: Project, **keys: Any) -> None:
    """Each message a row, or by `keys` the last one of each key."""
    pipeline = {"source": {"tap": str(shop.tap), "config": shop.config, "select": ["*"]}, "streams": {"*": keys}}
    pipeline["destination"] = {"bucket": "lake"}
    (shop.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"p": pipeline}}))


def run(shop: Project) -> None:
    done = shop.command("run", "p", "--json")
    assert done.code == 0, done.err


def differing(shop: Project, broker: Kafka, *, is_by_key: bool = True) -> list[Any]:
    """The messages that the lake has otherwise than the broker, or not, or more than once."""
    topic = shop.config["topic"]
    rows = shop.rows(topic, "message_partition, message_offset, message_key, message", "1, 2")
    messages = sorted(broker.messages(topic))
    if is_by_key:
        messages = sorted({key: [part, at, key, text] for part, at, key, text in messages}.values())
    lake = [(part, at, key, text and json.loads(text)) for part, at, key, text in rows]
    there = [(part, at, key, text and json.loads(text)) for part, at, key, text in messages]
    return [pair for pair in zip(lake, there, strict=False) if pair[0] != pair[1]] + [len(lake) - len(there) or None]


def test_messages_and_tombstones(shop: Project, broker: Kafka) -> None:
    """Two runs, messages of all kinds between them: the last one of each key, and no tap that says nothing."""
    set_up(shop)
    run(shop)
    assert differing(shop, broker) == [None]
    broker.send(shop.config["topic"], [*plain(3000, 3030), (0, "k3", None), (0, "k6", '{"i": "another type"}')])
    run(shop)
    assert differing(shop, broker) == [None]


def test_each_message_is_a_row(shop: Project, broker: Kafka) -> None:
    """By partition and offset the log itself is in the lake, the message at the bookmark once."""
    set_up(shop, key_properties=["message_partition", "message_offset"])
    run(shop)
    # The tap sends no last STATE behind an empty message, so the third run has messages of the second again.
    broker.send(
        shop.config["topic"], [*plain(0, 30), *((n, "empty", text) for n, text in enumerate((None, "{}", "[]")))]
    )
    for _ in range(2):
        run(shop)
        assert differing(shop, broker, is_by_key=False) == [None]


@pytest.mark.parametrize("begin", ["beginning", "earliest"])
def test_kill(shop: Project, broker: Kafka, begin: str) -> None:
    """kill -9 of all, once Kafka has the tap's offsets and the lake has no commit: the next run loads every message."""
    shop.config["initial_start_time"] = begin
    set_up(shop)
    argv = [sys.executable, "-m", "bridge", "run", "p"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(argv, cwd=shop.folder, **quiet) as killed:  # type: ignore[call-overload]
        while killed.poll() is None and not all(broker.committed(shop.config["topic"], shop.config["group_id"])):
            pass
        os.killpg(killed.pid, signal.SIGKILL)
    run(shop)
    assert differing(shop, broker) == [None]


def test_a_partition_that_was_empty(shop: Project, broker: Kafka) -> None:
    """By default the tap begins it at its newest message; a run after the first commit has all that came."""
    topic = shop.config["topic"] = f"{shop.config['topic']}-late"
    broker.topic(topic)
    broker.send(topic, [(0, "first", '{"i": 0}')])
    set_up(shop)
    run(shop)
    del shop.config["initial_start_time"]
    set_up(shop)
    broker.send(topic, plain(0, 300))
    run(shop)
    assert differing(shop, broker) == [None]


def test_messages_that_were_removed(shop: Project, broker: Kafka) -> None:
    """The run is refused before the tap skips what is left; what it says loads that."""
    topic = shop.config["topic"]
    set_up(shop, key_properties=["message_partition", "message_offset"])
    run(shop)
    broker.send(topic, plain(3000, 3300))
    broker.remove(topic, 1, 1050)
    done = shop.command("run", "p")
    assert done.code == 1
    assert "Kafka has removed messages that no run has read" in done.err
    patch = json.dumps({"bookmarks": {topic: {"partition_1": {"offset": 1050}}}})
    assert f"singer-bridge state merge p '{patch}'" in done.err
    assert shop.command("state", "merge", "p", patch).code == 0
    run(shop)
    offsets = [at for (at,) in shop.rows(topic, "message_offset", "1") if at >= 1000]
    assert sorted(set(offsets)) == [*range(1000, 1107)] and len(shop.rows(topic, "1", "1")) == 3307 - 50


def test_a_topic_that_was_made_anew(shop: Project, broker: Kafka) -> None:
    """The run is refused, as the tap would begin behind the new messages."""
    topic = shop.config["topic"]
    set_up(shop)
    run(shop)
    broker.drop(topic)
    while broker_has(broker, topic):
        pass
    broker.topic(topic)
    broker.send(topic, [(n, f"new{n}", "{}") for n in range(3)])
    done = shop.command("run", "p")
    assert done.code == 1
    assert f"singer-bridge run p --full -s {topic}" in done.err
    assert shop.command("run", "p", "--full", "-s", topic, "--no-guard").code == 0
    assert differing(shop, broker) == [None]


def broker_has(broker: Kafka, topic: str) -> bool:
    try:
        broker.messages(topic)
    except AssertionError:
        return False
    return True
