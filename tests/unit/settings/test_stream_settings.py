"""`streams`: what is different for single streams, by globs; the last one that matches wins."""

from __future__ import annotations

import pytest

from bridge.settings.destination import StreamKeys
from tests.unit.settings.settings_files import GOOD, Load, pipeline_text, refused

STREAMS = """\
streams:
  "public-*": {load_method: overwrite, key_properties: [id]}
  "*-log": {load_method: append-only}
  public-users: {key_properties: [], replication_method: INCREMENTAL, replication_key: updated}
"""


def test_the_last_glob_wins_key_by_key(settings: Load) -> None:
    """Each key of a stream comes from the last glob that matches it and has the key."""
    pipeline = settings(pipeline_text(more=STREAMS)).pipeline(None)
    assert pipeline.stream("public-users") == StreamKeys(
        load_method="overwrite", key_properties=[], replication_method="INCREMENTAL", replication_key="updated"
    )
    assert pipeline.stream("public-log") == StreamKeys(load_method="append-only", key_properties=["id"])
    assert pipeline.stream("other") == StreamKeys()
    assert pipeline.glob_of("public-log", "load_method") == "*-log"
    assert pipeline.glob_of("public-log", "key_properties") == "public-*"
    assert pipeline.glob_of("other", "load_method") is None


def test_a_stream_without_a_glob_is_loaded_as_the_destination_says(settings: Load) -> None:
    """`load_method` of a stream goes before that of the destination, and only there."""
    pipeline = settings(pipeline_text(destination="load_method: append-only", more=STREAMS)).pipeline(None)
    methods = [pipeline.load_method(name) for name in ("public-users", "public-log", "other")]
    assert methods == ["overwrite", "append-only", "append-only"]


@pytest.mark.parametrize(
    ("streams", "names", "expected"),
    [
        ("{}", [], False),
        ('{"a*": {load_method: append-only}}', [], True),
        ('{"a*": {load_method: append-only}}', ["abc"], True),
        ('{"a*": {load_method: append-only}}', ["b"], False),
        ('{"a*": {load_method: append-only}, ab: {load_method: overwrite}}', ["ab"], False),
    ],
)
def test_append_only_streams_are_known_before_a_run(
    settings: Load, streams: str, names: list[str], expected: bool
) -> None:
    """`--full` is refused where it could double rows: for the streams that were named, else for any there may be."""
    assert settings(pipeline_text(more=f"streams: {streams}")).pipeline(None).appends_only(names) is expected


def test_globs_of_upper_layers_come_last(settings: Load) -> None:
    """What a pipeline or an environment says of a stream wins over the defaults, however the globs are spelled."""
    text = (
        'defaults: {streams: {a: {load_method: append-only}, "*": {load_method: overwrite}}}\n'
        "environments: {prod: {defaults: {streams: {z: {load_method: auto}}}}}\n"
    ) + pipeline_text(more="streams: {a: {load_method: append-only}}")
    assert settings(text).pipeline(None).load_method("a") == "append-only"
    prod = settings(text, env="prod").pipeline(None)
    assert list(prod.streams) == ["*", "z", "a"]


@pytest.mark.parametrize(
    ("streams", "message", "hint"),
    [
        ('{"": {}}', "not a glob of stream names", "every stream"),
        ('{" a": {}}', "not a glob of stream names", "every stream"),
        ('{"!a*": {}}', "a glob here cannot exclude key=pipelines.flights.streams.!a*", "last match"),
        ('{"a[b": {}}', "a bracket is not closed", "[[]"),
        ('["a*"]', "must be a mapping key=pipelines.flights.streams", "below it"),
        ("{a: 5}", "must be a mapping key=pipelines.flights.streams.a", "below it"),
        ("{a: {load_methd: auto}}", "unknown key pipelines.flights.streams.a.load_methd", '"load_method"'),
        ("{a: {select: [b]}}", "unknown key pipelines.flights.streams.a.select", '"select" belongs under "source"'),
        ("{a: {retry: {}}}", "unknown key pipelines.flights.streams.a.retry", "one level higher"),
        ("{a: {load_method: append}}", "must be auto, append-only, overwrite, upsert or history", '"append-only"'),
        ("{a: {key_properties: id}}", "must be a list key=pipelines.flights.streams.a.key_properties", "["),
        ("{a: {replication_method: FULLTABLE}}", "must be FULL_TABLE, INCREMENTAL or LOG_BASED", '"FULL_TABLE"'),
    ],
)
def test_wrong_streams_are_refused(settings: Load, streams: str, message: str, hint: str) -> None:
    """A glob that can match nothing, and a key that a stream does not have, are told with their line."""
    error = refused(lambda: settings(pipeline_text(more=f"streams: {streams}")))
    assert f"bridge.yaml:7: {message}" in error.message
    assert hint in error.hint
    assert "[key]" not in error.message


def test_brackets_in_a_glob(settings: Load) -> None:
    """A bracket that is closed is a set of characters, one in a set is itself."""
    pipeline = settings(pipeline_text(more='streams: {"a[bc]": {load_method: auto}, "x[[]y": {load_method: auto}}'))
    found = [pipeline.pipeline(None).glob_of(name, "load_method") for name in ("ab", "ad", "x[y")]
    assert found == ["a[bc]", None, "x[[]y"]
    assert settings(GOOD).pipeline(None).streams == {}
