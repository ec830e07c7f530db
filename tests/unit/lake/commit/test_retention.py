"""What is no longer needed goes by its age; what anything could still need stays, wherever a sweep is cut off."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import CommitLost, CorruptLake, LakeError
from bridge.lake.commit.open import open_committer
from bridge.lake.commit.retention import Sweep, sweep
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Beginning, Log, Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord
from bridge.lake.runs import RunFile
from bridge.lake.storage.local.storage import LocalStorage
from bridge.settings.options import Pipeline, Retention, Source
from tests.support.lake import DEAD, FIRST, Faulty, Lake, closed, fail, unpublished
from tests.support.records import commit_record, table_change
from tests.support.shell import Typed
from tests.support.tables import INTEGER, Shop

DAY = timedelta(days=1)
BORN = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = datetime.now(timezone.utc)
FOREVER = Retention(commits=36500 * DAY, runs=36500 * DAY, logs=36500 * DAY, rejects=36500 * DAY, trash=36500 * DAY)


def keep(**kinds: timedelta) -> Retention:
    """A retention that is for ever but for these kinds."""
    return FOREVER.model_copy(update=kinds)


def swept(lake: Lake, head: int, retention: Retention, *, after: timedelta = timedelta(0), **facts: Any) -> Sweep:
    """One sweep, so long from now."""
    work = Sweep(lake.storage, "p", retention, now=datetime.now(timezone.utc) + after, **facts)
    work.all(head)
    assert work.warnings == []
    return work


def fill(lake: Lake, last: int, *, kinds: dict[int, str] | None = None, age: timedelta = 200 * DAY) -> Snapshot:
    """Write records up to `last` with a STATE and a file each, all `age` old; the files exist nowhere."""
    log, view, at = Log(lake.storage, "p"), Snapshot(), (NOW - age).isoformat()
    for n in range(1, last + 1):
        kind = (kinds or {}).get(n, "data")
        adds = [{"name": f"f{n}", "source": f".bridge/p/pending/x{n}", "size": 1, "rows": 1}] if kind == "data" else []
        state = {"n": n} if kind == "data" else view.state
        created, view = log.create(view, commit_record(n, table_change(adds), kind=kind, at=at, state=state))
        assert created
    return view


def numbers(lake: Lake) -> list[int]:
    """The records that are there."""
    return sorted(int(path.stem) for path in (lake.root / ".bridge/p/commits").glob("*.json"))


def test_the_log_begins_at_an_old_snapshot(lake: Lake) -> None:
    """Records below the newest snapshot that is itself too old go, little by little; the rest reads as before."""
    before = fill(lake, 350)
    log = Log(lake.storage, "p")
    for _ in range(12):
        work = swept(lake, 350, keep(commits=90 * DAY))
        assert work.deleted["commits"] <= 40
        assert log.snapshot(log.head()) == before
    assert log.beginning() == Beginning(300, 300)
    assert numbers(lake) == list(range(300, 351))
    assert [record.n for record in log.history(350)] == list(range(350, 299, -1))


def test_what_a_run_made_may_go_by_the_next(lake: Lake) -> None:
    """The more commits a run makes the more it deletes: a log that is cut once a month does not grow for ever."""
    fill(lake, 350)
    assert swept(lake, 350, keep(commits=DAY), made=200).deleted["commits"] == 299


def test_young_records_stay(lake: Lake) -> None:
    """Nothing goes before its time, and a log without a snapshot that is too old begins where it began."""
    fill(lake, 250, age=89 * DAY)
    swept(lake, 250, keep(commits=90 * DAY))
    assert numbers(lake) == list(range(1, 251))
    assert not (lake.root / ".bridge/p/begins.json").exists()
    swept(lake, 250, keep(commits=90 * DAY), after=2 * DAY)
    assert Log(lake.storage, "p").beginning() == Beginning(100, 41)


def test_a_commit_that_is_gone_says_so(lake: Lake) -> None:
    """A commit from before the log's beginning is refused as such; a gap after it is damage, as ever."""
    fill(lake, 250)
    swept(lake, 250, keep(commits=DAY), made=500)
    log = Log(lake.storage, "p")
    with pytest.raises(LakeError, match="not in the log any more commit=7 first=200") as caught:
        log.snapshot(7)
    assert "retention.commits" in caught.value.hint
    (lake.root / log.key(220)).unlink()
    with pytest.raises(CorruptLake, match="a commit record is missing"):
        list(log.history(250))


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        ({}, 200),
        ({300: "fence"}, 200),
        (dict.fromkeys(range(201, 301), "fence"), 100),
        (dict.fromkeys(range(1, 301), "fence"), 200),
    ],
)
def test_what_a_void_looks_up_stays(lake: Lake, kinds: dict[int, str], first: int) -> None:
    """The commit before the last that is no fence stays readable: recovery may have to return to it."""
    fill(lake, 300, kinds=kinds)
    swept(lake, 300, keep(commits=DAY), made=1000)
    assert Log(lake.storage, "p").beginning().first == first


def test_recovery_after_a_sweep(lake: Lake) -> None:
    """A run that dies right after a sweep is recovered as without one: what it lost is taken back."""
    committer = lake.open(FIRST)
    for n in range(1, 200):
        committer.set_state({"n": n}, "test")
    file = lake.load(committer, {"n": 200})
    swept(lake, 200, keep(commits=DAY), after=2 * DAY, made=500)
    assert numbers(lake)[0] == 100
    assert lake.open(DEAD).snapshot.state == {"n": 200}
    lost = lake.pending(201)
    unpublished(lake, {"n": 202}, [lake.entry(lost)], closed(201))
    (lake.root / lost["source"]).unlink()
    opened = lake.open(DEAD)
    assert (opened.snapshot.state, lake.state, lake.visible()) == ({"n": 200}, {"n": 200}, {file["name"]})
    assert lake.kinds[-4:] == ["fence", "data", "fence", "void"]


def test_a_number_is_never_given_out_again(lake: Lake) -> None:
    """A writer that slept while its number was taken, and the record of it deleted, has lost all the same."""
    slow = lake.open(FIRST)
    file = lake.pending(slow.generation)
    other = open_committer(lake.storage, "p", "other", last=DEAD)
    for n in range(300):
        other.set_state({"n": n}, "test")
    swept(lake, 301, keep(commits=DAY), after=2 * DAY, made=500)
    assert numbers(lake)[0] == 300
    before = lake.everything()
    with pytest.raises(CommitLost) as caught:
        slow.commit(PipelineState({"n": "slow"}), [lake.entry(lake.pending(1))])
    assert "before it changed anything" in caught.value.hint
    assert lake.visible() == set()
    assert {name for name in lake.everything().keys() - before.keys() if "pending" not in name} == set()
    assert file["name"] not in lake.visible()


@contextmanager
def bucket() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory() as folder:
        yield Lake(Path(folder))


@st.composite
def logs(draw: st.DrawFn) -> list[CommitRecord]:
    """A log's records: tables that come, grow and are replaced, fences and voids, time that goes on in leaps."""
    random, at, records = draw(st.randoms(use_true_random=False)), BORN, []
    live: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for n in range(1, draw(st.integers(1, 460)) + 1):
        at += random.choice([timedelta(0), timedelta(hours=3), DAY, 9 * DAY])
        kind = random.choice(["data", "data", "data", "fence", "state"])
        tables = []
        if kind == "data":
            stream = random.choice("abc")
            removes = list(live[stream]) if random.random() < 0.2 else []
            live[stream] = [*live[stream][len(removes) :], f"f{n}"]
            add = {"name": f"f{n}", "source": f".bridge/p/pending/x{n}", "size": n, "rows": n}
            mode = "replace" if removes else "append"
            tables.append(table_change([add], removes, stream, schema=f"c{n % 3}", mode=mode))
        state = records[-1].state if kind == "fence" and records else {"bookmarks": {random.choice("abc"): n}}
        last = next((older.n for older in reversed(records) if older.kind != "fence"), 0)
        after = last if kind == "fence" else None
        records.append(commit_record(n, *tables, kind=kind, at=at.isoformat(), state=state, after=after))
    return records


def check(log: Log, views: list[Snapshot]) -> int:
    """Whatever was deleted: the head, and every commit from the log's beginning on, are as before; return that one."""
    head, first = log.head(), log.beginning().first
    assert head == len(views) - 1
    assert log.latest() == head
    assert log.snapshot(head) == views[head]
    assert [record.n for record in log.history(head)] == list(range(head, first - 1, -1))
    for n in {first, (first + head) // 2, head - 1} - {0}:
        assert log.snapshot(n) == views[n]
    view = log.snapshot(first)
    for n in range(first + 1, head + 1):
        view = view.after(next(log.history(n)))
        assert view == views[n]
    return first


class Failing(LocalStorage):
    """A bucket that breaks at its n-th change."""

    left = 0

    def write(self, key: str, data: bytes) -> None:
        self._count()
        super().write(key, data)

    def delete(self, key: str) -> None:
        self._count()
        super().delete(key)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LakeError("the bucket broke", hint="mend it")


@pytest.mark.heavy
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    logs(), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 90)), min_size=1, max_size=5), st.integers(0, 99)
)
def test_a_sweep_changes_nothing_that_can_be_read(
    records: list[CommitRecord], sweeps: list[tuple[int, int]], made: int
) -> None:
    """Over any log, at any times, cut off anywhere: the present, and each commit since the beginning, stay the same."""
    with bucket() as lake:
        log, views = Log(lake.storage, "p"), [Snapshot()]
        for record in records:
            views.append(log.create(views[-1], record)[1])
        began = 1
        for days, changes in sorted(sweeps):
            storage = Failing(lake.root)
            storage.left = changes
            work = Sweep(storage, "p", keep(commits=90 * DAY), made=made, now=BORN + days * DAY)
            work.all(len(records))
            assert work.deleted["commits"] <= 40 + 2 * made
            first = check(log, views)
            assert first == began or log.snapshot(first).n % 100 == 0
            assert first >= began
            began = first
        missing = set(range(1, len(records) + 1)) - set(numbers(lake))
        assert all(n < began for n in missing)
        assert all(datetime.fromisoformat(records[n - 1].at) < BORN + 1910 * DAY for n in missing)


@pytest.mark.parametrize(("kept", "left"), [(7 * DAY, 1), (timedelta(0), 0)])
def test_trash_is_kept_for_its_time(lake: Lake, kept: timedelta, left: int) -> None:
    """Removed files stay in the trash for the retention, under no name that a reader takes for Parquet."""
    committer = lake.open(FIRST)
    old = lake.load(committer, {"n": 1})
    committer.commit(PipelineState({"n": 2}), [lake.entry(lake.pending(0), removes=(old["name"],))])
    committer.set_state({"n": 3}, "test")
    swept(lake, 3, keep(trash=kept), after=timedelta(seconds=1))
    trash = [path for path in (lake.root / ".bridge/p/trash").rglob("*") if path.is_file()]
    assert len(trash) == left
    assert all(path.suffix == ".removed" for path in trash)


def test_the_trash_does_not_grow(lake: Lake) -> None:
    """However many files each commit removes, as one that rewrites a table and its views, later runs keep up."""
    committer, files = lake.open(FIRST), list[Any]()
    for n in range(1, 47):
        new = [lake.pending(0) for _ in range(4)]
        committer.commit(PipelineState({"n": n}), [lake.entry(*new, removes=tuple(file["name"] for file in files))])
        files = new
    assert swept(lake, 46, keep(trash=timedelta(0)), after=DAY).deleted["trash"] == 40 * 4
    assert swept(lake, 46, keep(trash=timedelta(0)), after=DAY, made=1).deleted["trash"] == 4 * 4
    assert len(lake.visible()) == 4


def test_trash_of_the_last_change_stays(lake: Lake) -> None:
    """What the last commit removed is kept whatever its age: a void of it would bring that back."""
    committer = lake.open(FIRST)
    old, new = lake.load(committer, None), lake.pending(0)
    committer.commit(PipelineState(), [lake.entry(new, removes=(old["name"],))])
    assert swept(lake, 2, keep(trash=timedelta(0)), after=DAY).deleted["trash"] == 0
    (lake.root / "p/s" / new["name"]).unlink()
    assert "taken back" in lake.open(DEAD).notes[0]
    assert lake.visible() == {old["name"]}


def test_a_trash_that_somebody_emptied(lake: Lake) -> None:
    """A run that died is recovered also where the trash of its last overwrite is gone by then."""
    committer = lake.open(FIRST)
    old, new = lake.load(committer, {"n": 1}), lake.pending(0)
    committer.commit(PipelineState({"n": 2}), [lake.entry(new, removes=(old["name"],))])
    shutil.rmtree(lake.root / ".bridge/p/trash")
    assert lake.open(DEAD).snapshot.state == {"n": 2}
    assert lake.visible() == {new["name"]}


def test_a_record_stays_while_its_trash_does(lake: Lake) -> None:
    """What is in the trash has its record, however short records are kept; without any record it is left alone."""
    committer = lake.open(FIRST)
    old = lake.load(committer, {"n": 1})
    for n in range(2, 120):
        committer.set_state({"n": n}, "test")
    committer.commit(PipelineState({"n": 120}), [lake.entry(lake.pending(0), removes=(old["name"],))])
    for n in range(121, 350):
        committer.set_state({"n": n}, "test")
    (lake.root / ".bridge/p/trash" / f"{999:020d}").mkdir()
    (lake.root / ".bridge/p/trash/notes.txt").write_text("mine")
    swept(lake, 349, keep(commits=DAY), after=2 * DAY, made=500)
    assert numbers(lake)[0] == 100
    swept(lake, 349, keep(commits=DAY, trash=DAY), after=2 * DAY, made=500)
    assert numbers(lake)[0] == 300
    assert {path.name for path in (lake.root / ".bridge/p/trash").iterdir()} == {f"{999:020d}", "notes.txt"}


RUNS = [
    f"{datetime(2026, 1, day, tzinfo=timezone.utc):%Y%m%dT%H%M%SZ}-{'a' * (3 + day % 2)}{day}"
    for day in (1, 2, 3, 4, 5)
]
"""Four or five letters after the time: earlier versions wrote four."""


def test_runs_logs_and_rejects_go_by_the_age_of_their_run(lake: Lake) -> None:
    """Each kind is kept for its own time after its run began; what has no run's name is not ours to delete."""
    for run in RUNS:
        for key in (f"runs/{run}.json", f"logs/{run}.log", f"logs/{run}.spark.log", f"rejects/s/{run}-0a.jsonl"):
            lake.storage.write(f".bridge/p/{key}", b"{}")
    for key in ("runs/mine.json", "runs/20259999T000000Z-aaaa.json", "logs/readme.log", "rejects/s/kept.jsonl"):
        lake.storage.write(f".bridge/p/{key}", b"mine")
    retention = keep(runs=timedelta(days=3.5), logs=timedelta(days=2.5), rejects=timedelta(days=1.5))
    work = Sweep(lake.storage, "p", retention, run=RUNS[0], now=datetime(2026, 1, 6, tzinfo=timezone.utc))
    work.all(0)
    assert work.deleted == {"trash": 0, "commits": 0, "runs": 1, "logs": 4, "rejects": 3}
    left = {path.stem for path in (lake.root / ".bridge/p/runs").iterdir()}
    assert left == {RUNS[0], *RUNS[2:], "mine", "20259999T000000Z-aaaa"}, "the run that ends now is never too old"
    assert len(list((lake.root / ".bridge/p/logs").iterdir())) == 4 + 2 + 1
    assert len(list((lake.root / ".bridge/p/rejects/s").iterdir())) == 2 + 1


def test_a_run_deletes_a_bounded_number(lake: Lake) -> None:
    """A backlog of years is worked off little by little, oldest first: no run pays for all of it."""
    for number in range(100):
        lake.storage.write(f".bridge/p/runs/20200101T0000{number // 10}{number % 10}Z-aaaa.json", b"{}")
    assert swept(lake, 0, keep(runs=DAY)).deleted["runs"] == 40
    assert len(list((lake.root / ".bridge/p/runs").iterdir())) == 60


def test_a_sweep_never_fails_a_run(lake: Lake) -> None:
    """What cannot be deleted is said in a sentence each; the rest is swept all the same."""
    fill(lake, 250)
    lake.storage.write(".bridge/p/rejects/s", b"a file where a folder belongs")
    lake.storage.write(f".bridge/p/logs/{RUNS[0]}.log", b"INFO")
    source, bucket = Source.model_construct(tap=[]), {"bucket": str(lake.root)}
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "destination": bucket})
    snapshot = Log(lake.storage, "p").snapshot(250)
    lake.storage.write(".bridge/p/begins.json", b"torn")
    warnings = sweep(lake.storage, pipeline, run="r", made=1, snapshot=snapshot)
    assert [warning.split(" could")[0] for warning in warnings] == [
        "old files of the trash",
        "old files of the rejects",
        "old files of the commits",
    ]
    assert not (lake.root / f".bridge/p/logs/{RUNS[0]}.log").exists()
    assert numbers(lake) == list(range(1, 251))


def test_a_damaged_record_is_a_warning(lake: Lake) -> None:
    """A record that does not say what it removed keeps its trash, and the run its success."""
    committer = lake.open(FIRST)
    old = lake.load(committer, {"n": 1})
    committer.commit(PipelineState({"n": 2}), [lake.entry(lake.pending(0), removes=(old["name"],))])
    committer.set_state({"n": 3}, "test")
    path = lake.root / committer.log.key(2)
    path.write_text(path.read_text().replace('"removes"', '"gone"'))
    work = Sweep(lake.storage, "p", keep(trash=timedelta(0)), now=datetime.now(timezone.utc) + DAY)
    work.all(3)
    assert "trash could not be deleted: a commit record is incomplete" in work.warnings[0]


def test_a_bucket_that_refuses_is_a_warning(lake: Lake) -> None:
    """A bucket that cannot be reached at the end of a run does not take back its success."""
    fill(lake, 250)
    storage = Faulty(lake, read=fail)
    storage.armed = True
    work = Sweep(storage, "p", keep(commits=DAY))
    work.all(250)
    assert "cannot reach the bucket" in work.warnings[0]


@pytest.mark.parametrize(("tap", "code"), [("true", 0), ("false", 1)])
def test_a_run_sweeps_run_records(typed: Typed, folder: Path, tap: str, code: int) -> None:
    """The pipeline's own retention is applied: after a failure, too, as a schedule may bring many of them."""
    retention = "retention: {runs: 1d, logs: 1d}"
    (folder / "bridge.yaml").write_text(
        f'pipelines: {{p: {{source: {{tap: "{tap}"}}, destination: {{bucket: lake}}, {retention}}}}}'
    )
    old = [folder / f"lake/.bridge/p/runs/{RUNS[1]}.json", folder / f"lake/.bridge/p/logs/{RUNS[1]}.log"]
    for path in old:
        path.parent.mkdir(parents=True)
        path.write_text("")
    for run in RUNS[:3]:
        RunFile(LocalStorage(folder / "lake"), "p", run).finish(status="failed")
    assert typed("run").code == code
    assert not [path for path in old if path.exists()]
    # After a failure the run before it stays, which may have loaded, and the first, from which the age counts.
    assert len(list((folder / "lake/.bridge/p/runs").iterdir())) == (3 if code else 1)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_file_that_was_removed_twice_is_kept_from_the_second_time_on(format_: str, tmp_path: Path) -> None:
    """A rollback brought it back in its place: its first removal, which is old, does not delete it."""
    shop = Shop(tmp_path, format=format_)
    for n in (1, 2):
        shop.load("t", {"id": INTEGER}, [{"id": n}], mode="overwrite")
    roll_back(shop.storage, "shop", 1)
    shop = Shop(tmp_path, format=format_)
    for n in (3, 4):
        shop.load("t", {"id": INTEGER}, [{"id": n}], mode="overwrite")
    log = Log(shop.storage, "shop")
    changes = [(record, set(change.removes)) for record in log.history(log.latest()) for change in record.tables]
    (_, _), (second, again), _, (_, removes), _ = changes
    assert again == removes
    (file,) = (shop.root / "shop/t" / name for name in removes)
    until = datetime.fromisoformat(second.at) + DAY
    for now, is_there in ((until, True), (until + DAY, False)):
        work = Sweep(shop.storage, "shop", keep(trash=DAY), now=now)
        work.all(log.latest())
        assert (work.warnings, file.exists()) == ([], is_there)
