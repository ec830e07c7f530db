"""A lake that lost files, or is not there at all: the next run says so before its tap starts, and what to type."""

from __future__ import annotations

import os
import shutil
from typing import Any

import duckdb
import pytest
import yaml
from deltalake import DeltaTable

from tests.e2e.conftest import TAP, Project, stream
from tests.support.s3server import S3Server
from tests.support.shell import Done

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("in_process")]


def settle(project: Project, users: int, **destination: Any) -> None:
    """Write bridge.yaml: `users` is appended to, `full` is overwritten."""
    streams = [stream(records=users), stream("full", 20, replication_method="FULL_TABLE")]
    source = {"tap": TAP, "config": {"seed": 1, "streams": streams}, "select": ["*"]}
    pipeline = {"source": source, "destination": {"bucket": "lake", **destination}}
    (project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"shop": pipeline}}))


def run(project: Project, *arguments: str) -> Done:
    return project.command("run", "shop", "--json", *arguments, timeout=300)


def ids(project: Project, table: str, form: str) -> list[int]:
    folder = project.lake / "shop" / table
    if form == "delta":
        rows: list[int] = DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist()
        return sorted(rows)
    return [row[0] for row in duckdb.sql(f"select id from '{folder}/*.parquet' order by id").fetchall()]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_table_whose_folder_was_deleted(project: Project, form: str) -> None:
    """No run goes on beside the hole: exit code 3, nothing written; `--full -s` loads that table anew."""
    settle(project, 100, format=form)
    assert (first := run(project)).code == 0, first.err
    shutil.rmtree(project.lake / "shop/users")
    settle(project, 150, format=form)
    refused = run(project)
    assert refused.code == 3
    assert "users: 1 file of its table is gone" in refused.json["error"]["message"]
    assert "singer-bridge run shop --full -s users" in refused.json["error"]["hint"]
    assert refused.json["state"] == first.json["state"]
    assert project.command("verify", "shop").code == 3
    again = run(project, "--full", "-s", "users")
    assert again.code == 0, again.err
    assert any("this run replaces the table" in warning for warning in again.json["warnings"])
    assert ids(project, "users", form) == list(range(1, 151))
    assert ids(project, "full", form) == list(range(1, 21))
    assert (done := project.command("verify", "shop")).code == 0, done.out


def test_a_lake_that_is_not_mounted(project: Project) -> None:
    """The folder below the mount stays empty, and the run goes on where it was when the lake is back."""
    settle(project, 100)
    assert (first := run(project)).code == 0, first.err
    project.lake.rename(project.folder / "elsewhere")
    project.lake.mkdir()
    for done in (run(project), run(project, "--dry-run")):
        assert done.code == 3
        assert "the lake is empty, and this project has written commit 1, on 20" in done.err
        assert "singer-bridge run shop --full" in done.err
    looked = project.command("verify", "shop")
    assert (looked.code, "all is well" in looked.out) == (3, False)
    assert "mount it, or restore it" in looked.out
    assert project.command("verify", "shop", "--repair").code == 3
    assert not list(project.lake.rglob("*"))
    project.lake.rmdir()
    (project.folder / "elsewhere").rename(project.lake)
    settle(project, 120)
    assert (second := run(project)).code == 0, second.err
    assert second.json["state_before"] == first.json["state"]
    assert ids(project, "users", "parquet") == list(range(1, 121))


def test_a_lake_that_was_deleted_on_purpose(project: Project) -> None:
    """What the error says starts over; a project that never wrote to the lake is asked nothing."""
    settle(project, 30)
    assert (never := project.command("verify", "shop")).code == 0
    assert "nothing to verify: the lake has no commit of shop" in never.out
    assert run(project).code == 0
    shutil.rmtree(project.lake)
    assert run(project).code == 3
    assert (done := run(project, "--full")).code == 0, done.err
    assert ids(project, "users", "parquet") == list(range(1, 31))


def test_a_table_whose_objects_were_deleted(project: Project, s3_server: S3Server) -> None:
    """The same of a bucket, by one listing a table."""
    s3_server.clear()
    s3_server.bucket("lost")
    project.environ = dict(os.environ)
    settle(project, 100, bucket="s3://lost/team")
    assert (first := run(project)).code == 0, first.err
    store = s3_server.client()
    delete(store, "team/shop/users/")
    refused = run(project)
    assert refused.code == 3
    assert "users: 1 file of its table is gone" in refused.json["error"]["message"]
    delete(store, "team/")
    refused = run(project)
    assert refused.code == 3
    assert "the lake is empty, and this project has written commit 1" in refused.json["error"]["message"]


def delete(store: Any, prefix: str) -> None:
    for item in store.list_objects_v2(Bucket="lost", Prefix=prefix)["Contents"]:
        store.delete_object(Bucket="lost", Key=item["Key"])
