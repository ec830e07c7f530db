"""The slot guard without a database: which slot a tap reads, what a bookmark proves, when a run is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CorruptLake, SettingsError, SlotError
from bridge.lake.log import Snapshot
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.slots import copies
from bridge.load.slots.branch import Branch, Server, set_back, timelines
from bridge.load.slots.database import lsn, text
from bridge.load.slots.guard import Asked, SlotGuard, begin, log_based
from bridge.load.slots.note import Note, NoteFile, Safe
from bridge.load.slots.positions import bookmark_lsn, proven, started, target
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.slot_source import SlotSource, slot_source
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog, stream
from tests.unit.conftest import Load

MELTANO, WISE = "meltanolabs-tap-postgres", "pipelinewise-tap-postgres"
LOGIN = {"host": "db", "port": 5433, "user": "me", "password": "s3cret"}
TABLES = catalog(*(stream(name, selected=True, replication_method="LOG_BASED") for name in "ab"))


@pytest.fixture
def pipeline(settings: Load) -> Any:
    def make(package: str = MELTANO, slot: Any = None, **config: Any) -> Pipeline:
        source = {"tap": "/none/tap-postgres", "pip_url": package, "config": config, "replication_slot": slot or {}}
        base = {"source": source, "destination": {"bucket": "lake"}}
        return settings(json.dumps({"pipelines": {"shop": base}})).pipeline("shop")

    return make


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    (tmp_path / "lake").mkdir()
    return LocalStorage(tmp_path / "lake")


def slot_of(pipeline: Pipeline) -> SlotSource:
    source = slot_source(pipeline, pipeline.source.argv)
    assert source
    return source


def test_the_slot_of_meltanolabs(pipeline: Any) -> None:
    """Its name is one of the tap's settings; a URL or its parts say how to connect."""
    one = slot_of(pipeline(**LOGIN, database="shop", ssl_enable=True, ssl_mode="require"))
    assert (one.slot, one.setting, one.named("copy")) == ("tappostgres", "replication_slot_name", ("copy", "copy"))
    parts = {"host": "db", "port": "5433", "user": "me", "password": "s3cret", "dbname": "shop", "sslmode": "require"}
    assert one.parameters == parts
    assert "s3cret" not in repr(one)
    url = "postgresql+psycopg2://me:p%40ss@localhost/shop?host=%2Ftmp%2Fsocket"
    two = slot_of(pipeline(sqlalchemy_url=url, replication_slot_name="mine", ssh_tunnel={"enable": True}))
    assert (two.slot, two.tunnel) == ("mine", True)
    assert two.parameters == {"host": "/tmp/socket", "user": "me", "password": "p@ss", "dbname": "shop"}


def test_the_slot_of_pipelinewise(pipeline: Any) -> None:
    """Its name is made of database and tap_id as the tap makes it; a copy is found by a tap_id of its own."""
    one = slot_of(pipeline(WISE, **LOGIN, dbname="Shop-DB", tap_id="Main.1"))
    assert (one.slot, one.shared_slot) == ("pipelinewise_shop_db_main_1", "pipelinewise_shop_db")
    assert one.named("bridge_x") == ("pipelinewise_shop_db_bridge_x", "bridge_x")
    assert slot_of(pipeline(WISE, **LOGIN, dbname="shop")).slot == "pipelinewise_shop"


def test_a_tap_that_is_not_known(pipeline: Any) -> None:
    """Nothing is guessed of it; where the settings say which of its settings names the slot it is guarded, too."""
    unknown = pipeline("tap-mysql", **LOGIN, slot_name="s")
    assert slot_source(unknown, unknown.source.argv) is None
    slot = {"setting": "slot_name", "url": "postgresql://me@elsewhere/shop"}
    told = slot_of(pipeline("tap-mine", slot, **LOGIN, slot_name="s"))
    assert (told.kind, told.slot, told.named("c"), told.parameters["host"]) == ("other", "s", ("c", "c"), "elsewhere")


@pytest.mark.parametrize("said", ["auto", "off", '"off"', "false"])
def test_off_as_yaml_reads_it(settings: Load, said: str) -> None:
    """A bare `off` is false in YAML."""
    file = f"pipelines: {{p: {{source: {{tap: t, replication_slot: {{guard: {said}}}}}, destination: {{bucket: b}}}}}}"
    assert settings(file).pipeline("p").source.replication_slot.guard == ("auto" if said == "auto" else "off")
    with pytest.raises(SettingsError, match=r"auto or off|must be"):
        settings(file.replace(said, "true")).pipeline("p")


def test_positions_as_postgresql_writes_them() -> None:
    """Both ways, above and below four gigabytes."""
    for number, said in ((0x16B374D848, "16/B374D848"), (255, "0/FF"), (1 << 32, "1/0")):
        assert (lsn(said), text(number)) == (number, said)
    assert lsn(None) is None


@pytest.mark.parametrize(
    ("mark", "found"),
    [
        ({"replication_key": "_sdc_lsn", "replication_key_value": 7}, 7),
        ({"lsn": 9, "version": 3, "xmin": None}, 9),
        ({"lsn": "1/2"}, (1 << 32) + 2),
        *[
            (mark, None)
            for mark in (None, {}, {"lsn": None}, {"replication_key_value": "2024-01-01"}, {"lsn": True}, 5)
        ],
    ],
)
def test_the_position_in_a_bookmark(mark: Any, found: int | None) -> None:
    """Each tap's own; what is none is none."""
    assert bookmark_lsn(mark) == found


def test_what_a_bookmark_proves() -> None:
    """meltanolabs' end of the log counts as far as the server had read; a snapshot's holds the slot where it was."""
    before = Safe(100, 100)
    assert proven("meltanolabs", before, 900, 500) == Safe(500, 900)
    assert proven("meltanolabs", before, 400, 500) == Safe(400, 400)
    assert proven("meltanolabs", Safe(50, 100), 100, 500) == Safe(50, 100), "kept from before: rows since 50 come again"
    assert proven("meltanolabs", before, 900, 0) == Safe(100, 900), "nothing was seen of the reader"
    assert proven("pipelinewise", before, 900, 0) == Safe(900, 900)
    assert proven("pipelinewise", before, 50, 0) == Safe(100, 50), "never backwards"
    assert proven("meltanolabs", Safe(100, None), 900, 900) == Safe(100, None), "rows changed during the snapshot"
    assert target([Safe(300, 1), Safe(200, None), Safe(400, 2)]) == 200
    assert target([]) is None


def noted(**streams: Safe) -> Note:
    return Note("s", "run", True, streams)


def test_from_where_a_stream_is_safe() -> None:
    """A new one holds the slot; one that is known goes on; a crash between commit and note changes nothing."""
    assert started("a", None, 70, None, snapshot=False) == Safe(70, None)
    assert started("a", 500, 70, noted(a=Safe(90, 90)), snapshot=True) == Safe(70, None)
    assert started("a", 90, 70, None, snapshot=False) == Safe(90, 90)
    assert started("a", 900, 70, noted(a=Safe(90, 90)), snapshot=False) == Safe(90, 900)
    assert started("a", 900, 70, noted(a=Safe(70, None)), snapshot=False) == Safe(70, 900)
    assert started("a", 50, 80, noted(a=Safe(90, 50)), snapshot=False) == Safe(90, 50), "nothing of it changed up to 90"
    assert started("a", 85, 80, noted(a=Safe(90, 90)), snapshot=False) == Safe(85, 85), "set back, and still in the log"


@pytest.mark.parametrize(
    ("bookmark", "confirmed", "note"),
    [
        (50, 70, None),  # a run without the guard died, or streams shared the slot
        (50, 70, noted(b=Safe(60, 60))),  # deselected for a while
        (60, 70, noted(a=Safe(90, 90))),  # `state set`, or a rollback
        (90, 91, noted(a=Safe(90, 90))),  # somebody read the slot; or it was made again
    ],
)
def test_a_slot_that_has_let_go_of_rows(bookmark: int, confirmed: int, note: Note | None) -> None:
    """The error names changes that can no longer be read, and the command that loads the table again."""
    with pytest.raises(SlotError, match="slot") as raised:
        started("a", bookmark, confirmed, note, snapshot=False)
    assert "--full -s a" in raised.value.hint


def test_the_note_stays_with_who_wrote_last(storage: LocalStorage) -> None:
    """It is read as it was written; an overtaken run cannot write it; a broken one is an error."""
    one, other = NoteFile(storage, "shop"), NoteFile(storage, "shop")
    note = Note("s", "r1", True, {"a": Safe(1 << 33, None), "b": Safe(5, 6)}, ("c",))
    assert one.note is None
    assert one.write(note)
    assert NoteFile(storage, "shop").note == note
    assert not other.write(replace(note, run="r2"))
    assert one.write(replace(note, run="r3"))
    storage.write(".bridge/shop/slot.json", b"{}")
    with pytest.raises(CorruptLake, match=r"slot\.json"):
        NoteFile(storage, "shop")


def guard(
    pipeline: Pipeline, storage: LocalStorage, run: str = "r", *, full: bool = False, names: str = "a"
) -> SlotGuard:
    given = catalog(*(entry for entry in TABLES["streams"] if entry["tap_stream_id"] in names))
    database, asked = SourceDatabase(pipeline, pipeline.source.argv), Asked(run, [tuple(names)], full, False)
    return begin(pipeline, database, storage, Snapshot(), given, asked)


def test_without_the_guard_an_unclean_end_is_remembered(pipeline: Any, storage: LocalStorage) -> None:
    """The next run is refused, whatever is set by then, until a run that loads the stream again has ended well."""
    off = pipeline(**LOGIN, slot={"guard": "off"})
    first = guard(off, storage)
    assert "no slot guard" in first.warnings[0]
    first.close(ended=True)
    guard(off, storage).close(ended=False)
    for one in (off, pipeline(**LOGIN)):
        with pytest.raises(SlotError, match=r"may have lost rows.* streams=a") as raised:
            guard(one, storage)
        assert raised.value.hint.endswith("singer-bridge run shop --full -s a")
    guard(off, storage, full=True).close(ended=False)
    with pytest.raises(SlotError, match="may have lost"):
        guard(off, storage)
    guard(off, storage, full=True).close(ended=True)
    guard(off, storage).close(ended=True)


def test_a_run_of_other_streams_forgets_nothing(pipeline: Any, storage: LocalStorage) -> None:
    """What was lost of one stream is still lost after a clean run of another."""
    off = pipeline(**LOGIN, slot={"guard": "off"})
    guard(off, storage, names="a").close(ended=False)
    guard(off, storage, names="b").close(ended=True)
    with pytest.raises(SlotError, match="streams=a"):
        guard(off, storage, names="a")


def test_streams_that_share_a_slot_without_the_guard(pipeline: Any, storage: LocalStorage) -> None:
    """Each connection confirms the rows of the other: refused, unless the tap reads them by one connection."""
    with pytest.raises(SlotError, match="share a replication slot"):
        guard(pipeline(**LOGIN, slot={"guard": "off"}), storage, names="ab")
    one = pipeline(**LOGIN, slot={"guard": "off"}, log_based_single_connection=True)
    assert guard(one, storage, names="ab").warnings


@pytest.mark.parametrize(
    ("config", "reason"),
    [({**LOGIN, "ssh_tunnel": {"enable": True}}, "SSH tunnel"), ({}, "do not tell how to connect")],
)
def test_why_there_is_no_guard(pipeline: Any, storage: LocalStorage, config: dict[str, Any], reason: str) -> None:
    """The run's warnings have the reason."""
    assert reason in guard(pipeline(**config), storage).warnings[0]


def test_nothing_to_guard(pipeline: Any, storage: LocalStorage) -> None:
    """Other taps and other streams are left alone; pipelinewise' default method counts."""
    mysql = pipeline("tap-mysql", **LOGIN)
    database, asked = SourceDatabase(mysql, mysql.source.argv), Asked("r", [("ab",)], False, False)
    assert begin(mysql, database, storage, Snapshot(), TABLES, asked) == SlotGuard()
    given = catalog(stream("a", selected=True), stream("b", selected=True, replication_method="FULL_TABLE"))
    assert log_based(pipeline(**LOGIN), given) == []
    assert log_based(pipeline(WISE, **LOGIN, default_replication_method="LOG_BASED"), given) == ["a"]
    assert list(storage.list(".bridge/shop")) == []


def test_what_a_bookmark_is_lowered_to() -> None:
    """The tap is given what is proven; other streams keep theirs."""
    state = {"bookmarks": {"a": {"lsn": 9, "version": 1, "xmin": 5}, "b": {"lsn": 4}, "c": {"id": 1}}}
    given = SlotGuard(lowered={"a": 7, "b": 7}).handed(state)
    assert given == {
        "bookmarks": {"a": {"lsn": 7, "version": 1, "xmin": None}, "b": {"lsn": 4, "xmin": None}, "c": {"id": 1}}
    }
    assert SlotGuard().handed(state) is state
    again = SlotGuard(lowered={"a": 7}, forgotten=frozenset("a")).handed(state)
    assert again["bookmarks"].keys() == {"b", "c"}


ONE, TWO = Branch("7", ((1, 0),)), Branch("7", ((1, 0), (2, 500)))


@pytest.mark.parametrize(
    ("mine", "other", "end"),
    [
        (ONE, ONE, None),
        (ONE, TWO, 500),  # a standby was promoted
        (TWO, ONE, 500),  # back to the old primary
        (TWO, Branch("7", ((1, 0), (2, 300))), 300),  # two standbys, both promoted to timeline 2
        (TWO, Branch("7", ((1, 0), (2, 500), (3, 900))), 900),
        (ONE, Branch("8", ((1, 0),)), 0),
    ],
)
def test_up_to_where_two_logs_are_one(mine: Branch, other: Branch, end: int | None) -> None:
    """By what their histories have in common."""
    assert mine.common_end(other) == end


def test_a_history_as_postgresql_writes_it() -> None:
    """One line for each older timeline, with the place where it was left; comments and blank lines may be there."""
    history = "1\t0/1F4\tno recovery target specified\n\n# a comment\n2\t1/0\tbefore 2026-01-01\n"
    assert timelines(3, history) == ((1, 0), (2, 500), (3, 1 << 32))
    assert timelines(1, "") == ((1, 0),)


@pytest.mark.parametrize(
    ("position", "noted", "now", "why"),
    [
        (400, None, Server(None, 100, 500), ""),
        (600, None, Server(None, 100, 500), "its log ends before the bookmark"),
        (400, Server(ONE, 300, 450, 200), Server(ONE, 250, 900), ""),  # a crash may take the slot back so far
        (400, Server(ONE, 300, 450, 200), Server(ONE, 150, 900), "the replication slot is an older one"),
        (400, Server(ONE, 300, 450), Server(TWO, 300, 900), ""),
        (600, Server(ONE, 300, 650), Server(TWO, 300, 900), "its timeline left that of the bookmark"),
        (400, Server(ONE, 300, 450), Server(Branch("8", ((1, 0),)), 300, 900), "it is another server"),
        (600, Server(ONE, 300, 650), Server(None, 300, 900), ""),  # the role may not ask
    ],
)
def test_a_server_that_was_set_back(position: int, noted: Server | None, now: Server, why: str) -> None:
    """Refused is what cannot come of a crash; what can is left to a warning."""
    error = set_back("a", position, noted, now)
    assert (why in error.message and error.message.startswith("the database was set back")) if error else not why


def test_the_note_of_a_server(storage: LocalStorage) -> None:
    """It comes back as it was; a note of an older version has none."""
    note = Note("s", "r", True, {"a": Safe(7, None)}, (), Server(TWO, 300, 650, 200), ("copy",))
    assert NoteFile(storage, "shop").write(note)
    assert NoteFile(storage, "shop").note == note
    file = storage.root / ".bridge" / "shop" / "slot.json"
    old = {key: value for key, value in json.loads(file.read_text()).items() if key not in ("server", "copies")}
    file.write_text(json.dumps(old))
    assert NoteFile(storage, "shop").note == replace(note, server=None, copies=())


@pytest.mark.parametrize("letters", range(1, 48))
def test_the_name_of_a_copy_fits(pipeline: Any, letters: int) -> None:
    """Whatever the database is called; two processes and two runs have two names, and the tap finds each."""
    source = slot_of(pipeline(WISE, **LOGIN, dbname="d" * letters, tap_id="x"))
    if source.room < 6:
        assert letters > 43
        return
    runs = [copies.names(source, run, [["a"], ["b"]], ["a", "b"], copies.prefix("file:///lake", "p")) for run in "12"]
    names = [copy for run in runs for copy in run if copy]
    assert len({name for name, _ in names}) == 4
    assert all(len(name) <= 63 and name == source.shared_slot + "_" + tap_id for name, tap_id in names)


def test_a_note_names_no_slot_of_others(pipeline: Any) -> None:
    """Slots that the note in the bucket names are dropped if they can be copies of ours, and no others."""
    meltano = slot_of(pipeline(**LOGIN, database="shop", replication_slot_name="mine"))
    others = ["mine", "other", "pipelinewise_shop_x", "bridge_x", "abcdef", "bridge_0123456789_abcdef_0_mine"]
    for source in (meltano, *(slot_of(pipeline(WISE, **LOGIN, dbname="d" * n, tap_id="x")) for n in (4, 25, 40))):
        made = copies.names(source, "run", [["a"], ["b"]], ["a", "b"], copies.prefix("file:///lake", "p"))
        mine = [copy[0] for copy in made if copy]
        assert len(mine) == 2
        assert copies.own(source, [*others, source.slot, *mine]) == mine
