"""Keys with dots, as Meltano 4.4.1 gave them to a plugin: nested from meltano.yml, dropped from the environment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from target_bridge.dotted import as_written

from bridge.errors import SettingsError


def exported(**settings: Any) -> dict[str, str]:
    """Meltano's variables of settings, by their names there."""
    return {f"MELTANO_LOAD_{name.upper()}": json.dumps(value) for name, value in settings.items()}


MASK = {"*.item": "hash", "phone": "redact", "public-orders.email": "last4"}
STREAMS = {"public.orders": {"load_method": "history", "partition_by": ["a"]}, "x-y": {"rename": {"a.b": "c"}}}
CATALOG = {"name": "x", "properties": {"uri": "u", "s3.endpoint": "e", "rest.a.b": "c"}}


@pytest.mark.parametrize(
    "config",
    [
        {"mask": {"phone": "redact", "*": {"item": "hash"}, "public-orders": {"email": "last4"}}},
        {"streams": {"public": {"orders": STREAMS["public.orders"]}, "x-y": {"rename": {"a": {"b": "c"}}}}},
        {"spark": {"conf": {"spark": {"sql": {"shuffle": {"partitions": "3"}}}}}},
        {"catalog": {"name": "x", "properties": {"uri": "u", "s3": {"endpoint": "e"}, "rest": {"a": {"b": "c"}}}}},
    ],
    ids=lambda config: next(iter(config)),
)
def test_objects_of_meltano_yml_are_keys_again(config: dict[str, Any]) -> None:
    written = {"mask": MASK, "streams": STREAMS, "spark": {"conf": {"spark.sql.shuffle.partitions": "3"}}}
    assert as_written(config, {}) == {name: (written | {"catalog": CATALOG})[name] for name in config}


def test_keys_that_were_dropped_are_there_again() -> None:
    """What Meltano left of variables whose keys had dots."""
    left = {"mask": {"phone": "redact"}, "streams": {}, "catalog": {"name": "x", "properties": {"uri": "u"}}}
    environ = exported(mask=MASK, streams=STREAMS, catalog=CATALOG, spark_conf={"spark.sql.x": "y"})
    settings = as_written(left, environ)
    assert settings == {"mask": MASK, "streams": STREAMS, "catalog": CATALOG, "spark": {"conf": {"spark.sql.x": "y"}}}


def test_a_variable_of_meltano_yml_has_dots_throughout() -> None:
    """So Meltano exports what it read from its file; and a dot may be written as `\\.`."""
    environ = exported(streams={"public.orders.load_method": "history", "public.orders.partition_by": ["a"]})
    assert as_written({}, environ) == {"streams": {"public.orders": STREAMS["public.orders"]}}
    assert as_written({"mask": {"*.item": "hash"}}, exported(mask={"*\\.item": "hash"})) == {"mask": {"*.item": "hash"}}


def test_what_needs_nothing_stays_as_it_is() -> None:
    """Also a glob with a part that is the name of a setting, and what is wrong: the schema refuses it."""
    config = {"mask": MASK, "streams": {**STREAMS, "x.columns": {"load_method": "upsert"}, "y": 3}, "spark": "local"}
    assert as_written(config, {"MELTANO_LOAD_MASK": "no JSON", "MELTANO_LOAD_STREAMS": "3"}) == config
    assert as_written({"mask": "hash", "catalog": None}, {}) == {"mask": "hash", "catalog": None}


def test_a_lost_key_of_the_sdk_is_refused() -> None:
    """A stream that would go unmapped."""
    maps = {"public.orders": {"email": "md5(email)"}}
    with pytest.raises(SettingsError, match=r"stream_maps: Meltano left out 'public.orders.email'") as refused:
        as_written({"stream_maps": {}}, exported(stream_maps=maps))
    assert r"`\.`" in refused.value.hint
    assert as_written({"stream_maps": maps}, exported(stream_maps=maps)) == {"stream_maps": maps}
