"""Datasets whose files Python opens: an engine that reads them never waits for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_READS = 100
"""Each may hang pyarrow's own dataset; of 200, one in three runs did."""
_PROGRAM = """
import sys, threading
import duckdb
import pyarrow as pa, pyarrow.dataset as ds
from pyarrow import fs
from bridge.read.query.dataset import PythonDataset

class Files(fs.FileSystemHandler):
    def get_type_name(self):
        return "test"
    def normalize_path(self, path):
        return path
    def get_file_info(self, paths):
        return [fs.FileInfo(path, fs.FileType.File) for path in paths]
    def open_input_file(self, path):
        return pa.OSFile(path)
    def refuse(self, *args, **options):
        raise NotImplementedError
    open_input_stream = open_input_file
    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = refuse

def start_threads():
    while True:
        thread = threading.Thread(target=bool)
        thread.start()
        thread.join()

sys.setswitchinterval(1e-6)
threading.Thread(target=start_threads, daemon=True).start()
schema, files, reads = pa.schema([("a", pa.int64())]), sys.argv[2:], int(sys.argv[1])
for _ in range(reads):
    dataset = PythonDataset.of(files, schema, Files())
    with duckdb.connect() as connection:
        connection.register("rows", dataset)
        assert len(connection.execute("SELECT a FROM rows").fetchall()) == 50 * len(files)
print("read", flush=True)
"""


def _write(folder: Path) -> list[str]:
    files = [str(folder / f"{number}.parquet") for number in range(40)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"a": range(50 * number, 50 * number + 50)}), file, row_group_size=10)
    return files


def test_a_reader_never_waits_for_a_thread_that_waits_for_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(_READS), *_write(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == "read\n", ended.stderr
