"""The Python that reads a table: by Polars, by pyarrow, and by Spark where SQL cannot say it.

Each is given the columns that the commit log knows, so that what an older file lacks is null. `path` is the table's
folder, `manifest` the file that lists the table's files; one of the two is what the code reads. `s3` says how the
bucket is reached where it is one of S3; keys are the reader's own matter.
"""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

from bridge.lake.table_columns import Entry, item_of, struct_of
from bridge.maintain.readers.engines import SPARK
from bridge.settings.values.s3options import S3Options

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
"""Spark's option for files in folders whose names are no columns."""

_S3 = "s3://"
_OPTIONS = "storage_options"
"""Polars' own word for where an object store is; a variable of the code is called so, too."""


def _text(text: str) -> str:
    """Return a literal; what JSON writes is Python, too, and in the quotes that formatters want."""
    return json.dumps(text, ensure_ascii=False)


def _variable(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def spark_glob(path: str) -> str:
    """Return the path as Spark reads it: as a glob, whatever it names."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def spark_by_manifest(name: str, columns: list[Entry], manifest: str, *, partitioned: bool = False) -> str:
    """Return code for a session `spark`: its SQL could read a manifest with Hive only."""
    schema = ", ".join(f"{SPARK.name(entry['name'])} {SPARK.type(entry['type'])}" for entry in columns)
    folders = f".option({_text(SPARK_FOLDERS)}, True)" if partitioned else ""
    return (
        "import re\n\n"
        f"schema = {_text(schema)}\n"
        f"lines = spark.read.text({_text(spark_glob(manifest))}).collect()\n"
        'files = [re.sub(r"([][{}*?\\\\])", r"\\\\\\1", line.value) for line in lines]  # paths are globs to Spark\n'
        f"{_variable(name)} = spark.read.schema(schema){folders}.parquet(*files)"
    )


def pyarrow(name: str, columns: list[Entry], path: str, s3: S3Options, *, partitioned: bool = False) -> str:
    """Return code that makes a dataset of the folder."""
    # By itself it passes over folders that begin with `_`, as those of a partition by a column `_x` do.
    source = _text(path.removeprefix(_S3)) + (', ignore_prefixes=["."]' if partitioned else "")
    return _pyarrow(name, columns, "", source, s3 if path.startswith(_S3) else None)


def pyarrow_by_manifest(name: str, columns: list[Entry], manifest: str, s3: S3Options) -> str:
    """Return code that makes a dataset of the files that the manifest lists."""
    if not manifest.startswith(_S3):
        return _pyarrow(name, columns, _listed(manifest), "files", None)
    files = (
        f"with s3.open_input_stream({_text(manifest.removeprefix(_S3))}) as manifest:\n"
        f'    files = [line.removeprefix("{_S3}") for line in manifest.read().decode().splitlines()]\n'
    )
    return _pyarrow(name, columns, files, "files", s3)


def polars(
    name: str, columns: list[Entry], path: str, manifest: str, s3: S3Options, *, partitioned: bool = False
) -> str:
    """Return code that makes a lazy frame of the folder; it cannot list one of S3, and then goes by the manifest."""
    if path.startswith(_S3) and _may_mix_integers(columns):
        return polars_by_manifest(name, columns, manifest, s3)
    if _may_mix_integers(columns):
        below = "**/" if partitioned else ""
        return _polars_joined(name, columns, f'files = sorted(Path({_text(path)}).glob("{below}*.parquet"))\n')
    if path.startswith(_S3):  # a folder, and no object, by its slash
        return _polars_scan(name, columns, _polars_options(s3), _text(f"{path}/"), partitioned=partitioned)
    return _polars_scan(name, columns, "", _text(path), partitioned=partitioned)


def polars_by_manifest(name: str, columns: list[Entry], manifest: str, s3: S3Options) -> str:
    """Return code that makes a lazy frame of the files that the manifest lists."""
    files = _polars_listed(manifest, _polars_options(s3)) if manifest.startswith(_S3) else _listed(manifest)
    if _may_mix_integers(columns):
        return _polars_joined(name, columns, files)
    return _polars_scan(name, columns, files, "files")


def _listed(manifest: str) -> str:
    opened = f'open({_text(manifest)}, encoding="utf-8")'
    return f"with {opened} as manifest:\n    files = manifest.read().splitlines()\n"


def _pyarrow(name: str, columns: list[Entry], files: str, source: str, s3: S3Options | None) -> str:
    fields = "".join(f"    {_pyarrow_field(entry)},\n" for entry in columns)
    imported = opened = given = ""
    if s3:
        said = {"endpoint_override": s3.endpoint_url, "region": s3.region}
        arguments = ", ".join(f"{key}={_text(value)}" for key, value in said.items() if value)
        imported, opened, given = "from pyarrow import fs\n", f"s3 = fs.S3FileSystem({arguments})\n", ", filesystem=s3"
    return (
        f"import pyarrow as pa\nimport pyarrow.dataset as ds\n{imported}\n{opened}{files}"
        f"schema = pa.schema([\n{fields}])\n"
        f"{_variable(name)} = ds.dataset({source}, schema=schema{given})"
    )


def _pyarrow_field(entry: Entry) -> str:
    return f"({_text(entry['name'])}, {_pyarrow_type(entry['type'])})"


def _pyarrow_type(type_: Any) -> str:
    if (fields := struct_of(type_)) is not None:
        return f"pa.struct([{', '.join(map(_pyarrow_field, fields))}])"
    if (item := item_of(type_)) is not None:
        return f"pa.list_({_pyarrow_type(item['type'])})"
    return _PYARROW[type_] if isinstance(type_, str) else "pa.decimal128({}, {})".format(*type_["decimal"])


def _may_mix_integers(columns: list[Entry]) -> bool:
    """Whether older files may hold as int64 what is a decimal now, which one scan of Polars does not bring together."""
    return '"decimal": [38, 0]' in json.dumps([entry["type"] for entry in columns])


def _polars_options(s3: S3Options) -> str:
    """Return the line that says where the server is, empty for what Polars finds by itself."""
    said = {"aws_endpoint_url": s3.endpoint_url, "aws_region": s3.region}
    if s3.endpoint_url and s3.endpoint_url.startswith("http:"):
        said["aws_allow_http"] = "true"
    written = ", ".join(f"{_text(key)}: {_text(value)}" for key, value in said.items() if value)
    return f"{_OPTIONS} = {{{written}}}\n" if written else ""


def _polars_listed(manifest: str, options: str) -> str:
    """Return code that reads the manifest, which is no file to Python, as a table of one column."""
    given = f", {_OPTIONS}={_OPTIONS}" if options else ""
    read = f'{_text(manifest)}, has_header=False, separator="\\x01", quote_char=None{given}'
    return f"{options}listed = pl.scan_csv({read})\nfiles = listed.collect().to_series().to_list()\n"


def _polars_scan(name: str, columns: list[Entry], files: str, source: str, *, partitioned: bool = False) -> str:
    folders = "    hive_partitioning=False,\n" if partitioned else ""
    given = f"    {_OPTIONS}={_OPTIONS},\n" if files.startswith(_OPTIONS) else ""
    return (
        f"import polars as pl\n\n{files}schema = {{\n{_polars_columns(columns)}}}\n"
        f"{_variable(name)} = pl.scan_parquet(\n"
        f"    {source},\n"
        "    schema=schema,\n"
        f"    glob=False,\n{folders}"
        '    missing_columns="insert",\n'
        '    cast_options=pl.ScanCastOptions(missing_struct_fields="insert"),\n'
        f"{given})"
    )


def _polars_joined(name: str, columns: list[Entry], files: str) -> str:
    given = f", {_OPTIONS}={_OPTIONS}" if files.startswith(_OPTIONS) else ""
    imports = "from pathlib import Path\n\n" if "Path(" in files else ""
    return (
        f"{imports}import polars as pl\n\n{files}schema = {{\n{_polars_columns(columns)}}}\n"
        f"frames = [pl.scan_parquet(file, glob=False{given}) for file in files]\n"
        f'{_variable(name)} = pl.concat(frames, how="diagonal_relaxed").select(schema.keys()).cast(schema)'
    )


def _polars_columns(columns: list[Entry]) -> str:
    return "".join(f"    {_polars_field(entry)},\n" for entry in columns)


def _polars_field(entry: Entry) -> str:
    return f"{_text(entry['name'])}: {_polars_type(entry['type'])}"


def _polars_type(type_: Any) -> str:
    if (fields := struct_of(type_)) is not None:
        return "pl.Struct({" + ", ".join(map(_polars_field, fields)) + "})"
    if (item := item_of(type_)) is not None:
        return f"pl.List({_polars_type(item['type'])})"
    return _POLARS[type_] if isinstance(type_, str) else "pl.Decimal({}, {})".format(*type_["decimal"])
