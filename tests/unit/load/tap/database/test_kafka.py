"""A topic that no longer has what follows a bookmark: the run is refused before the tap skips the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import TapError
from bridge.load.tap.database.kafka import refuse_gaps

_SETTINGS = {"topic": "my orders", "bootstrap_servers": "127.0.0.1:9", "group_id": "g"}
_STATE = {"bookmarks": {"my orders": {f"partition_{n}": {"partition": n, "offset": 7} for n in range(2)}}}


def asked(folder: Path, answer: str) -> None:
    """Look at a topic whose tap has a Python that gives this answer."""
    (folder / "python").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (folder / "python").chmod(0o755)
    refuse_gaps(str(folder / "tap-kafka"), "p", _SETTINGS, _STATE)


@pytest.mark.parametrize("answer", ['{"0": [0, 8], "1": [8, 20]}', "{}", "no JSON", '{"0": null}'])
def test_a_topic_that_has_all_or_says_nothing(tmp_path: Path, answer: str) -> None:
    """The message after the bookmark is there, or nobody knows: the tap starts."""
    asked(tmp_path, answer)
    refuse_gaps(str(tmp_path / "tap-kafka"), "p", _SETTINGS, None)


def test_removed_messages(tmp_path: Path) -> None:
    """The hint moves the bookmarks of all partitions that lost some to what is left."""
    with pytest.raises(TapError, match="removed messages that no run has read") as refused:
        asked(tmp_path, '{"0": [10, 20], "1": [9, 20]}')
    patch = '{"bookmarks": {"my orders": {"partition_0": {"offset": 10}, "partition_1": {"offset": 9}}}}'
    assert f"singer-bridge state merge p '{patch}'" in refused.value.hint


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    """It ends before the bookmark: the hint has both commands, with a name that a shell takes."""
    with pytest.raises(TapError, match="ends before the bookmark") as refused:
        asked(tmp_path, '{"0": [0, 8], "1": [0, 7]}')
    assert "singer-bridge state clear p -s 'my orders'" in refused.value.hint
    assert "singer-bridge run p --full -s 'my orders'" in refused.value.hint
