"""The Python that reads a table: with Polars, pyarrow, or Spark where SQL cannot do it.

The code names the columns of the commit log, so a column that an older file lacks is null. It reads the table's folder,
or the files that its manifest lists. Credentials are the reader's own matter.
"""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

from bridge.lake.table_columns import Entry, item_of, struct_of
from bridge.operate.readers.engines import SPARK
from bridge.operate.readers.stores import store_of, variable_of
from bridge.operate.readers.table import Table, inside

_PYARROW = {
    "int64": "pa.int64()",
    "float64": "pa.float64()",
    "bool": "pa.bool_()",
    "string": "pa.string()",
    "date32": "pa.date32()",
    "timestamp[us, UTC]": 'pa.timestamp("us", "UTC")',
}
_POLARS = {
    "int64": "pl.Int64",
    "float64": "pl.Float64",
    "bool": "pl.Boolean",
    "string": "pl.String",
    "date32": "pl.Date",
    "timestamp[us, UTC]": 'pl.Datetime("us", "UTC")',
}

SPARK_FOLDERS = "recursiveFileLookup"
"""Spark's option for files in folders whose names are not columns."""

_OPTIONS = "storage_options"
"""Polars' own word for where an object store is; a variable in the code has this name, too."""


def text(value: str) -> str:
    """A literal. A JSON string is Python, too, in the quotes that formatters want."""
    return json.dumps(value, ensure_ascii=False)


def variable(name: str) -> str:
    """A name for a variable."""
    return f"{name}_" if keyword.iskeyword(name) else name


def spark_glob(path: str) -> str:
    """The path with glob characters escaped: Spark reads every path as a glob."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def spark_by_manifest(table: Table) -> str:
    """Code for a session `spark`; its SQL can read a manifest only with Hive."""
    schema = ", ".join(f"{SPARK.name(entry['name'])} {SPARK.type(entry['type'])}" for entry in table.columns)
    folders = f".option({text(SPARK_FOLDERS)}, True)" if table.partitioned else ""
    return (
        "import re\n\n"
        f"schema = {text(schema)}\n"
        f"lines = spark.read.text({text(spark_glob(table.manifest))}).collect()\n"
        'files = [re.sub(r"([][{}*?\\\\])", r"\\\\\\1", line.value) for line in lines]  # paths are globs to Spark\n'
        f"{variable(table.name)} = spark.read.schema(schema){folders}.parquet(*files)"
    )


def pyarrow(table: Table) -> str:
    """Code that makes a dataset of the folder."""
    # By default pyarrow skips folders that begin with `_`, such as those of a partition by a column `_x`.
    prefixes = ', ignore_prefixes=["."]' if table.partitioned else ""
    path = inside(table.path) if store_of(table.path) else table.path
    return _pyarrow(table, "", text(path) + prefixes)


def pyarrow_by_manifest(table: Table) -> str:
    """Code that makes a dataset of the files that the manifest lists."""
    if not store_of(table.manifest):
        return _pyarrow(table, _listed(table.manifest), "files")
    scheme, _, place = table.own.partition("://")
    own = f'removeprefix("{scheme}://")'
    if "@" in place:
        own = f"replace({text(table.own)}, {text(inside(table.own).rstrip('/'))}, 1)"
    files = (
        f"with {variable_of(table.manifest)}.open_input_stream({text(inside(table.manifest))}) as manifest:\n"
        f"    files = [line.{own} for line in manifest.read().decode().splitlines()]\n"
    )
    return _pyarrow(table, files, "files")


def polars(table: Table) -> str:
    """Code that makes a lazy frame of the folder; of a folder in a bucket that it must list, by the manifest."""
    stored = store_of(table.path) is not None
    if stored and _may_mix_integers(table.columns):
        return polars_by_manifest(table)
    if _may_mix_integers(table.columns):
        below = "**/" if table.partitioned else ""
        return _polars_joined(table, f'files = sorted(Path({text(table.path)}).glob("{below}*.parquet"))\n')
    if stored:  # the slash makes it a folder, not an object
        return _polars_scan(table, _polars_options(table), text(f"{table.path}/"), partitioned=table.partitioned)
    return _polars_scan(table, "", text(table.path), partitioned=table.partitioned)


def polars_by_manifest(table: Table) -> str:
    """Code that makes a lazy frame of the files that the manifest lists."""
    manifest = table.manifest
    files = _polars_listed(manifest, _polars_options(table)) if store_of(manifest) else _listed(manifest)
    if _may_mix_integers(table.columns):
        return _polars_joined(table, files)
    return _polars_scan(table, files, "files", partitioned=False)


def _listed(manifest: str) -> str:
    opened = f'open({text(manifest)}, encoding="utf-8")'
    return f"with {opened} as manifest:\n    files = manifest.read().splitlines()\n"


def _pyarrow(table: Table, files: str, source: str) -> str:
    fields = "".join(f"    {_pyarrow_field(entry)},\n" for entry in table.columns)
    imported = opened = given = ""
    if store := store_of(table.path):
        name = variable_of(table.path)
        arguments = ", ".join(f"{key}={text(value)}" for key, value in store.filesystem_arguments(table).items())
        imported, given = "from pyarrow import fs\n", f", filesystem={name}"
        opened = f"{name} = fs.{store.FILE_SYSTEM}({arguments})\n"
    return (
        f"import pyarrow as pa\nimport pyarrow.dataset as ds\n{imported}\n{opened}{files}"
        f"schema = pa.schema([\n{fields}])\n"
        f"{variable(table.name)} = ds.dataset({source}, schema=schema{given})"
    )


def _pyarrow_field(entry: Entry) -> str:
    return f"({text(entry['name'])}, {_pyarrow_type(entry['type'])})"


def _pyarrow_type(type_: Any) -> str:
    if (fields := struct_of(type_)) is not None:
        return f"pa.struct([{', '.join(map(_pyarrow_field, fields))}])"
    if (item := item_of(type_)) is not None:
        return f"pa.list_({_pyarrow_type(item['type'])})"
    return _PYARROW[type_] if isinstance(type_, str) else "pa.decimal128({}, {})".format(*type_["decimal"])


def _may_mix_integers(columns: list[Entry]) -> bool:
    """Whether a decimal of today may be int64 in older files: one scan of Polars cannot read both."""
    return '"decimal": [38, 0]' in json.dumps([entry["type"] for entry in columns])


def _polars_options(table: Table) -> str:
    """The line that says where the server is; empty if Polars finds it without."""
    store = store_of(table.bucket)
    options = store.storage_options(table) if store else {}
    pairs = ", ".join(f"{text(key)}: {text(value)}" for key, value in options.items())
    return f"{_OPTIONS} = {{{pairs}}}\n" if pairs else ""


def _polars_listed(manifest: str, options: str) -> str:
    """Code that reads a manifest in a bucket as a table of one column, as Python cannot open it."""
    given = f", {_OPTIONS}={_OPTIONS}" if options else ""
    read = f'{text(manifest)}, has_header=False, separator="\\x01", quote_char=None{given}'
    return f"{options}listed = pl.scan_csv({read})\nfiles = listed.collect().to_series().to_list()\n"


def _polars_scan(table: Table, files: str, source: str, *, partitioned: bool) -> str:
    folders = "    hive_partitioning=False,\n" if partitioned else ""
    given = f"    {_OPTIONS}={_OPTIONS},\n" if files.startswith(_OPTIONS) else ""
    return (
        f"import polars as pl\n\n{files}schema = {{\n{_polars_columns(table.columns)}}}\n"
        f"{variable(table.name)} = pl.scan_parquet(\n"
        f"    {source},\n"
        "    schema=schema,\n"
        f"    glob=False,\n{folders}"
        '    missing_columns="insert",\n'
        '    cast_options=pl.ScanCastOptions(missing_struct_fields="insert"),\n'
        f"{given})"
    )


def _polars_joined(table: Table, files: str) -> str:
    given = f", {_OPTIONS}={_OPTIONS}" if files.startswith(_OPTIONS) else ""
    imports = "from pathlib import Path\n\n" if "Path(" in files else ""
    return (
        f"{imports}import polars as pl\n\n{files}schema = {{\n{_polars_columns(table.columns)}}}\n"
        f"frames = [pl.scan_parquet(file, glob=False{given}) for file in files]\n"
        f'{variable(table.name)} = pl.concat(frames, how="diagonal_relaxed").select(schema.keys()).cast(schema)'
    )


def _polars_columns(columns: list[Entry]) -> str:
    return "".join(f"    {_polars_field(entry)},\n" for entry in columns)


def _polars_field(entry: Entry) -> str:
    return f"{text(entry['name'])}: {_polars_type(entry['type'])}"


def _polars_type(type_: Any) -> str:
    if (fields := struct_of(type_)) is not None:
        return "pl.Struct({" + ", ".join(map(_polars_field, fields)) + "})"
    if (item := item_of(type_)) is not None:
        return f"pl.List({_polars_type(item['type'])})"
    return _POLARS[type_] if isinstance(type_, str) else "pl.Decimal({}, {})".format(*type_["decimal"])
