"""The Python that reads a table: by Polars, by pyarrow, and by Spark where SQL cannot say it.

Each is given the columns that the commit log knows, so that what an older file lacks is null. `path` is the table's
folder, `manifest` the file that lists the table's files; one of the two is what the code reads.
"""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

from bridge.tables.columns import Entry, item_of, struct_of
from bridge.tables.engines import SPARK

__all__ = ["polars", "polars_by_manifest", "pyarrow", "pyarrow_by_manifest", "spark_by_manifest", "spark_glob"]

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


def _text(text: str) -> str:
    """Return a literal; what JSON writes is Python, too, and in the quotes that formatters want."""
    return json.dumps(text, ensure_ascii=False)


def _variable(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def spark_glob(path: str) -> str:
    """Return the path as Spark reads it: as a glob, whatever it names."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def spark_by_manifest(name: str, columns: list[Entry], manifest: str) -> str:
    """Return code for a session `spark`: its SQL could read a manifest with Hive only."""
    schema = ", ".join(f"{SPARK.name(entry['name'])} {SPARK.type(entry['type'])}" for entry in columns)
    return (
        "import re\n\n"
        f"schema = {_text(schema)}\n"
        f"lines = spark.read.text({_text(spark_glob(manifest))}).collect()\n"
        'files = [re.sub(r"([][{}*?\\\\])", r"\\\\\\1", line.value) for line in lines]  # paths are globs to Spark\n'
        f"{_variable(name)} = spark.read.schema(schema).parquet(*files)"
    )


def pyarrow(name: str, columns: list[Entry], path: str) -> str:
    """Return code that makes a dataset of the folder."""
    return _pyarrow(name, columns, "", _text(path))


def pyarrow_by_manifest(name: str, columns: list[Entry], manifest: str) -> str:
    """Return code that makes a dataset of the files that the manifest lists."""
    return _pyarrow(name, columns, _listed(manifest), "files")


def polars(name: str, columns: list[Entry], path: str) -> str:
    """Return code that makes a lazy frame of the folder."""
    if _may_mix_integers(columns):
        return _polars_joined(name, columns, f'files = sorted(Path({_text(path)}).glob("*.parquet"))\n')
    return _polars_scan(name, columns, "", _text(path))


def polars_by_manifest(name: str, columns: list[Entry], manifest: str) -> str:
    """Return code that makes a lazy frame of the files that the manifest lists."""
    if _may_mix_integers(columns):
        return _polars_joined(name, columns, _listed(manifest))
    return _polars_scan(name, columns, _listed(manifest), "files")


def _listed(manifest: str) -> str:
    opened = f'open({_text(manifest)}, encoding="utf-8")'
    return f"with {opened} as manifest:\n    files = manifest.read().splitlines()\n"


def _pyarrow(name: str, columns: list[Entry], files: str, source: str) -> str:
    fields = "".join(f"    {_pyarrow_field(entry)},\n" for entry in columns)
    return (
        f"import pyarrow as pa\nimport pyarrow.dataset as ds\n\n{files}"
        f"schema = pa.schema([\n{fields}])\n"
        f"{_variable(name)} = ds.dataset({source}, schema=schema)"
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


def _polars_scan(name: str, columns: list[Entry], files: str, source: str) -> str:
    return (
        f"import polars as pl\n\n{files}schema = {{\n{_polars_columns(columns)}}}\n"
        f"{_variable(name)} = pl.scan_parquet(\n"
        f"    {source},\n"
        "    schema=schema,\n"
        "    glob=False,\n"
        '    missing_columns="insert",\n'
        '    cast_options=pl.ScanCastOptions(missing_struct_fields="insert"),\n'
        ")"
    )


def _polars_joined(name: str, columns: list[Entry], files: str) -> str:
    imports = "from pathlib import Path\n\n" if "Path(" in files else ""
    return (
        f"{imports}import polars as pl\n\n{files}schema = {{\n{_polars_columns(columns)}}}\n"
        "frames = [pl.scan_parquet(file, glob=False) for file in files]\n"
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
