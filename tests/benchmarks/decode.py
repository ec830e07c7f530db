"""What decoding and writing cost: `python -m tests.benchmarks.decode`. CPU time of one process: others do no harm.

The benchmark's usual records, in slices as a worker gets them; with the compiled reader, if it is installed, and by
the exact path alone, by turns. Told is the median of `--repeat`, in µs a record.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bridge.load.write.context import WriteContext
from bridge.load.write.encoding import encodings
from bridge.protocol.decode import native
from bridge.protocol.decode.decoder import decode
from bridge.protocol.mask.masks import Masks
from bridge.protocol.schema.table_schema import from_singer

from .forms import THIRD
from .inputs import SEED
from .shape import BLOCK_RECORDS, SCHEMA, STREAM, block_lines

SLICE = 10_000
PREFIX = b'{"type":"RECORD","stream":"%s","record":' % STREAM.encode()
FORMS = {"plain": 0, "a field that the SCHEMA lacks, in 1 %": 100, "the same in all": 1}
"""One record of so many has a field too many."""


def slices(records: int, one_in: int) -> list[bytes]:
    """Lines of that form."""
    lines = [line for block in range(-(-records // BLOCK_RECORDS)) for line in block_lines(SEED, block)][:records]
    for number in range(0, records, one_in) if one_in else ():
        message: dict[str, Any] = orjson.loads(lines[number])
        message["record"]["surprise"] = number
        lines[number] = orjson.dumps(message) + b"\n"
    return [b"".join(lines[start : start + SLICE]) for start in range(0, records, SLICE)]


def cpu(work: Callable[[], object]) -> float:
    """User and system seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.decode")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    readers = {"exact": False} | ({"compiled": True} if native.AVAILABLE else {})
    schema = from_singer(SCHEMA, ["id"])
    table = Table("µs a record", *readers)
    for name, one_in in FORMS.items():
        parts = slices(options.records, one_in)
        seconds: dict[str, list[float]] = {reader: [] for reader in readers}
        for _ in range(options.repeat):
            for reader, native.AVAILABLE in readers.items():
                seconds[reader].append(cpu(lambda parts=parts: [decode(part, schema, PREFIX) for part in parts]))
        table.add_row(name, *(f"{median(each) / options.records * 1e6:.2f}" for each in seconds.values()))
    masks, parts = Masks(dict(THIRD), "the key of a benchmark"), slices(options.records, 0)
    seconds = {reader: [] for reader in readers}
    library = native._library
    for _ in range(options.repeat):
        for reader in readers:
            native._library = library if readers[reader] else None
            seconds[reader].append(cpu(lambda: [masks.lines([STREAM], part, PREFIX) for part in parts]))
    native._library = library
    row = (f"{median(each) / options.records * 1e6:.2f}" for each in seconds.values())
    table.add_row("masking a third of the fields, before that", *row)
    rows = pa.concat_tables([decode(part, schema, PREFIX).table for part in slices(options.records, 0)])
    table.add_row("Parquet, each column a dictionary", _written(rows, {"compression": "zstd"}, options.repeat))
    context = WriteContext("", "", "", 1, "", "zstd", {})
    chosen = encodings(rows, "parquet", context)
    table.add_row("Parquet, as we write it", _written(rows, chosen, options.repeat))
    Console().print(table)


def _written(rows: pa.Table, how: dict[str, Any], repeat: int) -> str:
    """The time to write, and the bytes of a row; the reader makes no difference."""
    seconds = []
    for _ in range(repeat):
        sink = io.BytesIO()
        seconds.append(cpu(lambda sink=sink: pq.write_table(rows, sink, row_group_size=len(rows), **how)))
    return f"{median(seconds) / len(rows) * 1e6:.2f}, {sink.tell() / len(rows):.1f} bytes"


if __name__ == "__main__":
    main()
