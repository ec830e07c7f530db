"""The log of a Delta table: fenced against slow writers, refused where somebody else wrote, mended, and swept."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from bridge.cli import main
from bridge.commit.retention import Sweep
from bridge.commit.rollback import roll_back
from bridge.errors import CommitLost, LakeError, SettingsError
from bridge.lake.formats.delta.log import DeltaLog
from bridge.lake.formats.delta.stats import statistics
from bridge.lake.records import TableState
from bridge.load.tables.adopt import adopt
from bridge.load.tables.table_plan import TablePlanner
from bridge.maintain.compact import Wish, compact
from bridge.maintain.verify.check import verify
from bridge.maintain.verify.mend import repair
from bridge.settings.load import load
from bridge.settings.options import Pipeline, Retention
from bridge.singer.messages import Schema
from bridge.storage.local.storage import LocalStorage
from tests.support.delta_lake import DeltaLake
from tests.support.lake import DEAD, FIRST, closed


class Overtaken(LocalStorage):
    """Lets others act right before the first entry of a table's own log is put."""

    def __init__(self, root: Path, others: Any) -> None:
        super().__init__(root)
        self.others = others

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if "_delta_log" in key and self.others:
            others, self.others = self.others, None
            others()
        return super().put_if_absent(key, data)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(LocalStorage(tmp_path))


def problems(lake: DeltaLake) -> list[str]:
    found = verify(lake.storage, "p").findings
    return [f"{f.check}: {f.found}" for f in found if f.check not in ("owner", "streams")]


def test_a_slow_writer_adds_nothing(lake: DeltaLake, tmp_path: Path) -> None:
    """Who is overtaken between looking at the Delta table and writing its entry changes nothing, and ends."""
    lake.append(lake.open(FIRST), [1])

    def others() -> None:
        lake.append(lake.open(DEAD), [3])  # recovers commit 2 first

    slow = lake.open(closed(1), Overtaken(tmp_path, others))
    with pytest.raises(CommitLost):
        lake.append(slow, [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]
    assert lake.table().version() == 2
    assert lake.table().transaction_version("p/s") == 4


def test_a_slow_writer_of_the_first_entry(lake: DeltaLake, tmp_path: Path) -> None:
    """Two who make the table make one."""
    slow = lake.open(FIRST, Overtaken(tmp_path, lambda: lake.append(lake.open(DEAD), [2])))
    with pytest.raises(CommitLost):
        lake.append(slow, [1])
    assert lake.ids() == [1, 2]


def test_a_slow_writer_whose_commit_was_taken_back(lake: DeltaLake, tmp_path: Path) -> None:
    """Not even after its files were lost, and the commit voided, an entry comes late."""

    def others() -> None:
        (name,) = set(lake.log.view(2).tables["s"].files) - set(lake.log.view(1).tables["s"].files)
        (tmp_path / "p/s" / name).unlink()
        lake.open(DEAD)

    lake.append(lake.open(FIRST), [1])
    slow = lake.open(closed(1), Overtaken(tmp_path, others))
    with pytest.raises(CommitLost):
        lake.append(slow, [2])
    assert lake.ids() == lake.listed() == [1]


def test_the_void_of_a_first_commit(lake: DeltaLake, tmp_path: Path) -> None:
    """A table that was taken back before it was there has columns and no rows, and a late entry cannot fill it."""

    def others() -> None:
        for file in (tmp_path / "p/s").glob("*.parquet"):
            file.unlink()
        lake.open(DEAD)

    slow = lake.open(FIRST, Overtaken(tmp_path, others))
    with pytest.raises(CommitLost):
        lake.append(slow, [1])
    assert lake.ids() == []
    lake.append(lake.open(DEAD), [2])
    assert lake.ids() == [2]


def test_somebody_elses_table_is_refused(lake: DeltaLake, tmp_path: Path) -> None:
    """A folder that is a Delta table already is not written to."""
    write_deltalake(tmp_path / "p/s", pa.table({"id": [9]}))
    with pytest.raises(LakeError, match="is a Delta table already"):
        lake.append(lake.open(FIRST), [1])
    assert lake.ids() == [9]
    assert lake.log.head() == 0


def test_what_somebody_else_wrote_is_refused_and_mended(lake: DeltaLake, tmp_path: Path) -> None:
    """Rows that a stranger writes into the table stop the next commit; the repair takes them out again."""
    lake.append(lake.open(FIRST), [1])
    write_deltalake(tmp_path / "p/s", pa.table({"id": [9]}), mode="append")
    with pytest.raises(LakeError, match="changed by somebody else"):
        lake.append(lake.open(closed(1)), [2])
    assert lake.log.head() == 1
    assert "table log: names 1 file(s) too many: its readers get other rows" in problems(lake)
    done, report = repair(lake.storage, "p")
    assert any("agree with the commit log" in sentence for sentence in done)
    assert report.errors == 0
    assert lake.ids() == [1]
    lake.append(lake.open(closed(lake.log.head())), [2])
    assert lake.ids() == [1, 2]


def test_a_lost_log_is_written_anew(lake: DeltaLake, tmp_path: Path) -> None:
    """Without its own log the table is no Delta table; the repair makes it one again, with all rows."""
    lake.append(lake.open(FIRST), [1])
    lake.append(lake.open(closed(1)), [2])
    for file in (tmp_path / "p/s/_delta_log").iterdir():
        file.unlink()
    assert any("is missing" in problem for problem in problems(lake))
    with pytest.raises(LakeError, match="changed by somebody else"):
        lake.append(lake.open(closed(2)), [3])
    repair(lake.storage, "p")
    assert lake.ids() == [1, 2]


def test_a_rollback_brings_files_back_where_they_are(lake: DeltaLake) -> None:
    """A rollback is one more version; it names the same files, so that older versions can still be read."""
    lake.append(lake.open(FIRST), [1, 2])
    lake.replace(lake.open(closed(1)), [7])
    before = lake.log.view(1).tables["s"].files
    roll_back(lake.storage, "p", 1)
    head = lake.log.head()
    assert lake.ids() == lake.listed() == [1, 2]
    assert lake.log.view(head).tables["s"].files == before
    assert [lake.ids(version) for version in range(3)] == [[1, 2], [7], [1, 2]]
    assert problems(lake) == []
    roll_back(lake.storage, "p", 2)
    assert lake.ids() == [7]


def test_retention_deletes_by_age(lake: DeltaLake, tmp_path: Path) -> None:
    """Files that the table gave up are there for `retention.trash`, and those that a rollback has again stay."""
    lake.append(lake.open(FIRST), [1])
    lake.replace(lake.open(closed(1)), [2])
    lake.replace(lake.open(closed(2)), [3])
    roll_back(lake.storage, "p", 1)
    lake.append(lake.open(closed(lake.log.head())), [4])
    head, now = lake.log.head(), datetime.now(timezone.utc)
    keep = Retention(trash=timedelta(days=7))
    Sweep(lake.storage, "p", keep, now=now + timedelta(days=6)).all(head)
    assert len(list((tmp_path / "p/s").glob("*.parquet"))) == 4
    assert problems(lake) == []
    sweep = Sweep(lake.storage, "p", keep, now=now + timedelta(days=8))
    sweep.all(head)
    assert sweep.warnings == []
    assert sweep.deleted["trash"] == 2
    assert len(list((tmp_path / "p/s").glob("*.parquet"))) == 2
    assert lake.ids() == lake.listed() == [1, 4]
    assert problems(lake) == []
    assert list((tmp_path / ".bridge/p/trash").rglob("*.kept")) == []


def test_checkpoints(lake: DeltaLake, tmp_path: Path) -> None:
    """The state is written down now and then, and the table is the same with nothing but that and what follows."""
    committer = lake.open(FIRST)
    for n in range(1, 13):
        lake.append(committer, [n])
    folder = tmp_path / "p/s/_delta_log"
    assert (folder / f"{10:020d}.checkpoint.parquet").exists()
    for version in range(10):
        (folder / f"{version:020d}.json").unlink()
    assert lake.ids() == list(range(1, 13))
    assert lake.table().transaction_version("p/s") == 12
    lake.append(lake.open(closed(12)), [13])
    assert lake.ids() == list(range(1, 14))


def test_statistics_let_readers_leave_out_files(lake: DeltaLake) -> None:
    """What an entry says of a file is what readers skip it by."""
    committer = lake.open(FIRST)
    lake.append(committer, [1, 2], name="a")
    lake.append(committer, [10, 11], name=None)
    table = lake.table()
    found = {row["min.id"]: row for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()}
    assert {key: (row["num_records"], row["max.id"], row["null_count.name"]) for key, row in found.items()} == {
        1: (2, 2, 0),
        10: (2, 11, 2),
    }
    assert len(list(table.to_pyarrow_dataset().get_fragments(filter=pa.compute.field("id") > 5))) == 1


def test_bounds(tmp_path: Path) -> None:
    """Bounds are never too narrow: times are rounded outwards, texts cut upwards; each column with values has them."""
    at = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone.utc)
    table = pa.table(
        {
            "n": pa.array([3, None, -1], pa.int64()),
            "d": pa.array([Decimal(10**30), None, Decimal(-1)], pa.decimal128(38, 0)),
            "t": pa.array([at, at, at], pa.timestamp("us", "UTC")),
            "s": pa.array(["x" * 100, "a", None]),
            "f": pa.array([0.5, 1.5, None]),
            "inf": pa.array([float("inf"), 1.5, None]),
            "b": pa.array([True, False, None]),
            "st": pa.array([{"x": 1, "y z": {"k": "v"}}, None, {"x": None, "y z": None}]),
            "l": pa.array([[1], None, []], pa.list_(pa.int64())),
            "none": pa.array([None] * 3, pa.string()),
            "last": pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc)] * 3),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    with (tmp_path / "a.parquet").open("rb") as file:
        found = json.loads(statistics(file), parse_float=Decimal)
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "n": -1,
        "d": -1,
        "t": "2024-02-29T23:59:59.123Z",
        "s": "a",
        "f": Decimal("0.5"),
        "inf": Decimal("1.5"),
        "b": False,
        "st": {"x": 1, "y z": {"k": "v"}},
        "last": "9999-12-31T23:59:59.999Z",
    }
    high = found["maxValues"]
    assert (high["n"], high["d"], high["t"]) == (3, 10**30, "2024-02-29T23:59:59.124Z")
    assert high["s"] == "x" * 64 + "\U0010ffff"
    assert high["last"] == "9999-12-31T23:59:59.999999Z"
    assert (high["inf"], high["b"]) == ("Infinity", True)
    assert "none" not in high  # it has no value: its null count says so
    assert found["nullCount"]["none"] == 3
    assert found["nullCount"]["st"] == {"x": 2, "y z": {"k": 2}}
    assert "l" not in found["nullCount"]


def test_columns_beyond_the_first_have_no_bounds(tmp_path: Path) -> None:
    """A wide table's entries stay small; what its folders are named after is never left out."""
    pq.write_table(pa.table({f"c{n}": [n] for n in range(100)}), tmp_path / "a.parquet")
    with (tmp_path / "a.parquet").open("rb") as file:
        found = json.loads(statistics(file, folders=["c77=77"]))
    assert list(found["minValues"]) == [f"c{n}" for n in [*range(32), 77]]


def test_a_table_with_features_is_not_written(lake: DeltaLake) -> None:
    """Where Delta asks more of writers than we know, we do not write."""
    lake.append(lake.open(FIRST), [1])
    lake.table().alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(LakeError, match="features that are not ours"):
        lake.append(lake.open(closed(1)), [2])


def test_an_unreadable_log_says_so(lake: DeltaLake, tmp_path: Path) -> None:
    """A torn entry is an error with a hint, and nothing is committed."""
    lake.append(lake.open(FIRST), [1])
    (tmp_path / f"p/s/_delta_log/{1:020d}.json").write_text('{"add": {')
    with pytest.raises(LakeError, match="cannot be read") as caught:
        lake.append(lake.open(closed(1)), [2])
    assert caught.value.hint
    assert lake.log.head() == 1


def test_the_look_is_kept_while_nobody_writes(lake: DeltaLake) -> None:
    """A run reads the table's log once, not at each commit."""
    own = DeltaLog(lake.storage, "p/s", "p", "s")
    lake.append(lake.open(FIRST), [1])
    first = own.look()
    assert own.look() is first
    lake.append(lake.open(closed(1)), [2])
    assert own.look().version == 1
    own.check(TableState("p/s", None, lake.log.view(2).tables["s"].files, format="delta"))
    assert isinstance(lake.table(), DeltaTable)


@pytest.fixture
def without_deltalake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python in which the extra is not installed."""
    monkeypatch.setitem(sys.modules, "deltalake", None)


def settings(folder: Path) -> Path:
    said = 'pipelines: {shop: {source: {tap: ["touch", "started"]}, destination: {bucket: lake, format: delta}}}\n'
    (folder / "bridge.yaml").write_text(said)
    return folder / "bridge.yaml"


def test_the_extra_is_asked_for_before_the_tap(
    tmp_path: Path, without_deltalake: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the package nothing is started, and what to install is said; the doctor says so, too."""
    monkeypatch.chdir(tmp_path)
    for words in (["run", "shop"], ["doctor", "shop", "--no-spark"]):
        with pytest.raises(SystemExit) as exit_:
            main([*words, "--file", str(settings(tmp_path))])
        printed = capsys.readouterr()
        assert exit_.value.code == 2, printed
        said = " ".join((printed.out + printed.err).split())
        assert "format: delta needs the package deltalake" in said
        assert 'pip install "singer-bridge[delta]"' in said
    assert not (tmp_path / "started").exists()


def test_the_doctor_says_what_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the package its version is named."""
    with pytest.raises(SystemExit):
        main(["doctor", "shop", "--no-spark", "--json", "--file", str(settings(tmp_path))])
    checks = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["format"]["status"] == "ok"
    assert checks["format"]["found"].startswith("delta, by deltalake 1")


def test_a_shared_table_is_plain(tmp_path: Path) -> None:
    """Two pipelines cannot add to one Delta table, and the settings say so."""
    text = settings(tmp_path).read_text().replace("format: delta", "format: delta, shared: true")
    (tmp_path / "bridge.yaml").write_text(text)
    with pytest.raises(SettingsError, match="only plain Parquet tables can be shared"):
        load(tmp_path / "bridge.yaml", {}).pipeline("shop")


def placed(lake: DeltaLake, tmp_path: Path, form: str) -> TablePlanner:
    """Where a run with this format would place streams."""
    destination = {"bucket": str(tmp_path), "format": form}
    pipeline = Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})
    return TablePlanner(lake.storage, pipeline, lake.log.view(lake.log.head()), None, full=False, append=False)


def test_a_table_keeps_its_format(lake: DeltaLake, tmp_path: Path) -> None:
    """A format that was changed is refused when the stream begins, and what can be done is said."""
    lake.append(lake.open(FIRST), [1])
    message = Schema("s", {"properties": {"id": {"type": "integer"}}}, None, None)
    placed(lake, tmp_path, "delta").open(message)
    with pytest.raises(SettingsError, match="a table keeps its format") as caught:
        placed(lake, tmp_path, "parquet").open(message)
    assert "keep format: delta" in caught.value.hint


def test_another_ones_table_is_refused_when_its_stream_begins(lake: DeltaLake, tmp_path: Path) -> None:
    """Before a row is read."""
    write_deltalake(tmp_path / "p/s", pa.table({"id": [9]}))
    message = Schema("s", {"properties": {"id": {"type": "integer"}}}, None, None)
    with pytest.raises(LakeError, match="is a Delta table already"):
        placed(lake, tmp_path, "delta").open(message)


def test_small_files_are_joined(lake: DeltaLake, tmp_path: Path) -> None:
    """Compaction is one version that changes no data: who follows the changes sees none."""
    committer = lake.open(FIRST)
    for n in range(1, 7):
        lake.append(committer, [n])
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / ".bridge/p/lease.json").unlink()
    destination = {"bucket": str(tmp_path), "format": "delta"}
    pipeline = Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})
    compact(lake.storage, pipeline, Wish())
    table = lake.table()
    assert lake.ids() == lake.listed() == list(range(1, 7))
    assert len(table.file_uris()) == 1
    entry = (tmp_path / f"p/s/_delta_log/{table.version():020d}.json").read_text()
    assert '"dataChange": true' not in entry
    assert problems(lake) == []


def test_adopted_files(lake: DeltaLake, tmp_path: Path) -> None:
    """Files that were there become a Delta table; what one has given up is never taken for a stranger's."""
    destination = {"bucket": str(tmp_path), "format": "delta"}
    pipeline = Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})
    (tmp_path / "p/s").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "p/s/old.parquet")
    committer = lake.open(FIRST)
    adopt(committer, pipeline)
    assert lake.ids() == [1, 2]
    lake.replace(committer, [3])
    with pytest.raises(SettingsError, match="nothing to adopt"):
        adopt(committer, pipeline)
    assert lake.ids() == [3]
