"""What a view costs a run: `python -m tests.benchmarks.views --help`.

A lake gets `rows` rows, of `keys` keys; a copy of it gets a view, which the first run fills. Then both get the same
changes, by turns: `changes` rows more, appended, or upserted (nine of ten with ids that are there, anywhere). Printed
are the seconds and the CPU seconds of the whole command `singer-bridge run`, medians of the rounds, and the median of
the rounds' ratios. The aim is at most 1.5 for an append, 2 for an upsert. 10 M rows take 3 GB of disk in --home.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import bridge

from .ours import tap_command
from .venvs import own_program

_WINDOW = "window(timestamp_seconds(at DIV 100), '10 minutes', '1 minute').start"
_SLIDING = f"SELECT {_WINDOW} AS k, count(*) AS n, sum(v) AS total FROM items GROUP BY 1"
_VIEWS = {
    "keys": "SELECT k, count(*) AS n, sum(v) AS total, max(v) AS best, max_by(note, at) AS note, avg(v) AS mean"
    " FROM items GROUP BY k",
    "sliding": _SLIDING,
    "closing": f"{_SLIDING}\n-- singer-bridge: keep: 36500d, lateness: 1m",
    "distinct": "SELECT k, count(*) AS n, sum(v) AS total, count(DISTINCT note) AS notes FROM items GROUP BY k",
    "sessions": "SELECT k, session_window(timestamp_seconds(at DIV 100), '5 minutes').start AS since, count(*) AS n,"
    " sum(v) AS total FROM items GROUP BY k, since",
}
"""The sliding ones have each row in ten windows."""
_SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "k": {"type": "integer"},
        "v": {"type": "integer"},
        "at": {"type": "integer"},
        "note": {"type": "string"},
    }
}
_METHODS = {"append": "append-only", "upsert": "upsert"}
_STATES = 100_000
_SUPERVISE = Path(__file__).with_name("supervise.py")


def _messages(ids: list[int] | range, seed: int, keys: int) -> Iterator[str]:
    dice = random.Random(seed)
    yield json.dumps({"type": "SCHEMA", "stream": "items", "schema": _SCHEMA, "key_properties": ["id"]})
    for number, id_ in enumerate(ids, 1):
        k, v, at = dice.randrange(keys), dice.randrange(10**6), seed * 10**9 + number
        row = f'{{"id":{id_},"k":{k},"v":{v},"at":{at},"note":"{dice.getrandbits(48):x}"}}'
        yield f'{{"type":"RECORD","stream":"items","record":{row}}}'
        if number % _STATES == 0:
            yield f'{{"type":"STATE","value":{{"seed":{seed},"row":{number}}}}}'
    yield f'{{"type":"STATE","value":{{"seed":{seed},"row":{len(ids)}}}}}'


def _project(folder: Path, kind: str, view: str = "") -> None:
    destination = {"bucket": str(folder / "lake"), "load_method": _METHODS[kind]}
    source = {"tap": tap_command(), "config": {"path": str(folder.parent / "input.singer")}, "discover": "never"}
    views = {"by_k": _VIEWS[view]} if view else {}
    folder.mkdir(parents=True)
    pipeline = {"source": source, "destination": destination, "views": views}
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"bench": pipeline}}), encoding="utf-8")


def _run(folder: Path) -> dict[str, float]:
    """Run the pipeline of a folder once."""
    report, streams = folder / "report.json", (folder / "out.txt", folder / "err.txt")
    command = [own_program("singer-bridge"), "run"]
    subprocess.run([sys.executable, _SUPERVISE, report, "-", *streams, "3600", "--", *command], check=True, cwd=folder)
    return {name: value for name, value in json.loads(report.read_bytes()).items() if name.endswith("_seconds")}


def _check(lake: Path, view: str) -> None:
    """Compare the view with its SELECT, in sums."""
    windows = 10 if view in ("sliding", "closing") else 1
    opened = bridge.Lake(str(lake))
    rows, groups = opened.table("bench", "items").to_table(["k", "v"]), opened.table("bench", "by_k").to_table()
    assert windows * rows.num_rows == pc.sum(groups["n"]).as_py()
    assert windows * pc.sum(rows["v"]).as_py() == pc.sum(groups["total"]).as_py()
    assert view not in ("keys", "distinct") or pc.count_distinct(rows["k"]).as_py() == groups.num_rows


def measured(home: Path, kind: str, view_kind: str, rows: int, keys: int, changes: int, rounds: int) -> dict[str, Any]:
    """Return the figures of one load method."""
    folders = {view: home / kind / ("with" if view else "without") for view in (False, True)}
    source, dice, figures = home / kind / "input.singer", random.Random(1), {False: [], True: []}  # type: ignore[var-annotated]
    for number in range(rounds + 2):
        if number == 0:
            ids: list[int] | range = range(rows)
            _project(folders[False], kind)
        else:
            new = range(rows + number * changes, rows + (number + 1) * changes)
            old = dice.sample(range(rows), changes * 9 // 10) if kind == "upsert" else []
            ids = [*old, *new[: changes - len(old)]]
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _messages(ids, number, keys))
        if number == 0:
            figures[False].append(_run(folders[False]))
            _project(folders[True], kind, view_kind)
            shutil.copytree(folders[False] / "lake", folders[True] / "lake")
            continue
        for view in (False, True) if number % 2 else (True, False):
            figures[view].append(_run(folders[view]))
    _check(folders[True] / "lake", view_kind)
    load, fill = figures[False].pop(0), figures[True].pop(0)
    figures[False].pop(0)  # of the round in which the view was filled
    result: dict[str, Any] = {"kind": kind, "view": view_kind, "rows": rows, "keys": keys, "changes": changes}
    for name in load:
        pairs = [(one[name], other[name]) for one, other in zip(figures[False], figures[True], strict=True)]
        result[name] = {
            "load": round(load[name], 1),
            "fill": round(fill[name], 1),
            "without": round(statistics.median(one for one, _ in pairs), 2),
            "with": round(statistics.median(other for _, other in pairs), 2),
            "ratio": round(statistics.median(other / one for one, other in pairs), 2),
        }
    return result


def main() -> None:
    """Print the figures, a JSON object a load method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(_METHODS))
    parser.add_argument("--view", choices=list(_VIEWS), default="keys")
    parser.add_argument("--home", help="a folder for the lakes; each is deleted at its end")
    asked = parser.parse_args()
    for kind in [asked.only] if asked.only else _METHODS:
        with tempfile.TemporaryDirectory(dir=asked.home) as folder:
            figures = measured(Path(folder), kind, asked.view, asked.rows, asked.keys, asked.changes, asked.rounds)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
