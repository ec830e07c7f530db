"""Statements for engines that are not on this machine: a parser of each dialect reads in them what we meant."""

from __future__ import annotations

import orjson
import pytest
import sqlglot
from sqlglot import exp

from bridge.errors import SettingsError
from bridge.lake.table_columns import Entry, words
from bridge.operate.readers.ddl import DIALECTS, statement
from bridge.operate.readers.table import Table
from bridge.protocol.schema.table_schema import from_singer
from bridge.settings.values.stores import GcsOptions, S3Options
from tests.support.tables import ODD, WIDE

COLUMNS: list[Entry] = orjson.loads(from_singer({"properties": WIDE}, []).to_json())
ODD_NAMES = {"id", ODD, " lead", "a,b", "été", "Id_2", "select", "1st"}
ODD_COLUMNS: list[Entry] = [{"name": name, "type": "int64"} for name in sorted(ODD_NAMES)]
STATEMENTS = [(dialect, False) for dialect in ("spark", "duckdb", "athena", "trino", "bigquery", "snowflake")]
STATEMENTS += [(dialect, True) for dialect in ("duckdb", "athena", "trino", "bigquery")]


def table(columns: list[Entry] = COLUMNS, folder: str = "shop/orders", bucket: str = "s3://lake") -> Table:
    return Table(folder, columns, bucket, bucket)


def parsed(text: str, dialect: str) -> exp.Create:
    """The statement that makes the table."""
    found = [tree for tree in sqlglot.parse(text, dialect=dialect) if isinstance(tree, exp.Create)]
    return next(tree for tree in found if tree.kind in ("TABLE", "VIEW"))


def columns_of(tree: exp.Create, dialect: str) -> dict[str, str]:
    """Names as the engine will know them, with their types as the dialect writes them."""
    found = tree.find(exp.Schema)
    assert found
    columns = [column for column in found.expressions if isinstance(column, exp.ColumnDef)]
    return {column.name: column.kind.sql(dialect=dialect).upper() for column in columns if column.kind}


TYPES = {
    "spark": {
        "n": "BIGINT",
        "at": "TIMESTAMP",
        "day": "DATE",
        "place": "STRUCT<`X`: BIGINT, `Y Z`: STRING>",
        "lines": "ARRAY<STRUCT<`SKU`: STRING>>",
        "payload": "STRING",
        "price": "DECIMAL(38, 2)",
        "open": "BOOLEAN",
        "ratio": "DOUBLE",
        "grid": "ARRAY<ARRAY<BIGINT>>",
    },
    "trino": {
        "n": "BIGINT",
        "at": "TIMESTAMP(3)",
        "day": "DATE",
        "place": 'ROW("X" BIGINT, "Y Z" VARCHAR)',
        "lines": 'ARRAY(ROW("SKU" VARCHAR))',
        "payload": "VARCHAR",
        "price": "DECIMAL(38, 2)",
        "open": "BOOLEAN",
        "ratio": "DOUBLE",
        "grid": "ARRAY(ARRAY(BIGINT))",
    },
    "bigquery": {
        "n": "INT64",
        "at": "TIMESTAMP",
        "day": "DATE",
        "place": "STRUCT<`X` INT64>",
        "lines": "ARRAY<STRUCT<`SKU` STRING>>",
        "payload": "STRING",
        "price": "BIGNUMERIC(38, 2)",
        "open": "BOOL",
        "ratio": "FLOAT64",
    },
    "snowflake": {
        "n": "DECIMAL(38, 0)",
        "at": "TIMESTAMPLTZ",
        "day": "DATE",
        "place": "VARIANT",
        "lines": "VARIANT",
        "payload": "VARCHAR",
        "price": "DECIMAL(38, 2)",
        "open": "BOOLEAN",
        "ratio": "DOUBLE",
        "grid": "VARIANT",
    },
}


@pytest.mark.parametrize("dialect", TYPES)
def test_types(dialect: str) -> None:
    """Each type of ours is one of the engine's that holds it; structs and lists keep their form."""
    assert columns_of(parsed(statement(table(), dialect), dialect), dialect) == TYPES[dialect]


@pytest.mark.parametrize("manifest", [False, True])
def test_types_of_athena(manifest: bool) -> None:
    """Athena's types are Hive's, which the parser knows under that name."""
    found = columns_of(parsed(statement(table(), "athena", manifest=manifest), "hive"), "hive")
    assert found == TYPES["spark"] | {"place": "STRUCT<`X`: BIGINT>"}


NAMES = {
    "spark": ODD_NAMES,
    "trino": {"id", "été", "Id_2", "select", "1st"},
    "athena": {"id", "Id_2", "select"},
    "bigquery": {"id", "Id_2", "select"},
    "snowflake": ODD_NAMES,
}


@pytest.mark.parametrize("dialect", NAMES)
def test_names(dialect: str) -> None:
    """Every name is quoted for its dialect; one that the engine does not accept is left out, with a comment."""
    text = statement(table(ODD_COLUMNS), dialect)
    assert set(columns_of(parsed(text, dialect), dialect)) == NAMES[dialect]
    said = text.split("CREATE")[0]
    assert all(repr(name) in said for name in ODD_NAMES - NAMES[dialect])
    assert ("left out" in said) == (NAMES[dialect] != ODD_NAMES)


def test_names_inside_structs() -> None:
    """A field that BigQuery cannot name is left out of its struct; a list of lists, which it has not, goes whole."""
    text = statement(table(), "bigquery")
    assert "-- left out, as bigquery has no such names or types: 'place.y z', 'grid'" in text


@pytest.mark.parametrize(("dialect", "manifest"), STATEMENTS)
@pytest.mark.parametrize("bucket", ["s3://lake/team", "/a lake's \\ {1}"])
def test_each_statement_parses(dialect: str, manifest: bool, bucket: str) -> None:
    """Whatever is in the path, the text is a statement of its dialect and the path is in it as one literal."""
    asked = table(folder="shop/it's [1] {2}", bucket=bucket)
    written_in = "athena" if dialect == "trino" and manifest else dialect  # Trino cannot create that table
    trees = sqlglot.parse(statement(asked, dialect, manifest=manifest), dialect=written_in)
    assert not any(isinstance(tree, exp.Command) for tree in trees)  # what the parser gives up on
    literals = [each.this for tree in trees if tree for each in tree.find_all(exp.Literal) if each.is_string]
    ends = {"bigquery": "/*.parquet", "duckdb": "/*.parquet", "athena": "/", "snowflake": "/"}
    where = asked.manifest if manifest else asked.path + ends.get(dialect, "")
    if manifest and dialect in ("athena", "trino"):
        where = f"{asked.symlinks}/"
    globs = {"duckdb": {"[": "[[]"}, "spark": {"\\": "\\\\"} | {sign: f"\\{sign}" for sign in "[]{}"}}.get(dialect, {})
    escaped = "".join(globs.get(sign, sign) for sign in where.removesuffix("/*.parquet"))
    assert any(escaped in literal for literal in literals), literals


def test_bigquery_manifest() -> None:
    """The statement tells BigQuery that the file is a list of files."""
    text = statement(table(bucket="gs://lake"), "bigquery", manifest=True)
    assert "uris = ['gs://lake/.bridge/tables/shop/orders.manifest']" in text
    assert "file_set_spec_type = 'NEW_LINE_DELIMITED_MANIFEST'" in text


def test_hive_manifest() -> None:
    """Athena and Hive are given the folder in which the manifest is alone."""
    text = statement(table(), "athena", manifest=True)
    assert "INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat'" in text
    assert "LOCATION 's3://lake/.bridge/tables/shop/orders.symlinks/'" in text
    assert "trino reads such a table and cannot create it" in statement(table(), "trino", manifest=True)


def test_snowflake_on_google() -> None:
    """Snowflake has its own word for Google's buckets."""
    assert "URL = 'gcs://lake/shop/orders/'" in statement(table(bucket="gs://lake"), "snowflake")


@pytest.mark.parametrize(
    ("dialect", "told"),
    [
        ("duckdb", "CREATE SECRET (TYPE gcs,"),
        ("spark", "gcs-connector"),
        ("polars", '{"google_base_url": "https://gcs.example.com"}'),
        ("pyarrow", 'fs.GcsFileSystem(endpoint_override="gcs.example.com", scheme="https")'),
        ("athena", "copy the bucket, and give --location s3://..."),
        ("bigquery", "uris = ['gs://lake/shop/orders/*.parquet']"),
    ],
)
def test_on_google(dialect: str, told: str) -> None:
    """The statement says what an engine needs to read from Google's store, and names a server that is not Google's."""
    own = GcsOptions(endpoint_url="https://gcs.example.com", credentials_file="/key.json")
    there = Table("shop/orders", COLUMNS, "gs://lake", "gs://lake", gcs=own)
    assert told in statement(there, dialect)
    assert "/key.json" not in statement(there, dialect)
    if "example" in told:
        assert "example" not in statement(table(bucket="gs://lake"), dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_json_text_is_named(dialect: str) -> None:
    """Where columns are listed, a column of JSON text is marked."""
    text = statement(table(), dialect)
    assert ("-- JSON text" in text) == (dialect not in ("duckdb", "polars", "pyarrow"))


@pytest.mark.parametrize(("dialect", "store"), [("athena", "s3"), ("bigquery", "gs"), ("snowflake", "s3")])
def test_local_bucket(dialect: str, store: str) -> None:
    """An engine in the cloud cannot read this machine: its statement starts with what to do."""
    text = statement(table(bucket="/data/lake"), dialect)
    assert f"give --location {store}://..." in text.splitlines()[0]
    assert "--location" not in statement(table(bucket=f"{store}://lake"), dialect)


def test_manifest_of_another_place() -> None:
    """A manifest holds the bucket's own paths: a comment says so under another --location."""
    moved = Table("shop/orders", COLUMNS, "s3://lake", "/data/lake")
    assert "the manifest names files under /data/lake" in statement(moved, "athena", manifest=True)
    assert "the manifest names" not in statement(moved, "athena")


REACHED = S3Options(endpoint_url="http://minio:9000", region="eu-west-1")


@pytest.mark.parametrize(
    ("dialect", "told"),
    [
        ("duckdb", "REGION 'eu-west-1', ENDPOINT 'minio:9000', URL_STYLE 'path', USE_SSL false"),
        ("spark", "spark.hadoop.fs.s3a.endpoint=http://minio:9000"),
        ("polars", '"aws_endpoint_url": "http://minio:9000", "aws_region": "eu-west-1", "aws_allow_http": "true"'),
        ("pyarrow", 'S3FileSystem(endpoint_override="http://minio:9000", region="eu-west-1")'),
        ("athena", "athena reads Amazon's own S3 only, not minio:9000"),
        ("snowflake", "ENDPOINT = 'minio:9000'"),
        ("bigquery", "give --location gs://..."),
    ],
)
def test_where_the_server_is(dialect: str, told: str) -> None:
    """The statement names the server of the settings; for a folder it names none."""
    there = Table("shop/orders", COLUMNS, "s3://lake", "s3://lake", REACHED)
    assert told in statement(there, dialect)
    here = Table("shop/orders", COLUMNS, "/lake", "/lake", REACHED)
    assert "minio" not in statement(here, dialect)


@pytest.mark.parametrize("manifest", [True, False])
def test_polars_lists_by_the_manifest_on_s3(manifest: bool) -> None:
    """Where older files may hold other integers Polars takes the files one by one; it cannot list them on S3."""
    columns: list[Entry] = [{"name": "id", "type": {"decimal": [38, 0]}}]
    text = statement(Table("shop/orders", columns, "s3://lake", "s3://lake", REACHED), "polars", manifest=manifest)
    compile(text, "code", "exec")
    assert 'pl.scan_csv("s3://lake/.bridge/tables/shop/orders.manifest"' in text
    assert "pl.scan_parquet(file, glob=False, storage_options=storage_options) for file in files" in text


def test_notes_of_python_are_comments() -> None:
    """What Spark is told about S3 and a manifest, which is read by Python, does not break that code."""
    text = statement(Table("shop/orders", COLUMNS, "s3://other", "s3://lake", REACHED), "spark", manifest=True)
    compile(text, "code", "exec")
    assert text.splitlines()[0].startswith("# needs hadoop-aws")


@pytest.mark.parametrize(
    ("dialect", "flags", "hint"),
    [
        ("snowflake", {"manifest": True}, "leave the flag out"),
        ("athena", {"view": True}, "athena takes --manifest"),
        ("spark", {"view": True, "manifest": True}, "spark takes --view or --manifest"),
    ],
)
def test_what_an_engine_does_not_have(dialect: str, flags: dict[str, bool], hint: str) -> None:
    """It is refused with what the engine has instead."""
    with pytest.raises(SettingsError) as caught:
        statement(table(), dialect, **flags)
    assert hint in caught.value.hint


@pytest.mark.parametrize("dialect", ["polars", "pyarrow", "spark"])
def test_python_keywords(dialect: str) -> None:
    """A table of a name that means something to Python is read into another variable."""
    text = statement(table(folder="shop/class"), dialect, manifest=True)
    compile(text, "code", "exec")
    assert "class_ = " in text


def test_words() -> None:
    """Types are written as Arrow writes them, without Arrow."""
    schema = from_singer({"properties": WIDE}, []).arrow
    assert [words(entry["type"]) for entry in COLUMNS] == [str(field.type) for field in schema]


@pytest.mark.parametrize(
    ("folder", "name"),
    [("shop/Orders_2", "orders_2"), ("shop/public-flights", "public_flights"), ("a/2024", "t_2024"), ("a/日", "t_")],
)
def test_table_names(folder: str, name: str) -> None:
    """The table has a name that needs no quotes in any engine."""
    assert table(folder=folder).name == name
