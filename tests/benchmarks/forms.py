"""What the form of the data costs: `python -m tests.benchmarks.forms`. Writes `.bench/forms.json`.

Each form is loaded by one `run` of the product, `--repeat` times by turns. Told is its time beyond that of a run of
1,000 records, against the form beside it that is plain; rows are read back and counted.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import from_singer

from .bench import Case, Folders, Run, run_one
from .cli import HOME
from .inputs import SEED, Input, discovered, prepare
from .ours import PIPELINE, Ours, tap_command
from .shape import BLOCK_RECORDS, SCHEMA, STREAM, block_lines
from .system import SMALL_RUN_RECORDS, Job, Launch, Rows

RECORDS = 500_000
"""Of forms of one stream."""


@dataclass(frozen=True, slots=True)
class Form:
    """`write` yields the lines; `beside` is the plain form that it is held against."""

    name: str
    records: int
    write: Callable[[], Iterator[bytes]]
    beside: str = ""
    mask: tuple[tuple[str, str], ...] = ()
    """Fields that are masked, and how."""


@dataclass
class Loads(Ours):
    """A run of which all streams count."""

    mask: tuple[tuple[str, str], ...] = ()

    def launch(self, job: Job) -> Launch:
        """With a settings file where fields are masked."""
        launch = super().launch(job)
        if not self.mask:
            return launch
        source = {"tap": tap_command(), "config": {"path": str(job.input.singer)}, "catalog": str(job.input.catalog)}
        pipeline = {"source": source, "destination": {"bucket": str(job.out / "lake")}}
        pipeline |= {"mask": dict(self.mask), "mask_key": "the key of a benchmark"}
        settings = job.out / "bridge.yaml"
        settings.write_text(json.dumps({"pipelines": {PIPELINE: pipeline}}), encoding="utf-8")
        return replace(launch, command=[launch.command[0], "run", PIPELINE, "--file", settings, "--json"])

    def rows(self, job: Job) -> Rows:
        files = sorted((job.out / "lake" / PIPELINE).rglob("*.parquet"))
        count = sum(ds.dataset(str(file), partitioning=None).count_rows() for file in files)
        return Rows(count, count)


def said(kind: str, **more: Any) -> bytes:
    return orjson.dumps({"type": kind, **more}) + b"\n"


def schema(stream: str = STREAM, columns: dict[str, Any] | None = None) -> bytes:
    properties = columns or SCHEMA["properties"]
    return said("SCHEMA", stream=stream, schema={"type": "object", "properties": properties}, key_properties=[])


def state(number: int) -> bytes:
    return said("STATE", value={"bookmarks": {STREAM: {"id": number}}})


def plain(
    records: int = RECORDS,
    *,
    every: int = BLOCK_RECORDS,
    columns: dict[str, Any] | None = None,
    change: Callable[[dict[str, Any], int], None] | None = None,
) -> Iterator[bytes]:
    """Yield one stream with a STATE after `every` records; `change` is done to each record."""
    yield schema(columns={**SCHEMA["properties"], **(columns or {})})
    for block in range(-(-records // BLOCK_RECORDS)):
        for number, line in enumerate(block_lines(SEED, block), block * BLOCK_RECORDS + 1):
            if number > records:
                return
            if change:
                message = orjson.loads(line)
                change(message["record"], number)
                line = orjson.dumps(message) + b"\n"  # noqa: PLW2901
            yield line
            if number % every == 0 or number == records:
                yield state(number)


def extra(record: dict[str, Any], number: int, *, one_in: int) -> None:
    """Add a field that the SCHEMA does not have: such records are read one by one."""
    if number % one_in == 0:
        record["surprise"] = number


def mixed(record: dict[str, Any], number: int) -> None:
    """Have a number be text now and then."""
    if number % 3 == 0:
        record["amount"] = f"{record['amount']} EUR"


def turns(streams: int, records: int) -> Iterator[bytes]:
    """Yield many streams, whose records come at random."""
    dice, names = random.Random(SEED), [f"s{number}" for number in range(streams)]
    for name in names:
        yield schema(name)
    order = names * (records // streams)
    dice.shuffle(order)
    lines = [line for block in range(-(-records // BLOCK_RECORDS)) for line in block_lines(SEED, block)]
    for name, line in zip(order, lines, strict=False):
        yield line.replace(b'"stream":"orders"', b'"stream":"%s"' % name.encode(), 1)
    yield said("STATE", value={"bookmarks": {name: {"id": 1} for name in names}})


def wide(columns: int, records: int) -> Iterator[bytes]:
    """Yield records of many columns."""
    names = [f"c{number}" for number in range(columns)]
    yield schema(columns={name: {"type": ["null", "integer"]} for name in names})
    for number in range(records):
        yield said("RECORD", stream=STREAM, record=dict.fromkeys(names, number))
    yield state(records)


def heavy(size: int, records: int) -> Iterator[bytes]:
    """Yield records with a text of `size` bytes."""
    yield schema(columns={"id": {"type": "integer"}, "text": {"type": "string"}})
    for number in range(records):
        yield said("RECORD", stream=STREAM, record={"id": number, "text": chr(97 + number % 26) * size})
    yield state(records)


def arrow(records: int) -> Iterator[bytes]:
    """Yield the records as BATCHes whose files are Arrow, of 100,000 rows each."""
    folder, columns = HOME / "inputs/forms/arrow", from_singer(SCHEMA, [])
    folder.mkdir(parents=True, exist_ok=True)
    yield schema()
    for block in range(0, records // BLOCK_RECORDS, 10):
        lines = b"".join(line for one in range(block, block + 10) for line in block_lines(SEED, one))
        rows, file = decode(lines, columns, None).table, folder / f"{block}.arrow"
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        yield said("BATCH", stream=STREAM, encoding={"format": "arrow"}, manifest=[file.resolve().as_uri()])
        yield state((block + 10) * BLOCK_RECORDS)


ANY: dict[str, Any] = {"address": {}, "tags": {}}
THIRD = (("*.email", "hash"), ("*.account_id", "hash"), ("*.name", "redact"), ("*.updated_at", "year"))
EITHER: dict[str, Any] = {"amount": {"type": ["number", "string", "null"]}}
FORMS = (
    Form("plain", RECORDS, plain),
    Form("two columns of any JSON", RECORDS, partial(plain, columns=ANY), "plain"),
    Form("numbers that are text in one of three", RECORDS, partial(plain, columns=EITHER, change=mixed), "plain"),
    Form("a field too many in 1 %", RECORDS, partial(plain, change=partial(extra, one_in=100)), "plain"),
    Form("a field too many in 100 %", RECORDS, partial(plain, change=partial(extra, one_in=1)), "plain"),
    Form("a STATE after each record", RECORDS, partial(plain, every=1), "plain"),
    Form("4 M records", 4_000_000, partial(plain, 4_000_000)),
    Form("4 M records as Arrow", 4_000_000, partial(arrow, 4_000_000), "4 M records"),
    Form("4 M records, a third of the fields masked", 4_000_000, partial(plain, 4_000_000), "4 M records", THIRD),
    Form("one stream of 200,000", 200_000, partial(plain, 200_000)),
    Form("200 streams of 1,000 at random", 200_000, partial(turns, 200, 200_000), "one stream of 200,000"),
    Form("2,000 streams of 10 at random", 20_000, partial(turns, 2_000, 20_000)),
    Form("1,000 columns", 5_000, partial(wide, 1_000, 5_000)),
    Form("records of 10 MB", 40, partial(heavy, 10_000_000, 40)),
)


def made(folder: Path, form: Form) -> Input:
    """Return the form's input, written where it is not there yet."""
    path = folder / f"{(form.beside if form.mask else form.name).replace(' ', '-')}.singer"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb", buffering=1 << 20) as file:
            file.writelines(form.write())
        part.replace(path)
    return discovered(Input(form.records, path, ()))


def main() -> int:
    """Measure, print and keep; 1 where a run failed or lost a row."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.forms")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", action="append", help="the names of forms")
    options = parser.parse_args()
    folders, console = Folders(HOME), Console()
    forms = [form for form in FORMS if not options.only or form.name in options.only]
    inputs = {form.name: made(folders.inputs / "forms", form) for form in forms}
    small = prepare(folders.inputs, SMALL_RUN_RECORDS)
    runs: dict[str, list[Run]] = {form.name: [] for form in forms} | {"": []}
    for repetition in range(options.repeat):
        for name, source in {"": small, **inputs}.items():
            loads = Loads(next((form.mask for form in forms if form.name == name), ()))
            runs[name].append(run := run_one(Case(loads, source.records), source, folders, repetition))
            console.print(f"  {name or 'start'}: {run.error or f'{run.wall_seconds:.2f} s'}", highlight=False)
    start = median(run.wall_seconds for run in runs.pop(""))
    seconds = {name: median(run.wall_seconds for run in mine) for name, mine in runs.items()}
    table = Table("form", "records", "rows out", "wall s", "beyond the start", "x plain", "CPU s", "peak MB")
    found = []
    for form in forms:
        rows, beyond = {run.rows for run in runs[form.name]}, seconds[form.name] - start
        ratio = beyond / (seconds[form.beside] - start) if form.beside in seconds else None
        facts = {"form": form.name, "records": form.records, "wall_seconds": seconds[form.name], "beyond": beyond}
        found.append(facts | {"times_plain": ratio, "exact": rows == {form.records}})
        times = f"{ratio:.2f}" if ratio else "-"
        out = ", ".join(str(count) for count in rows)
        cpu = f"{median(run.cpu_seconds for run in runs[form.name]):.1f}"
        peak = f"{max(run.peak_rss_bytes.get('all', 0) for run in runs[form.name]) / 1e6:.0f}"
        table.add_row(
            form.name, f"{form.records:,}", out, f"{seconds[form.name]:.2f}", f"{beyond:.2f} s", times, cpu, peak
        )
    console.print(table)
    (folders.home / "forms.json").write_text(json.dumps({"start": start, "forms": found}, indent=2) + "\n")
    return int(not all(facts["exact"] for facts in found))


if __name__ == "__main__":
    raise SystemExit(main())
