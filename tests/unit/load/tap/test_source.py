"""What a tap is given, and what it is asked: its catalog by the flag that it knows, nothing that it would ignore."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError, TapError
from bridge.load.tap.source import Source, silent
from bridge.protocol.singer.catalog import selected_streams
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog, old_stream, stream
from tests.unit.conftest import Load

PROGRAM = """
import json, pathlib, sys
here = pathlib.Path(__file__)
asked = here.with_suffix(".asked")
words = [word for word in sys.argv[1:] if not word.startswith("/")]
asked.open("a").write(" ".join(words) + "\\n")
if "--discover" in words:
    sys.stdout.write(here.with_suffix(".json").read_text())
elif "--help" in words:
    print(here.with_suffix(".help").read_text())
"""


class Scripted:
    """A tap that prints what lies beside it, and notes what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.program, self.folder = folder / "tap-scripted", folder
        self.program.write_text(f"#!{sys.executable}\n{PROGRAM}")
        self.program.chmod(0o755)
        self.says(catalog(stream("users", selected=True), stream("orders")))
        self.helps("--config --state --catalog --discover")

    def says(self, answer: Any) -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.program.with_suffix(".json").write_text(text)

    def helps(self, text: str) -> None:
        self.program.with_suffix(".help").write_text(f"usage: tap [--config FILE] {text}\n")

    @property
    def asked(self) -> list[str]:
        asked = self.program.with_suffix(".asked")
        return asked.read_text().splitlines() if asked.exists() else []


@pytest.fixture
def tap(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


@pytest.fixture
def source(tap: Scripted, settings: Load, tmp_path: Path) -> Any:
    """The source of a pipeline with that tap and these further settings."""

    def make(flags: str = "", streams: dict[str, Any] | None = None, **given: Any) -> Source:
        base = {"source": {"tap": f"{tap.program}{flags}", **given}, "destination": {"bucket": "lake"}}
        base |= {"streams": streams} if streams else {}
        pipeline: Pipeline = settings(json.dumps({"pipelines": {"shop": base}})).pipeline("shop")
        return Source(pipeline, tmp_path / "home")

    return make


def started(source: Source, given: dict[str, Any] | None) -> None:
    """Start the tap with a catalog and wait for its end."""
    with open(os.devnull, "wb") as log, source.start(given, None, log) as tap:
        assert not list(tap.chunks(idle=None, tick=lambda: None))
        tap.wait(idle=None, tick=lambda: None)


@pytest.mark.parametrize(
    ("offers", "given", "flag"),
    [
        ("--catalog FILE", stream("users", selected=True), "--catalog"),
        ("--properties FILE", stream("users", selected=True), "--properties"),
        ("-p, --properties FILE --catalog FILE", stream("users", selected=True), "--catalog"),
        ("-p, --properties FILE --catalog FILE", old_stream("users", selected=True), "--properties"),
        ("--properties-of FILE", stream("users", selected=True), "--catalog"),
        ("", stream("users", selected=True), "--catalog"),
    ],
)
def test_the_flag_that_the_tap_knows(tap: Scripted, source: Any, offers: str, given: Any, flag: str) -> None:
    """Discovery learns it from --help and remembers it: a run does not ask again."""
    tap.helps(offers)
    tap.says(catalog(given))
    source().discover()
    assert tap.asked == ["--discover --config", "--help --config"]
    asked, _ = (made := source()).catalog([], refresh=False)
    started(made, asked)
    assert tap.asked[2:] == ["--discover --config", f"--config {flag}"]


def test_the_flag_is_asked_once(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """A catalog that was given, not discovered, costs one question, and the second run none."""
    (tmp_path / "catalog.json").write_text(json.dumps(catalog(stream("users", selected=True))))
    tap.helps("--properties FILE")
    for _ in range(2):
        made = source(catalog="catalog.json")
        started(made, made.catalog([], refresh=False)[0])
    assert tap.asked == ["--help --config", "--config --properties", "--config --properties"]


def test_the_flag_may_be_forced(tap: Scripted, source: Any) -> None:
    """Written last and without a value in source.tap it is used, whatever the tap says of itself."""
    made = source(" --flag --properties")
    started(made, catalog(stream("users")))
    started(made, None)
    assert tap.asked == ["--flag --config --properties", "--flag --config"]


def test_two_catalogs_are_refused(source: Any) -> None:
    """A tap whose command names a catalog cannot be passed another one."""
    with pytest.raises(SettingsError, match="a catalog of its own flag=--catalog"):
        source(" --catalog /c.json --flag").start(catalog(stream("users")), None, None)


def test_a_discovery_keeps_edits(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """Edits of the stored catalog survive the next discovery, and new things are reported."""
    source().discover()
    kept = tmp_path / "home/catalogs/shop.json"
    edited = json.loads(kept.read_text())
    edited["streams"][1]["metadata"][0]["metadata"]["selected"] = True
    kept.write_text(json.dumps(edited))
    tap.says(catalog(stream("users", selected=True), stream("orders"), stream("items")))
    made = source()
    found, deselected = made.catalog([], refresh=True)
    assert selected_streams(found) == {"users", "orders"}
    assert deselected == {"items"}
    assert made.notes == ["new stream: items"]
    assert json.loads(kept.read_text()) == found


def test_a_catalog_of_ones_own_is_kept_up(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """With source.catalog, a discovery writes into that file, and only if something changed."""
    own = tmp_path / "catalog.json"
    text = json.dumps(catalog(stream("users", selected=False)))
    own.write_text(text)
    tap.says(catalog(stream("users", selected=True)))
    source(catalog="catalog.json").discover()
    assert own.read_text() == text
    tap.says(catalog(stream("users", "id more", selected=True), stream("orders", selected=True)))
    made = source(catalog="catalog.json")
    made.discover()
    assert made.discovery.lines() == [
        "new stream: orders",
        "users: new column more",
        "users: gone column secret_pin",
        "users: gone column note",
    ]
    assert selected_streams(json.loads(own.read_text())) == {"orders"}
    assert not (tmp_path / "home/catalogs/shop.json").exists()


def test_no_edit_is_lost_to_a_broken_file(source: Any, tmp_path: Path) -> None:
    """A stored catalog that is not JSON stops a discovery and a run, and stays as it is."""
    kept = tmp_path / "home/catalogs/shop.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"streams": [')
    for ask in (source().discover, lambda: source().catalog([], refresh=False)):
        with pytest.raises(SettingsError, match="not a catalog") as caught:
            ask()
        assert "without your edits" in caught.value.hint
    assert kept.read_text() == '{"streams": ['


def test_a_catalog_that_is_not_there(source: Any) -> None:
    """source.catalog has to exist for a run; a discovery makes it."""
    with pytest.raises(SettingsError, match="cannot read the catalog"):
        source(catalog="mine.json").catalog([], refresh=False)
    (mine := source(catalog="mine.json")).catalogs.file.touch()  # as a shell does before `discover --json > mine.json`
    mine.discover()
    assert source(catalog="mine.json").catalog([], refresh=False)[1] == {"orders"}


def test_choices_and_overrides_reach_the_catalog(source: Any) -> None:
    """select and streams are written into the passed catalog; patterns that match nothing are reported."""
    made = source(select=["orders", "ordrs", "!*.secret_key"], streams={"orders": {"replication_key": "note"}})
    passed, deselected = made.catalog([], refresh=False)
    assert selected_streams(passed) == {"orders"}
    assert deselected == {"users"}
    assert passed["streams"][1]["replication_key"] == "note"
    assert made.notes == ['select: ordrs matches nothing. did you mean "orders"?']


def test_a_stream_by_the_name_of_its_records(tap: Scripted, source: Any) -> None:
    """`--stream` takes it, too; of two streams of one name the one that is selected is meant."""
    people = [stream(name) | {"stream": "people"} for name in ("crm-people", "shop-people")]
    tap.says(catalog(*people))
    for name in ("people", "shop-people"):
        passed, _ = source(select=["shop-people"]).catalog([name], refresh=True)
        assert selected_streams(passed) == {"shop-people"}


def test_a_catalog_that_selects_nothing(tap: Scripted, source: Any) -> None:
    """Databases' taps leave the choice to the user: a run that would load nothing says so and how to choose."""
    tap.says(catalog(stream("users"), old_stream("orders")))
    source().discover()
    with pytest.raises(SettingsError, match="the catalog selects no stream") as caught:
        source().catalog([], refresh=False)
    assert "singer-bridge select shop STREAM" in caught.value.hint
    assert selected_streams(source(select=["orders"]).catalog([], refresh=False)[0]) == {"orders"}
    assert selected_streams(source().catalog(["users"], refresh=False)[0]) == {"users"}
    tap.says(catalog())
    assert source().catalog([], refresh=True) == (catalog(), set())


@pytest.mark.parametrize(
    ("given", "only", "message"),
    [
        ({"select": ["users"]}, [], "no effect without a catalog setting=source.select"),
        ({"streams": {"users": {"replication_key": "at"}}}, [], "no effect without a catalog setting=streams"),
        ({}, ["users"], "--stream needs a catalog"),
    ],
)
def test_what_needs_a_catalog_is_refused_without(
    tap: Scripted, source: Any, given: Any, only: list[str], message: str
) -> None:
    """A tap that does not discover would send the columns that were excluded: the run does not begin."""
    tap.says('{"type": "SCHEMA", "stream": "users"}\n{"type": "RECORD"}\n')
    with pytest.raises(SettingsError, match=message):
        source(**given).catalog(only, refresh=False)
    made = source()
    assert made.catalog([], refresh=True) == (None, set())
    assert made.notes == ["this tap has no --discover"]


def test_what_is_no_catalog_shows_what_it_is(tap: Scripted, source: Any) -> None:
    """If stdout has a banner, or nothing at all, the error has the tap's own words."""
    tap.says("Welcome to tap\n{}")
    with pytest.raises(TapError, match="printed no catalog, it begins with: Welcome to tap") as caught:
        source().discover()
    assert "set source.catalog" in caught.value.hint
    tap.says("")
    with pytest.raises(TapError, match="printed nothing"):
        source().discover()


def test_a_discovery_that_fails_shows_why(tap: Scripted, source: Any) -> None:
    """The hint has the tap's last lines on stderr, secrets masked, and the stored catalog stays."""
    tap.program.with_suffix(".json").unlink()
    with pytest.raises(TapError, match=r"the tap failed: \*\*\*: .* exit_code=1") as caught:
        source(config={"password": "FileNotFoundError"}).discover()
    assert "tap-scripted.json" in caught.value.hint
    assert "FileNotFoundError" not in caught.value.hint


def retyped(kind: str) -> dict[str, Any]:
    """The catalog of a tap whose column `note` has that type, and which has one more column then."""
    users = stream("users", "id secret_pin note more" if kind != "string" else "id secret_pin note", selected=True)
    users["schema"]["properties"]["note"] = {"type": ["null", kind]}
    users["metadata"][3]["metadata"]["sql-datatype"] = kind
    return catalog(users, stream("orders"))


def note_of(found: dict[str, Any]) -> tuple[list[str], str]:
    """The type of `users.note` in a catalog, and what its metadata says of it."""
    (users,) = (s for s in found["streams"] if s["stream"] == "users")
    facts = {tuple(entry["breadcrumb"][1:]): entry["metadata"] for entry in users["metadata"]}
    return users["schema"]["properties"]["note"]["type"], facts[("note",)]["sql-datatype"]


WARN = {"*": {"new_columns": "warn"}}


def test_a_changed_type_is_noticed_before_the_run(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """The stored catalog gets the column's new type and metadata, with a warning; all else waits for `discover`."""
    tap.says(retyped("string"))
    source().discover()
    tap.says(retyped("integer"))
    found, _ = (made := source(streams=WARN)).catalog([], refresh=False)
    assert note_of(found) == (["null", "integer"], "integer")
    changed = "users: type of note was string or null, is integer or null; the kept catalog was brought up to date"
    assert made.notes == [changed]
    assert json.loads((tmp_path / "home/catalogs/shop.json").read_text()) == found
    assert "more" not in found["streams"][0]["schema"]["properties"]
    again = source(streams=WARN)
    assert again.catalog([], refresh=False)[0] == found
    assert again.notes == []
    again.discover()
    assert again.discovery.lines() == ["users: new column more"]


def test_a_stream_that_the_tap_lost_is_noticed_before_the_run(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """As a role whose right was revoked: one run says so, and the catalog stays. Own entries do not count."""
    source().discover()
    kept = tmp_path / "home/catalogs/shop.json"
    stored = json.loads(kept.read_text())
    stored["streams"].append(stream("mine", selected=True))
    kept.write_text(json.dumps(stored))
    made = source()
    assert made.catalog([], refresh=False)[0] == stored
    assert made.notes == []
    tap.says(catalog(stream("orders")))
    for texts in (["the source has no such table any more"], []):
        made = source()
        assert made.catalog([], refresh=False)[0] == stored
        assert [news.text.partition(":")[0] for news in made.news] == texts
    assert json.loads(kept.read_text()) == stored


def test_a_type_of_a_stream_that_is_not_loaded(tap: Scripted, source: Any) -> None:
    """Nobody need hear of it."""
    tap.says(retyped("string"))
    source(select=["orders"]).discover()
    tap.says(retyped("integer"))
    found, _ = (made := source(select=["orders"])).catalog([], refresh=False)
    assert (note_of(found)[0], made.notes) == (["null", "string"], [])


def test_an_edited_type_stands(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """The user's edits of the stored catalog are not overwritten, and a note says that the tap differs."""
    tap.says(retyped("string"))
    source().discover()
    kept = tmp_path / "home/catalogs/shop.json"
    edited = json.loads(kept.read_text())
    edited["streams"][0]["schema"]["properties"]["note"]["type"] = ["null", "number"]
    kept.write_text(json.dumps(edited))
    tap.says(retyped("integer"))
    found, _ = (made := source()).catalog([], refresh=False)
    assert note_of(found)[0] == ["null", "number"]
    assert any("your edit stands" in note for note in made.notes)


@pytest.mark.parametrize("why", ["never", "slow", "given", "unasked"])
def test_the_tap_is_not_asked_before_each_run(tap: Scripted, source: Any, tmp_path: Path, why: str) -> None:
    """Not where the settings say so, not a tap that was slow, nor where the catalog is not ours or nobody runs."""
    tap.says(retyped("string"))
    settings: dict[str, Any] = {"discover": "never"} if why == "never" else {}
    source(**settings).discover()
    if why == "slow":
        memory = tmp_path / "home/catalogs/discovered/shop.json"
        memory.write_text(json.dumps(json.loads(memory.read_text()) | {"seconds": 60}))
    if why == "given":
        (tmp_path / "mine.json").write_text((tmp_path / "home/catalogs/shop.json").read_text())
        settings = {"catalog": "mine.json"}
    tap.says(retyped("integer"))
    asked = len(tap.asked)
    found, _ = source(**settings).catalog([], refresh=False, compare=why != "unasked")
    assert note_of(found)[0] == ["null", "string"]
    assert len(tap.asked) == asked


def test_a_tap_that_fails_to_discover_runs(tap: Scripted, source: Any) -> None:
    """What is wrong with it, its extraction says better."""
    tap.says(retyped("string"))
    source().discover()
    tap.says("no catalog")
    found, _ = (made := source()).catalog([], refresh=False)
    assert (note_of(found)[0], made.notes) == (["null", "string"], [])


def whole(name: str) -> dict[str, Any]:
    return stream(name, replication_method="FULL_TABLE")


def test_a_run_asks_by_itself_and_passes_nothing(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """Without a catalog the tap extracts as before; what it says of its streams is kept, and the quick one is asked
    again, as its streams may be others.
    """
    tap.says(catalog(whole("rates")))
    assert (made := source()).catalog([], refresh=False) == (None, set())
    assert made.declared == catalog(whole("rates"))
    assert not (tmp_path / "home/catalogs/shop.json").exists()
    assert tap.asked == ["--help --config", "--discover --config"]
    tap.says(catalog(whole("rates"), whole("items")))
    assert (again := source()).catalog([], refresh=False) == (None, set())
    assert again.declared == catalog(whole("rates"), whole("items"))
    assert tap.asked[2:] == ["--discover --config"]
    tap.says("no catalog")  # what it said before still holds
    assert (broken := source()).catalog([], refresh=False) == (None, set())
    assert broken.declared == again.declared


def test_a_slow_tap_is_asked_once(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """Its answer of the first run counts, until the tap is another one."""
    source().catalog([], refresh=False)
    memory = tmp_path / "home/catalogs/discovered/shop.json"
    noted = json.loads(memory.read_text())
    noted["declared"]["seconds"] = 60
    memory.write_text(json.dumps(noted))
    (made := source()).catalog([], refresh=False)
    assert (len(tap.asked), made.declared) == (2, noted["declared"]["catalog"])
    noted["declared"]["version"] = "0.9"
    memory.write_text(json.dumps(noted))
    source().catalog([], refresh=False)
    assert tap.asked[2:] == ["--help --config", "--discover --config"]


def test_a_tap_that_knows_no_discover_is_never_started_with_it(tap: Scripted, source: Any) -> None:
    """It would extract, and what a queue gave once, no later run gets; it is asked for its flags once."""
    tap.helps("--config --state")
    for _ in range(2):
        assert (made := source()).catalog([], refresh=False) == (None, set())
        assert made.declared is None
    assert tap.asked == ["--help --config"]


@pytest.mark.parametrize("why", ["never", "chosen", "shared"])
def test_where_nothing_is_to_be_decided_nobody_asks(tap: Scripted, settings: Load, tmp_path: Path, why: str) -> None:
    """Not where the settings forbid it, nor where they say themselves how each stream is loaded."""
    destination: dict[str, Any] = {"bucket": "lake"}
    destination |= {"chosen": {"load_method": "upsert"}, "shared": {"path": "raw", "shared": True}}.get(why, {})
    given = {"tap": str(tap.program), "discover": "never" if why == "never" else "auto"}
    text = json.dumps({"pipelines": {"shop": {"source": given, "destination": destination}}})
    made = Source(settings(text).pipeline("shop"), tmp_path / "home")
    assert made.catalog([], refresh=False) == (None, set())
    assert (made.declared, tap.asked) == (None, [])


def test_nothing_came_and_what_there_is() -> None:
    """A tap that waits for a choice is answered with the streams that it has, the database's own last."""
    declared = catalog(stream("pg_catalog-x"), stream("public-orders"))
    assert "it has public-orders, pg_catalog-x, and extracts only what is selected" in silent("shop", declared)
    for unknown in (None, catalog(), catalog(stream("users", selected=True))):
        assert "singer-bridge discover shop" in silent("shop", unknown)
