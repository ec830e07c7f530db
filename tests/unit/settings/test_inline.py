"""A pipeline from the command line's flags, without any file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.settings.inline import inline_pipeline
from bridge.settings.options import Pipeline
from tests.unit.settings.settings_files import PASSWORD, refused


def inline(**flags: Any) -> Pipeline:
    """Return a pipeline from the command line's values, defaults for what is not given."""
    values: dict[str, Any] = {"name": "smoke", "bucket": "./lake", "tap": "tap-x --flag", "tap_config": None}
    return inline_pipeline(**({"catalog": None, "load_method": None, "environ": {}} | values | flags))


def test_inline_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline needs no file: flags give it, inline JSON its config, `${VAR}` hides a password."""
    monkeypatch.chdir(tmp_path)
    config = '{"port": 5, "password": "${PW}", "list": ["$${x"]}'
    pipeline = inline(tap_config=config, catalog="c.json", load_method="overwrite", environ={"PW": PASSWORD})
    assert pipeline.source.config == {"port": 5, "password": PASSWORD, "list": ["${x"]}
    assert (pipeline.source.argv, pipeline.source.catalog) == (["tap-x", "--flag"], tmp_path / "c.json")
    assert (pipeline.destination.bucket, pipeline.destination.load_method) == (str(tmp_path / "lake"), "overwrite")
    assert pipeline.table_root == "smoke"
    assert pipeline.secrets == {PASSWORD}
    (tmp_path / "tap.json").write_text(json.dumps({"token": PASSWORD}))
    pipeline = inline(tap_config="tap.json")
    assert pipeline.source.config == tmp_path / "tap.json"
    assert pipeline.secrets == {PASSWORD}


def test_inline_pipeline_without_a_tap() -> None:
    """A bucket can be looked at without a tap; asking for the tap's command then says what is missing."""
    pipeline = inline(tap=None)
    assert (pipeline.table_root, pipeline.source.config) == ("smoke", {})
    assert "smoke" in repr(pipeline)
    assert "--tap" in refused(lambda: pipeline.source.argv).hint


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"name": "../x"}, "--name: not a name for a pipeline"),
        ({"tap": "tap 'x"}, "--tap: quotes are not closed"),
        ({"tap": ""}, "--tap: must not be empty"),
        ({"tap": None, "tap_config": "{}"}, "--tap-config and --catalog need a tap"),
        ({"tap_config": "{" + PASSWORD}, "--tap-config: not valid JSON"),
        ({"tap_config": '{"a": "${NOPE}"}'}, "--tap-config: variable is not set variable=NOPE"),
        ({"tap_config": "/nowhere/x.json"}, "--tap-config: cannot read the tap's settings reason=No such file"),
        ({"tap_config": ""}, "--tap-config: must not be empty"),
        ({"load_method": "apend-only"}, "--load-method: must be auto, append-only, overwrite, upsert or history"),
        ({"bucket": ""}, "--to: must be a folder or the address of a bucket"),
        ({"bucket": "s3://Lake"}, "--to: not the name of an S3 bucket"),
        ({"bucket": f"s3://key:{PASSWORD}@lake"}, "--to: no keys in the address of a bucket"),
    ],
)
def test_inline_mistakes_name_their_flag(flags: dict[str, Any], message: str) -> None:
    """A mistake on the command line is told by its flag."""
    assert refused(lambda: inline(**flags)).message.startswith(message)
