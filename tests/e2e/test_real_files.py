"""Taps of files, of DynamoDB and of web services as people have them, against sources of our own with odd data.

Each table is compared with its source as another reader has it: csv, boto3, json. `make taps` runs them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.s3server import S3Server

from .filesources import dynamodb_endpoints, github, people_api, sftp_server
from .realtaps import Project, installed

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

FILES = {
    "in/a.csv": "id,name,zip,note\r\n"
    '1,"Smith, ""J""",00501,\r\n2,"two\nlines",01234,x\r\n3,,00000,""\r\n4,Zoë 🚀,7,"  "\r\n',
    "in/b.csv": "id,name,zip,note,colour\n5,five,1_000,x,red\n6,six,+8,NULL,blue,more,most\n7,seven\n8,eight,-0,,\n",
}
S3_CSV = "tap-s3-csv==2.3.1"
WISE = "pipelinewise-tap-s3-csv==3.0.1"


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def files(store: S3Server) -> Iterator[Any]:
    """A client of a bucket `files` with nothing in it."""
    store.bucket("files")
    client = store.client()
    for each in client.list_objects_v2(Bucket="files").get("Contents", []):
        client.delete_object(Bucket="files", Key=each["Key"])
    yield client
    store.clear()


def put(client: Any, **texts: str) -> None:
    for name, text in texts.items():
        client.put_object(Bucket="files", Key=f"in/{name}.csv", Body=text.encode())


def project(folder: Path, tap: Path, config: dict[str, Any], env: dict[str, str] | None = None, **keys: Any) -> Project:
    """A project whose streams have these keys, with its catalog; the tap is not asked again."""
    made = Project(folder, tap, config)
    source = {"tap": str(tap), "config": config, "select": ["*"], "discover": "never", "env": env or {}}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": {"*": keys} if keys else {}}
    (folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    done = made.command("discover", "p")
    assert done.code == 0, done.err
    return made


def of_s3(folder: Path, package: str, store: S3Server, **keys: Any) -> Project:
    table = {"table_name": "things", "search_prefix": "in/", "search_pattern": r"\.csv$", "key_properties": ["id"]}
    common = {"start_date": "2020-01-01T00:00:00Z", "bucket": "files"}
    if package == WISE:
        login = {"aws_access_key_id": "testing", "aws_secret_access_key": "very-secret-key"}
        config = {**common, **login, "aws_endpoint_url": store.endpoint, "tables": [table]}
    else:
        role = {"account_id": "1", "external_id": "x", "role_name": "r"}
        config = {**common, **role, "tables": json.dumps([table | {"key_properties": "id"}])}
    return project(folder, installed(package, "tap-s3-csv"), config, **keys)


def run(made: Project, *arguments: str) -> Any:
    done = made.command("run", "p", "--json", *arguments)
    assert done.code == 0, done.err
    return json.loads(done.out)


def read(*texts: str) -> dict[int, dict[str, Any]]:
    """The rows of CSV files, by id, as Python reads them."""
    rows = [row for text in texts for row in csv.DictReader(io.StringIO(text, newline=""), restkey="more")]
    return {int(row["id"]): row for row in rows}


def names(made: Project) -> dict[int, Any]:
    rows = made.rows("things", "id, name", order="try_cast(id as bigint)")
    assert len(rows) == len({int(number) for number, _ in rows})
    return {int(number): name for number, name in rows}


@pytest.mark.parametrize("package", [S3_CSV, WISE])
def test_files_of_s3(tmp_path: Path, store: S3Server, files: Any, package: str) -> None:
    """Each row is there once, also after a file was rewritten, and a second run without news loads nothing."""
    put(files, a=FILES["in/a.csv"], b=FILES["in/b.csv"])
    made = of_s3(tmp_path, package, store, load_method="upsert", lookback="1s")
    assert run(made)["streams"]["things"]["rejected"] == 0
    source = read(*FILES.values())
    assert names(made) == {number: row["name"] for number, row in source.items()}
    if package == WISE:  # it sends text; tap-s3-csv makes numbers of what looks like one
        zips = dict(made.rows("things", "id, zip"))
        assert zips == {str(number): row["zip"] for number, row in source.items()}
    put(files, a="id,name,zip,note\n1,changed,1,\n", c="id,name,zip,note\n9,nine,1,\n")
    run(made)
    assert names(made) == {number: row["name"] for number, row in source.items()} | {1: "changed", 9: "nine"}


def test_a_table_of_files_that_each_run_replaces(tmp_path: Path, store: S3Server, files: Any) -> None:
    """All files are read again, not only the new ones: the tap is started without its bookmark."""
    put(files, a=FILES["in/a.csv"], b=FILES["in/b.csv"])
    made = of_s3(tmp_path, S3_CSV, store, replication_method="FULL_TABLE")
    run(made)
    put(files, c="id,name,zip,note\n9,nine,1,\n")
    files.delete_object(Bucket="files", Key="in/b.csv")
    run(made)
    assert sorted(names(made)) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("package", [S3_CSV, WISE])
def test_a_run_killed_between_two_files_of_one_second(
    tmp_path: Path, store: S3Server, files: Any, package: str
) -> None:
    """kill -9 of everything: the second file has the bookmark's time, and its rows are there all the same."""
    while True:
        put(files, a=FILES["in/a.csv"], b=FILES["in/b.csv"])
        if len({each["LastModified"] for each in files.list_objects_v2(Bucket="files")["Contents"]}) == 1:
            break
    made = of_s3(tmp_path, package, store, load_method="append-only")
    store.fault("hold", "GET /files/in/b.csv")
    command = [sys.executable, "-m", "bridge", "run", "p"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        store.wait_for_held()
        os.killpg(process.pid, signal.SIGKILL)
    store.clear()
    run(made)
    assert names(made) == {number: row["name"] for number, row in read(*FILES.values()).items()}


def test_files_of_sftp(tmp_path: Path) -> None:
    """Compressed ones, too; of a file that the tap cannot read it says so, and the run that its rows are missing."""
    with sftp_server(tmp_path) as (config, folder):
        (folder / "a.csv").write_bytes(FILES["in/a.csv"].encode())
        (folder / "b.csv.gz").write_bytes(gzip.compress(FILES["in/b.csv"].encode()))
        table = {"table_name": "things", "search_prefix": str(folder), "search_pattern": "csv", "delimiter": ","}
        tables = json.dumps([table | {"key_properties": ["id"]}])
        settings = config | {"start_date": "2020-01-01T00:00:00Z", "tables": tables}
        made = project(tmp_path, installed("tap-sftp==1.3.0", "tap-sftp"), settings)
        assert run(made)["streams"]["things"]["rejected"] == 0
        source = read(*FILES.values())
        assert names(made) == {number: row["name"] for number, row in source.items()}
        (folder / "gone.csv").symlink_to("/nowhere")
        os.utime(folder / "gone.csv", (4e9, 4e9), follow_symlinks=False)
        [difference] = run(made)["differences"]
        assert (difference["stream"], difference["kind"]) == ("things", "skipped_file")
        assert "gone.csv" in difference["text"]


def test_dynamodb(tmp_path: Path, store: S3Server) -> None:
    """Digits, bytes, sets and maps as they are; keys are text, and a table without a method is never silent."""
    import boto3

    client = boto3.client("dynamodb", endpoint_url=store.endpoint)
    key = [("id", "HASH", "S"), ("n", "RANGE", "N")]
    client.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind, _ in key],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": type_} for name, _, type_ in key],
        BillingMode="PAY_PER_REQUEST",
    )
    long = "12345678901234567890123456789012345678"
    odd = {"big": {"N": long}, "bin": {"B": b"\x00\xff"}, "m": {"M": {"k": {"L": [{"N": "0.1"}, {"NULL": True}]}}}}
    for item in ({"n": {"N": "1"}, **odd}, {"n": {"N": long}}, {"n": {"N": "0.1"}, "e": {"S": ""}}):
        client.put_item(TableName="orders", Item={"id": {"S": "ü"}, **item})
    config = {"account_id": "123456789012", "external_id": "xxx", "role_name": "reader", "region_name": "us-east-1"}
    tap, env = installed("tap-dynamodb==1.4.0", "tap-dynamodb"), dynamodb_endpoints(tmp_path, store.endpoint)
    made = project(tmp_path, tap, config, env)
    [difference] = run(made)["differences"]
    assert (difference["kind"], difference["rows"]) == ("no_rows", 3)
    text = (tmp_path / "bridge.yaml").read_text()
    (tmp_path / "bridge.yaml").write_text(
        text.replace("streams: {}", "streams: {orders: {replication_method: FULL_TABLE}}")
    )
    assert run(made)["differences"] == []
    rows = {
        n: extra and json.loads(extra, parse_float=str, parse_int=str)
        for n, extra in made.rows("orders", "n, _sdc_extra", order="n")
    }
    assert rows == {"1": {"big": long, "bin": "AP8=", "m": {"k": ["0.1", None]}}, long: None, "0.1": {"e": ""}}
    client.delete_item(TableName="orders", Key={"id": {"S": "ü"}, "n": {"N": "1"}})
    run(made)
    assert [n for (n,) in made.rows("orders", "n", order="n")] == ["0.1", long]


def test_a_rest_service(tmp_path: Path) -> None:
    """Pages, an answer of 500, a row twice; a field that the tap drops is a difference with its name."""
    with people_api() as (url, people):
        stream = {"name": "people", "path": "/people", "records_path": "$.data[*]", "primary_keys": ["id"]}
        pages = {"pagination_request_style": "offset_paginator", "pagination_response_style": "offset"}
        pages |= {"pagination_page_size": 100, "pagination_initial_offset": 0}
        tap = installed("tap-rest-api-msdk==1.4.2", "tap-rest-api-msdk", "setuptools<81")
        made = project(tmp_path, tap, {"api_url": url, **pages, "streams": [stream]}, load_method="upsert")
        [difference] = run(made)["differences"]
        assert (difference["kind"], "late" in difference["text"]) == ("ignored_fields", True)
        rows = made.rows("people", "id, name, address_city")
        assert rows == [(one["id"], str(one["name"]), "Delft") for one in people]


def test_children_on_github(tmp_path: Path) -> None:
    """The tap sends the reviews of pull requests that changed, and calls that FULL_TABLE: the other reviews stay."""
    with github() as (url, change):
        config = {"api_url_base": url, "organizations": ["o"], "start_date": "2020-01-01T00:00:00Z"}
        tap = installed("meltanolabs-tap-github==1.30.1", "tap-github")
        made = project(tmp_path, tap, config)
        text = (tmp_path / "bridge.yaml").read_text()
        (tmp_path / "bridge.yaml").write_text(text.replace("- '*'", "- pull_requests\n      - reviews"))
        assert run(made)["streams"]["reviews"]["load_method"] == "overwrite"
        change(2)
        second = run(made)["streams"]["reviews"]
        assert (second["load_method"], second["records"]) == ("upsert", 100)
        bodies = dict(made.rows("reviews", "id, body"))
        assert len(bodies) == 150
        assert bodies[1002] == "review of 2, at 2024-02-01T00:00:00Z"
