"""Files that were there before us: refused, or adopted whole, and never lost."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from bridge.errors import LakeError, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.tables.adopt import adopt
from bridge.settings.inline import inline_pipeline
from bridge.settings.options import Pipeline
from tests.support.s3server import S3Server


def pipeline(root: Path, name: str = "p", load_method: str = "auto") -> Pipeline:
    return inline_pipeline(name=name, bucket=str(root), tap="tap", load_method=load_method, environ={})


def write(root: Path, table: pa.Table, name: str = "old.parquet", stream: str = "users") -> Path:
    path = root / "p" / stream / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def opened(root: Path) -> Committer:
    return open_committer(LocalStorage(root), "p", "run", last={"closed": 0})


def test_files_get_on_record_where_they_are(tmp_path: Path) -> None:
    """Their rows and columns are the table's from then on; no byte of them is moved."""
    one = write(tmp_path, pa.table({"id": [1, 2], "name": pa.array(["a", "b"], pa.large_string())}))
    other = write(tmp_path, pa.table({"id": [3], "more": [True]}), "older.parquet")
    before = {path: path.read_bytes() for path in (one, other)}
    committer = opened(tmp_path)
    adopt(committer, pipeline(tmp_path))
    live = committer.snapshot.tables["users"]
    assert (live.rows, set(live.files), live.folder) == (3, {"old.parquet", "older.parquet"}, "p/users")
    assert {path: path.read_bytes() for path in before} == before
    assert committer.notes == ["2 file(s) with 3 rows were adopted, as commit 1"]
    manifest = (tmp_path / ".bridge/tables/p/users.manifest").read_text().splitlines()
    assert manifest == [str(one), str(other)]
    with pytest.raises(SettingsError, match="nothing to adopt"):
        adopt(committer, pipeline(tmp_path))


def test_a_commit_that_adopted_is_rolled_forward_without_a_move(tmp_path: Path) -> None:
    """A run that died just after it finds the files where they are, twice."""
    path = write(tmp_path, pa.table({"id": [1]}))
    adopt(opened(tmp_path), pipeline(tmp_path))
    for _ in range(2):
        committer = open_committer(LocalStorage(tmp_path), "p", "next", last={"closed": None})
        assert committer.snapshot.tables["users"].rows == 1
        assert path.exists()


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([1], pa.int32()), "a file has a column of another type file=p/users/old.parquet type=int32"),
        (pa.array(["x"]), "a file does not go with its table file=one.parquet column=id type=int64"),
        (pa.array([1.5]), "a file does not go with its table file=one.parquet column=id type=int64"),
        (pa.array([True]), "a file does not go with its table: column changes its type column=id from=bool to=int64"),
    ],
)
def test_what_readers_could_not_read_beside_our_files_is_refused(tmp_path: Path, column: pa.Array, why: str) -> None:
    """Before anything is on record; the hint says what to do."""
    write(tmp_path, pa.table({"id": column}))
    write(tmp_path, pa.table({"id": [1]}), "one.parquet")
    committer = opened(tmp_path)
    with pytest.raises(LakeError) as caught:
        adopt(committer, pipeline(tmp_path))
    assert caught.value.message.startswith(why), caught.value.message
    assert "load the rows again" in caught.value.hint
    assert committer.snapshot.n == 0


def test_no_parquet_file_at_all(tmp_path: Path) -> None:
    """Something that only has the name of a Parquet file is named, and left alone."""
    path = tmp_path / "p/users/text.parquet"
    path.parent.mkdir(parents=True)
    path.write_text("id\n1\n")
    with pytest.raises(LakeError, match=r"no Parquet file file=p/users/text\.parquet"):
        adopt(opened(tmp_path), pipeline(tmp_path))
    assert path.exists()


def test_the_files_of_another_pipeline_are_not_ours_to_adopt(tmp_path: Path) -> None:
    """A folder that has an owner keeps it."""
    write(tmp_path, pa.table({"id": [1]}))
    LocalStorage(tmp_path).write(".bridge/tables/p/users.json", b'{"format":1,"pipeline":"q","stream":"users"}')
    with pytest.raises(LakeError, match="the table belongs to another pipeline"):
        adopt(opened(tmp_path), pipeline(tmp_path))


def test_in_a_bucket(s3: S3Server) -> None:
    """There, too, they stay where they are: publishing takes no source away that is the file itself."""
    storage = s3.storage("s3://adopting/team")
    data = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), data)
    storage.write("p/users/old.parquet", data.getvalue())
    for last in ({"closed": 0}, {"closed": None}):
        committer = open_committer(storage, "p", "run", last=last)
        if not committer.snapshot.tables:
            settings = pipeline(Path("/nowhere"))
            adopt(committer, settings)
        assert storage.read("p/users/old.parquet") == data.getvalue()
        assert committer.snapshot.tables["users"].rows == 2


def test_files_do_not_go_into_an_upsert_table(tmp_path: Path) -> None:
    """Whether their keys are in the table already nobody knows; nothing is on record."""
    write(tmp_path, pa.table({"id": [1]}))
    committer = opened(tmp_path)
    with pytest.raises(LakeError, match="cannot be adopted into an upsert table"):
        adopt(committer, pipeline(tmp_path, load_method="upsert"))
    assert committer.snapshot.n == 0


@pytest.mark.parametrize(
    ("noted", "why"), [({"upserts": True, "key": ("id",)}, "into an upsert table"), ({}, "may be an upsert table")]
)
def test_the_log_says_whether_a_table_is_an_upsert_table(noted: dict[str, Any], why: str, tmp_path: Path) -> None:
    """Whatever run records say, or none does; of a table of an older version nobody knows, so it is refused."""
    write(tmp_path, pa.table({"id": [1]}))
    committer = opened(tmp_path)
    adopt(committer, pipeline(tmp_path))
    table = committer.snapshot.tables["users"]
    assert (table.upserts, table.key) == (False, ())
    change = structs.replace(table, **{"upserts": None, "key": ()} | noted).change("users")
    committer.commit(PipelineState(), [change])
    write(tmp_path, pa.table({"id": [2]}), "new.parquet")
    with pytest.raises(LakeError, match=why):
        adopt(committer, pipeline(tmp_path))
    if not noted:
        adopt(committer, pipeline(tmp_path, load_method="append-only"))
        assert committer.snapshot.tables["users"].rows == 2
