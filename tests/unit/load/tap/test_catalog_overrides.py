"""`streams` of bridge.yaml, written into the catalog: where taps of each kind look, and not past what they offer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.load.tap.catalog_overrides import named, overridden, wanted_methods, wants_catalog
from bridge.protocol.singer.catalog import column_facts, replication_key, replication_method, root_facts
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog, old_stream, stream
from tests.unit.conftest import Load

Override = Any


@pytest.fixture
def pipeline(settings: Load) -> Any:
    """A pipeline with these `streams`."""

    def make(**streams: Override) -> Pipeline:
        globs = {name.replace("_all", "*"): keys for name, keys in streams.items()}
        base = {"source": {"tap": "tap-x"}, "destination": {"bucket": "lake"}, "streams": globs}
        return settings(json.dumps({"pipelines": {"shop": base}})).pipeline("shop")

    return make


def test_both_kinds_of_taps_are_told(pipeline: Any) -> None:
    """Method, key and keys stand in the metadata and beside the schema; the columns they name are selected."""
    given = catalog(stream("users", "id at note", valid_replication_keys=["at"]), stream("orders"))
    keys = {"replication_method": "INCREMENTAL", "replication_key": "at", "key_properties": ["id"]}
    told, notes = overridden(given, pipeline(users=keys), {"users", "orders"})
    users = told["streams"][0]
    facts = root_facts(users)
    assert (facts["replication-method"], facts["replication-key"], facts["table-key-properties"]) == (
        "INCREMENTAL",
        "at",
        ["id"],
    )
    assert (users["replication_method"], users["replication_key"], users["key_properties"]) == (
        "INCREMENTAL",
        "at",
        ["id"],
    )
    assert column_facts(users)["at",]["selected"] is True
    assert told["streams"][1] == given["streams"][1]
    assert notes == []
    assert "replication_key" not in given["streams"][0]


def postgres(name: str, **facts: Any) -> Any:
    """A stream as meltanolabs-tap-postgres discovers it."""
    return stream(name, "id body", schema_name="public", forced_replication_method="", **facts)


def test_columns_that_only_the_tap_adds_are_accepted(pipeline: Any) -> None:
    """A replication key `_sdc_...` is passed on, without a note, though no catalog lists it; nor is it selected."""
    keys = {"replication_method": "LOG_BASED", "replication_key": "_sdc_lsn"}
    told, notes = overridden(catalog(stream("users", "id")), pipeline(users=keys), {"users"})
    [users] = told["streams"]
    assert (root_facts(users)["replication-key"], users["replication_key"], notes) == ("_sdc_lsn", "_sdc_lsn", [])
    assert [entry["breadcrumb"] for entry in users["metadata"] if "_sdc_lsn" in entry["breadcrumb"]] == []


@pytest.mark.parametrize("by", ["settings", "catalog"])
def test_the_tap_that_needs_its_lsn_column_as_key_gets_it(pipeline: Any, by: str) -> None:
    """Without it each run would read PostgreSQL's slot from its start: the bookmark is compared only with a key."""
    of_catalog = {"replication_method": "LOG_BASED"} if by == "catalog" else {}
    streams = {"users": {"replication_method": "LOG_BASED"}} if by == "settings" else {}
    told, notes = overridden(catalog(postgres("users", **of_catalog)), pipeline(**streams), {"users"})
    [users] = told["streams"]
    assert (replication_key(told, "users"), users["replication_key"], notes) == ("_sdc_lsn", "_sdc_lsn", [])


@pytest.mark.parametrize("other", [{"database_name": "shop"}, {"replication_key": "at"}, {"replication_method": None}])
def test_streams_that_do_not_need_the_lsn_column_keep_their_key(pipeline: Any, other: Any) -> None:
    """Another tap, a key that somebody chose, a stream that is no LOG_BASED one: nothing is added."""
    facts = {"replication_method": "LOG_BASED"} | other
    given = catalog(postgres("users", **facts))
    assert overridden(given, pipeline(), {"users"})[0] == given


def test_older_catalogs_and_views(pipeline: Any) -> None:
    """Without metadata only the places beside the schema are written; a view's keys have a name of their own."""
    told, _ = overridden(catalog(old_stream("users")), pipeline(users={"replication_method": "FULL_TABLE"}), {"users"})
    assert told["streams"][0]["replication_method"] == "FULL_TABLE"
    assert "metadata" not in told["streams"][0]
    told, _ = overridden(catalog(stream("v", is_view=True)), pipeline(v={"key_properties": ["id"]}), {"v"})
    assert root_facts(told["streams"][0])["view-key-properties"] == ["id"]


def test_globs_and_both_names(pipeline: Any) -> None:
    """The last glob wins key by key; a stream answers to its id and to the name that its RECORDs have."""
    given = catalog(stream("db-users", "id at") | {"stream": "users"})
    made = pipeline(
        _all={"replication_method": "FULL_TABLE"},
        users={"replication_key": "at"},
        **{"db-users": {"replication_method": "INCREMENTAL"}},
    )
    told, notes = overridden(given, made, {"db-users"})
    assert (replication_method(told, "users"), replication_key(told, "users")) == ("INCREMENTAL", "at")
    assert notes == []


def test_a_key_alone_means_incremental(pipeline: Any) -> None:
    """A replication key means INCREMENTAL if the tap says no method; if it says another, a note says so."""
    told, _ = overridden(catalog(stream("a", "id at")), pipeline(a={"replication_key": "at"}), {"a"})
    assert replication_method(told, "a") == "INCREMENTAL"
    given = catalog(stream("a", "id at", replication_method="FULL_TABLE"))
    told, notes = overridden(given, pipeline(a={"replication_key": "at"}), {"a"})
    assert replication_method(told, "a") == "FULL_TABLE"
    assert notes == ["the replication key at of a has no effect: its replication method is FULL_TABLE"]


def test_the_only_key_is_taken(pipeline: Any) -> None:
    """INCREMENTAL needs no key if there is only one to choose, or if the tap itself knows it."""
    incremental = pipeline(a={"replication_method": "INCREMENTAL"})
    told, _ = overridden(catalog(stream("a", "id at", valid_replication_keys=["at"])), incremental, {"a"})
    assert replication_key(told, "a") == "at"
    told, _ = overridden(catalog(stream("a", forced_replication_method="INCREMENTAL")), incremental, {"a"})
    assert replication_key(told, "a") is None


def test_a_database_may_replicate_otherwise_than_by_default(pipeline: Any) -> None:
    """SDK taps of databases write their default where other taps write what they force."""
    given = catalog(stream("a", schema_name="public", forced_replication_method="FULL_TABLE"))
    told, _ = overridden(given, pipeline(a={"replication_method": "LOG_BASED"}), {"a"})
    assert replication_method(told, "a") == "LOG_BASED"


@pytest.mark.parametrize(
    ("facts", "keys", "message", "hint"),
    [
        (
            {"forced_replication_method": "FULL_TABLE"},
            {"replication_method": "LOG_BASED"},
            "does not offer this replication method stream=users method=LOG_BASED",
            "FULL_TABLE",
        ),
        (
            {"valid_replication_keys": ["at", "seq"]},
            {"replication_key": "ta"},
            "cannot replicate by this key",
            "at, seq",
        ),
        ({}, {"replication_key": "nte"}, "replication_key: the stream has no such column", '"note"'),
        ({}, {"key_properties": ["id", "nte"]}, "key_properties: the stream has no such column", '"note"'),
        ({}, {"replication_method": "INCREMENTAL"}, "INCREMENTAL needs a replication key", "replication_key"),
        (
            {"valid_replication_keys": ["at", "seq"]},
            {"replication_method": "INCREMENTAL"},
            "needs a replication key",
            "at, seq",
        ),
    ],
)
def test_what_the_tap_does_not_offer(pipeline: Any, facts: Any, keys: Any, message: str, hint: str) -> None:
    """It is refused before the tap starts, with what there is instead; a stream that is not loaded is left in peace."""
    given = catalog(stream("users", "id note at seq", **facts))
    with pytest.raises(SettingsError, match=message) as caught:
        overridden(given, pipeline(users=keys), {"users"})
    assert hint in caught.value.hint
    assert overridden(given, pipeline(users=keys), set()) == (given, [])


def test_a_glob_that_matches_nothing(pipeline: Any) -> None:
    """It ends the run before the tap starts, with a guess: otherwise it would be ignored forever."""
    given = catalog(stream("users"))
    for glob in ("usres", "user_*"):
        with pytest.raises(SettingsError, match="settings for a stream that the tap does not have") as caught:
            overridden(given, pipeline(**{glob: {"load_method": "overwrite"}}), {"users"})
        assert caught.value.facts["glob"] == f"streams.{glob}"
    assert 'did you mean "users"?' in caught.value.hint
    overridden(catalog(), pipeline(**{"*": {"load_method": "overwrite"}}), set())


def test_a_glob_of_the_defaults_that_matches_nothing(pipeline: Any) -> None:
    """It may be meant for another pipeline of the file, so it is a note."""
    shared = pipeline(usres={"load_method": "overwrite"}).model_copy(update={"inherited": frozenset({"usres"})})
    _, notes = overridden(catalog(stream("users")), shared, {"users"})
    assert notes == ['streams.usres of the settings matches no stream. did you mean "users"?']


def test_settings_hold_by_either_name(pipeline: Any) -> None:
    """A stream is meant by its id in the catalog and by the name of its RECORDs; the last glob of the file wins."""
    given = catalog(stream("shop-people") | {"stream": "people"})
    made = named(pipeline(**{"shop-*": {"load_method": "upsert"}, "people": {"hard_delete": True}}), given)
    for name in ("shop-people", "people"):
        keys = made.stream(name)
        assert (keys.load_method, keys.hard_delete, made.load_method(name)) == ("upsert", True, "upsert")
        assert made.glob_of(name, "load_method") == "shop-*"
    overridden(given, pipeline(people={"load_method": "upsert"}), {"shop-people"})


def test_wants_catalog(pipeline: Any) -> None:
    """Only overrides that the tap must know need a catalog."""
    assert wants_catalog(pipeline(a={"replication_key": "at"}))
    assert not wants_catalog(pipeline(a={"load_method": "overwrite", "key_properties": ["id"]}))
    assert not wants_catalog(pipeline())


@pytest.mark.parametrize(
    "words", ["Exception: Unrecognized replication_method None", "KeyError: 'replication-method'", "only FULL TABLE"]
)
def test_a_tap_that_misses_a_method_is_explained(pipeline: Any, words: str) -> None:
    """The selected streams without a method are named, with the key that sets one; what has one needs no words."""
    users, rates = stream("users", selected=True), stream("rates", selected=True, replication_method="FULL_TABLE")
    given = catalog(users, rates, stream("other"))
    hint = wanted_methods(words, pipeline(), given)
    assert hint.startswith("no replication method is set for users: ")
    assert 'streams: {"users": {replication_method: FULL_TABLE}}' in hint
    told, _ = overridden(given, pipeline(users={"replication_method": "FULL_TABLE"}), {"users"})
    assert wanted_methods(words, pipeline(), told) == ""


def test_other_failures_are_not_about_methods(pipeline: Any) -> None:
    """A tap that cannot log in is not told to replicate otherwise, nor is one without a catalog."""
    assert wanted_methods("password authentication failed", pipeline(), catalog(stream("users", selected=True))) == ""
    assert wanted_methods("replication_method", pipeline(), None) == ""
