"""Lake, tap-bridge, target-bridge, lake: real processes and Spark, killed at random, and the copy is the source."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.commit.rollback import roll_back
from tests.support.tables import INTEGER, STRING, WIDE, Shop
from tests.support.tap_bridge import COPY, difference

pytestmark = pytest.mark.timeout(900)

TAP = [sys.executable, "-m", "tap_bridge", "--config", "tap.json", "--state", "state.json"]
TARGET = [sys.executable, "-m", "target_bridge", "--config", "target.json"]
USERS = {"id": {"type": "integer"}, "name": STRING}
STREAMS = ("users", "log", "wide")
_BLOCK = 16_384


class Changing:
    """A source whose tables change in each round: rows added, merged, deleted, replaced, rolled back."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.shop, self.dice, self.round = Shop(root), dice, 0

    def change(self) -> None:
        """Make some commits."""
        self.round += 1
        base, dice, shop = self.round * 100_000, self.dice, self.shop
        ids = {dice.randrange(20_000) for _ in range(3000)}
        deleted = [
            {"id": n, "_sdc_deleted_at": "2025-01-01T00:00:00Z"} for n in range(self.round * 50, self.round * 50 + 40)
        ]
        shop.layout = {"keys": ("id",)}
        columns = USERS | {"_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"}}
        rows = [{"id": n, "name": f"{self.round}-{n}"} for n in ids] + deleted
        shop.load("users", columns, rows, mode="upsert", keys=("id",), hard_delete=True)
        shop.layout = {}
        for part in range(3):
            shop.load("log", {"id": INTEGER}, [{"id": base + part * 1000 + n} for n in range(1000)])
        if self.round % 3 == 0:
            shop._head = roll_back(shop.storage, "shop", shop._head - 1)[1]
        wide = [{"n": base + n, "payload": {"a": [n, None]}, "price": n / 100} for n in range(200)]
        shop.load("wide", WIDE, wide, mode="overwrite" if self.round % 4 == 2 else "append-only")


def _pipe(folder: Path, cut: int | None, victim: str) -> None:
    """Send what is due; after `cut` bytes `kill -9` the tap, or the target with its JVM. Keep the last STATE."""
    with (folder / "states.jsonl").open("ab") as states, (folder / "log").open("ab") as log:
        tap = subprocess.Popen(TAP, cwd=folder, stdout=subprocess.PIPE, stderr=log)
        target = subprocess.Popen(
            TARGET, cwd=folder, stdin=subprocess.PIPE, stdout=states, stderr=log, start_new_session=True
        )
        assert tap.stdout
        assert target.stdin
        passed = 0
        while block := tap.stdout.read(_BLOCK):
            if cut is not None and passed + len(block) > cut:
                block = block[: cut - passed]
            passed += len(block)
            try:
                target.stdin.write(block)
            except BrokenPipeError:
                break
            if passed == cut and victim == "tap":
                tap.kill()
                break
            if passed == cut:
                os.killpg(target.pid, signal.SIGKILL)
                tap.kill()
                break
        with suppress(BrokenPipeError):
            target.stdin.close()
        tap.stdout.close()
        codes = tap.wait(60), target.wait(300)
    if cut is None:
        assert codes == (0, 0), (folder / "log").read_text()[-3000:]
    lines = (folder / "states.jsonl").read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    if whole:
        (folder / "state.json").write_bytes(whole[-1])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["RECORD", "BATCH"])
def test_killed_anywhere_the_copy_is_the_source(tmp_path: Path, form: str) -> None:
    """`KILLS` (6) kills of the tap or the target, of `SEED`, while the source changes: then all tables are equal."""
    seed, kills = int(os.environ.get("SEED", "1")), int(os.environ.get("KILLS", "6"))
    print(f"seed {seed}")
    dice = random.Random(seed)
    source, folder = Changing(tmp_path / "source", dice), tmp_path
    config: dict[str, Any] = {"bucket": str(tmp_path / "source/lake"), "state_every": 500}
    if form == "BATCH":
        config["batch_config"] = {"encoding": {"format": "arrow"}, "storage": {"root": (tmp_path / "files").as_uri()}}
    (folder / "tap.json").write_text(json.dumps(config))
    (folder / "target.json").write_text(json.dumps(COPY | {"bucket": str(folder / "lake"), "batch_size_rows": 1000}))
    (folder / "state.json").write_text("{}")
    source.change()
    for _ in range(kills):
        _pipe(folder, dice.randrange(2000, 700_000 if form == "RECORD" else 12_000), dice.choice(["tap", "target"]))
        source.change()
    _pipe(folder, None, "")
    for stream in STREAMS:
        assert difference(tmp_path / "source", folder, stream) == [], stream
    source.change()
    _pipe(folder, None, "")
    for stream in STREAMS:
        assert difference(tmp_path / "source", folder, stream) == [], stream
