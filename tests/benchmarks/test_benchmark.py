"""What the benchmark says can be believed: its input, its accounting, its arithmetic. No duration is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import psutil
import pytest

from .bars import Bar, bars_of, marginal_rate, rows_of
from .bench import Run
from .inputs import prepare
from .shape import SCHEMA, block_lines
from .supervise import kind_of

_SUPERVISOR = Path(__file__).with_name("supervise.py")


def test_a_small_input_is_a_prefix_of_a_large_one(tmp_path: Path) -> None:
    """Sizes differ in length only: the lines of the smaller are the first lines of the larger, up to its last STATE."""
    small, large = (prepare(tmp_path, records) for records in (1_500, 12_000))
    lines = small.singer.read_bytes().splitlines()
    assert lines[:-1] == large.singer.read_bytes().splitlines()[: len(lines) - 1]
    assert orjson.loads(lines[-1])["type"] == "STATE"


def test_pieces_hold_exactly_the_record_lines(tmp_path: Path) -> None:
    """The limit reads the same RECORD bytes as everybody else, and no other line."""
    made = prepare(tmp_path, 12_000)
    records = [line for line in made.singer.read_bytes().splitlines() if line.startswith(b'{"type":"RECORD"')]
    assert b"".join(piece.read_bytes() for piece in made.pieces).splitlines() == records
    assert len(records) == 12_000


def test_states_follow_every_ten_thousand_records(tmp_path: Path) -> None:
    """One STATE a block and one at the end, as a tap of the Singer SDK emits them."""
    lines = prepare(tmp_path, 25_000).singer.read_bytes().splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith(b'{"type":"STATE"')] == [
        10_001,
        20_002,
        25_003,
    ]


def test_a_record_has_the_shape_that_the_peers_were_measured_with() -> None:
    """Eleven columns, all of them in the SCHEMA and filled, about 400 bytes a line."""
    lines = block_lines(1, 0)
    records = [orjson.loads(line)["record"] for line in lines]
    assert all(list(record) == list(SCHEMA["properties"]) and len(record) == 11 for record in records)
    assert 380 < sum(map(len, lines)) / len(lines) < 430
    assert len({record["id"] for record in records}) == len(records)


def test_a_seed_gives_the_same_bytes_again() -> None:
    """The input of a benchmark can be made again anywhere; another seed gives other data."""
    assert block_lines(7, 3) == block_lines(7, 3)
    assert block_lines(7, 3) != block_lines(8, 3)


def test_cpu_of_a_process_that_outlives_its_command_is_counted(tmp_path: Path) -> None:
    """A JVM that dies after its Python parent still costs what it cost."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    measured = _supervise(tmp_path, "30", "sh", "-c", f'"{sys.executable}" -c "{burn}" & exit 0')
    assert measured["exit_code"] == 0
    assert measured["cpu_seconds"] >= 0.3


def test_the_time_limit_ends_a_run_and_all_it_started(tmp_path: Path) -> None:
    """A run that hangs becomes exit code 124, and nothing of it is left."""
    measured = _supervise(tmp_path, "0.3", "sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    assert measured["exit_code"] == 124
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text(encoding="ascii")))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            ["/usr/bin/java", "-cp", "/venv/pyspark/jars/*", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
            "jvm",
        ),
        (["bash", "/venv/pyspark/bin/spark-submit", "pyspark-shell"], "other"),
        (["python", "-m", "pyspark.daemon", "pyspark.worker"], "worker"),
        (["python", "-m", "bridge.load.spark.daemon", "pyspark.worker"], "worker"),
        (["python", "/venv/bin/tap-replay", "--config", "c.json"], "tap"),
    ],
)
def test_memory_is_counted_for_the_right_kind_of_process(words: list[str], kind: str) -> None:
    """The script that becomes the JVM is not taken for a worker: the JVM would be counted as one ever after."""
    assert kind_of(words) == kind


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    """A failed run is told from a fast one."""
    assert _supervise(tmp_path, "30", "sh", "-c", "exit 3")["exit_code"] == 3


def test_bars_are_computed_from_medians() -> None:
    """One slow run of three changes no verdict."""
    times = {"ours": (10, 22), "limit": (3, 13), "duckdb": (3, 13), "dataspoc": (17, 68)}
    runs = [
        _run(system, records, repetition, seconds if repetition else seconds * 9)
        for system, pair in times.items()
        for records, seconds in zip((1_000_000, 4_000_000), pair, strict=True)
        for repetition in range(3)
    ]
    runs += [_run("ours", 1_000, 0, 5.5), _run("bare-spark", 1_000, 0, 5.0)]
    rows = rows_of(runs)
    assert marginal_rate(rows, "ours") == pytest.approx(250_000)
    assert [bar.passed for bar in bars_of(rows)] == [True, True, True, True, True]


def test_a_bar_without_its_runs_is_neither_passed_nor_failed() -> None:
    """A missing or failed peer never turns into a victory."""
    failed = Run("dataspoc", 4_000_000, 0, error="exit 1")
    bars = bars_of(rows_of([_run("ours", 4_000_000, 0, 20.0), failed]))
    assert _verdicts(bars)[:4] == [None, None, None, None]


def test_rows_that_came_out_twice_are_not_complete() -> None:
    """A count alone would call one lost and one doubled row correct."""
    good, doubled = _run("ours", 4_000_000, 0, 20.0), _run("dataspoc", 4_000_000, 0, 60.0, distinct=3_999_999)
    assert [row.complete for row in rows_of([good, doubled])] == [True, False]


def _verdicts(bars: list[Bar]) -> list[bool | None]:
    return [bar.passed for bar in bars]


def _run(system: str, records: int, repetition: int, seconds: float, *, distinct: int | None = None) -> Run:
    run = Run(system, records, repetition, wall_seconds=seconds, main_high_water_bytes=90_000_000)
    return replace(run, rows=records, distinct=distinct or records)


def _supervise(folder: Path, timeout: str, *command: str) -> dict[str, float]:
    report = folder / "report.json"
    outputs = [str(folder / "out"), str(folder / "err")]
    subprocess.run([sys.executable, str(_SUPERVISOR), str(report), "-", *outputs, timeout, "--", *command], check=False)
    measured: dict[str, float] = json.loads(report.read_bytes())
    return measured
