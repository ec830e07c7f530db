"""bridge.yaml: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import json
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bridge.errors import SettingsError
from bridge.settings.load import find_file, load
from tests.unit.settings.settings_files import GOOD, PASSWORD, Load, pipeline_text, refused


def test_defaults(settings: Load, tmp_path: Path) -> None:
    """A tap and a bucket are enough; everything else has the documented default."""
    pipeline = settings(GOOD).pipeline(None)
    assert (pipeline.name, pipeline.source.argv, pipeline.table_root) == ("flights", ["tap-postgres"], "flights")
    assert pipeline.destination.bucket == str(tmp_path / "lake")
    assert (pipeline.destination.load_method, pipeline.destination.compression) == ("auto", "zstd")
    assert pipeline.source.idle_timeout == timedelta(minutes=10)
    assert (pipeline.source.config, pipeline.source.env, pipeline.source.select) == ({}, {}, [])
    assert (pipeline.commit.every, pipeline.commit.bytes) == (timedelta(minutes=5), 256 * 1024**2)
    assert (pipeline.spool.dir, pipeline.spool.max_bytes) == (None, 2 * 1024**3)
    assert (pipeline.rejects.on_reject, pipeline.rejects.max) == ("quarantine", 1000)
    assert (pipeline.spark.master, pipeline.spark.conf, pipeline.incremental.enabled) == ("local[*]", {}, True)
    assert pipeline.secrets == frozenset()


BLOCK = {
    "source": {
        "tap": "tap-postgres",
        "pip_url": "meltanolabs-tap-postgres",
        "config": "{host: h}",
        "env": "{}",
        "catalog": "catalog.json",
        "select": '["public-*", "!*.secret_*"]',
        "streams": '["public-*"]',
        "idle_timeout": "10m",
        "parallelism": "1",
    },
    "destination": {
        "bucket": "./lake",
        "path": '"{pipeline}"',
        "format": "parquet",
        "load_method": "auto",
        "compression": "zstd",
        "compression_level": "19",
        "partition_by": "[]",
        "file_size": "128MiB",
        "column_names": "keep",
        "s3": "null",
    },
    "": {
        "streams": '{"public-*": {load_method: append-only}}',
        "incremental": "{enabled: true}",
        "commit": "{every: 5m, bytes: 256MiB}",
        "rejects": "{on_reject: quarantine, max: 1000}",
        "spool": "{dir: /tmp, max_bytes: 4GiB}",
        "retry": "{attempts: 1, backoff: 30s}",
        "retention": "{commits: 90d}",
        "schedule": '{cron: "0 */2 * * *"}',
        "spark": '{master: "local[*]", conf: {}}',
    },
    "top": {"defaults": "{}", "environments": "{}", "include": '["*/more.yaml"]', "x-anything": "[1]"},
}


def block_text(section: str, key: str, value: str) -> str:
    """Return a settings file with one more key."""
    line = f"{key}: {value}"
    if section == "top":
        return GOOD + line + "\n"
    if section == "":
        return pipeline_text(more=line)
    if key in ("tap", "bucket"):
        return GOOD
    return pipeline_text(source=line) if section == "source" else pipeline_text(destination=line)


@pytest.mark.parametrize(("section", "key"), [(section, key) for section, keys in BLOCK.items() for key in keys])
def test_every_key_of_the_reference_is_known(settings: Load, section: str, key: str) -> None:
    """A key that the reference names is accepted."""
    assert settings(block_text(section, key, BLOCK[section][key])).pipeline("flights")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (pipeline_text(source="tapp: x"), ":5: unknown key pipelines.flights.source.tapp", 'did you mean "tap"?'),
        (pipeline_text(more="comit: {}"), ":7: unknown key pipelines.flights.comit", 'did you mean "commit"?'),
        (pipeline_text(more="tap: x"), ":7: unknown key pipelines.flights.tap", '"tap" belongs under "source"'),
        (pipeline_text(more="name: x"), ":7: unknown key pipelines.flights.name", "the keys here are"),
        (pipeline_text(more="secrets: [x]"), ":7: unknown key pipelines.flights.secrets", "the keys here are"),
        (GOOD.replace("pipelines:", "pipeline:"), ":1: unknown key pipeline", 'did you mean "pipelines"?'),
        (pipeline_text(source="pip_url: 5"), ":5: must be text key=pipelines.flights.source.pip_url", "quote"),
        (pipeline_text(source="config: 5"), ":5: must be a mapping, or the path of a JSON file", "a path"),
        (pipeline_text(source="select: public"), ":5: must be a list key=pipelines.flights.source.select", "["),
        (pipeline_text(source="streams: public"), ":5: must be a list key=pipelines.flights.source.streams", "["),
        (pipeline_text(source="select: []\nstreams: []"), ":6: streams is another name of select", "one of them"),
        (pipeline_text(source="env: {A: [1]}"), ":5: must be text key=pipelines.flights.source.env.A", "quote"),
        (pipeline_text(source="idle_timeout: 300"), ":5: not a duration", "60s, 5m"),
        (pipeline_text(source="idle_timeout: 0s"), ":5: must be longer than nothing", "null"),
        (pipeline_text(more="commit: {bytes: 64MB}"), ":7: not a size", "write MiB"),
        (pipeline_text(more="commit: {bytes: 2G}"), ":7: not a size", "write GiB"),
        (pipeline_text(more="commit: {bytes: 64KiB}"), ":7: must be at least 1048576", "raise"),
        (pipeline_text(more="commit:"), ":7: must be a mapping key=pipelines.flights.commit", "remove it"),
        (pipeline_text(more="incremental: {enabled: no}"), ":7: must be true or false", "write true or false"),
        (pipeline_text(more="rejects: {max: many}"), ":7: must be a whole number", "quotes"),
        (pipeline_text(more="rejects: {max: -1}"), ":7: must be at least 0", "raise"),
        (pipeline_text(destination="compression: zstdd"), ":7: must be zstd, snappy", 'did you mean "zstd"?'),
        (pipeline_text(destination="path: ../x"), ":7: no part of the path may start with a dot", "readers"),
        (pipeline_text(destination="path: a/.b"), ":7: no part of the path may start with a dot", "readers"),
        (pipeline_text(destination="path: /x"), ":7: must be a relative path", "such as"),
        (pipeline_text(destination='path: ""'), ":7: must be a relative path", "such as"),
        (pipeline_text(destination="path: day=1"), ":7: a character that table folders cannot have", "="),
        (pipeline_text(destination='path: "{strem}"'), ":7: unknown placeholder {strem}", "{tap}"),
        (GOOD.replace("./lake", "ftp://lake"), ":6: unknown kind of bucket ftp://", "folder"),
        (GOOD.replace("./lake", "file://lake/x"), ":6: a file URI needs an absolute path", "three slashes"),
        (GOOD.replace("tap-postgres", "[]"), ":4: must not be empty key=pipelines.flights.source.tap", "command"),
        (GOOD.replace("tap-postgres", "[tap, 5]"), ":4: must be text or a list of texts", "quote"),
        (GOOD.replace("tap-postgres", "tap 'x"), ":4: quotes are not closed", "list"),
        (GOOD.replace("tap: tap-postgres", "catalog: x"), ":3: missing key key=pipelines.flights.source.tap", "add"),
        (GOOD.replace("  flights:", "  fl ights:"), ":2: not a name for a pipeline", "letters"),
        (GOOD.replace("  flights:", f"  {'a' * 101}:"), ":2: not a name for a pipeline", "100"),
        (GOOD.replace("  flights:", "  tables:"), ":2: this name is taken", "another"),
        ("pipelines: {}\n", ":1: no pipelines key=pipelines", "one pipeline"),
        ("x-free: 1\n", ":1: no pipelines key=pipelines", "one pipeline"),
        ("# nothing\n", ":1: no settings in the file", "pipelines"),
        ("pipelines: {a: }\n", ":1: must be a mapping key=pipelines.a", "keys"),
    ],
)
def test_wrong_settings_are_refused_with_their_place(settings: Load, text: str, message: str, hint: str) -> None:
    """Each mistake is told with file, line and key, and what to write instead."""
    error = refused(lambda: settings(text))
    assert f"bridge.yaml{message}" in error.message
    assert hint in error.hint


def test_the_first_mistake_of_the_file_is_told(settings: Load) -> None:
    """With several mistakes the one further up comes first, as one repairs a file."""
    text = pipeline_text(source="tapp: x", destination="compression: rar", more="zzz: 1")
    assert "bridge.yaml:5:" in refused(lambda: settings(text)).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "pipelines: {}\n", ":7: duplicate key pipelines lines=1,7"),
        (pipeline_text(source="tap: other"), ":5: duplicate key tap lines=4,5"),
        ("x-free: {a: 1, a: 2}\n" + GOOD, ":1: duplicate key a lines=1,1"),
        (pipeline_text(source="config: {port: ${PORT}}"), ":5: not valid yaml"),
        (pipeline_text(source=f"config: {{password: *{PASSWORD}}}"), ":5: not valid yaml"),
        (pipeline_text(source="config: {a: !secret x}"), ":5: yaml tags are not supported"),
        (pipeline_text(source="config: &a {a: *a}"), ": an alias contains itself"),
        (pipeline_text(source="<<: 5"), ":5: << needs a mapping"),
    ],
)
def test_yaml_that_is_not_plain_is_refused(settings: Load, text: str, message: str) -> None:
    """Duplicate keys, foreign tags and syntax errors name their line and quote nothing of it."""
    assert f"bridge.yaml{message}" in refused(lambda: settings(text)).message


def bomb(item: str, first: str) -> str:
    """Nine anchors, each with nine aliases of the one before: 9^9 values if they are followed."""
    lines = [f"x0: &a0 {first}"]
    lines += [f"x{n}: &a{n} " + item.format(", ".join([f"*a{n - 1}"] * 9)) for n in range(1, 10)]
    return "\n".join(lines) + "\n" + GOOD


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        bomb("[{}]", "[text]"),
        bomb("{{<<: [{}]}}", "{a: text}"),
        f"x0: &a {'x' * 100_000}\nx1: [{', '.join(['*a'] * 1000)}]\n" + GOOD,
    ],
    ids=["values", "merged", "text"],
)
def test_aliases_that_grow_out_of_hand_are_refused(settings: Load, text: str) -> None:
    """A file that aliases would make too large for memory is refused in seconds, with its line."""
    error = refused(lambda: settings(text))
    assert re.search(r"bridge\.yaml:\d+: with its aliases the file comes to more than 16 MiB", error.message)
    assert "aliases" in error.hint


def test_many_pipelines_may_share_an_anchor(settings: Load) -> None:
    """A thousand pipelines with the same fifty settings are no such file."""
    config = ", ".join(f"key{n}: value{n}" for n in range(50))
    one = "  p{n}: {{source: {{tap: t, config: *c}}, destination: {{bucket: lake}}}}\n"
    text = f"x-c: &c {{{config}}}\npipelines:\n" + "".join(one.format(n=n) for n in range(1000))
    assert settings(text).pipeline("p999").source.config["key49"] == "value49"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ('config:\nselect: ["a"]\n  host: db', "stands deeper than the line above"),
        ("config:\n  port: 1\n   host: db", "stands deeper than the line above"),
        ("config:\n    port: 1\n  # user: x\n   host: db", "lines up with no key above"),
        ("config:\n  host: @db", "quote values"),
    ],
)
def test_a_key_in_the_wrong_column_is_explained(settings: Load, source: str, hint: str) -> None:
    """What was uncommented or pasted at the wrong depth is not said to want quotes."""
    assert hint in refused(lambda: settings(pipeline_text(source=source))).hint


def test_anchors_and_merge_keys(settings: Load) -> None:
    """`x-*` keys are free and `<<` merges them; what stands beside `<<` wins, and lines are those of the anchor."""
    shared = "x-to: &to\n  bucket: /lake\n  path: raw\n  compresion: zstd\n"
    text = shared + GOOD.replace("bucket: ./lake", "<<: *to\n      path: own")
    assert "bridge.yaml:4: unknown key" in refused(lambda: settings(text)).message
    destination = settings(text.replace("  compresion: zstd\n", "")).pipeline("flights").destination
    assert (destination.bucket, destination.path) == ("/lake", "own")


def test_paths_are_relative_to_the_file(settings: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalog, config file, spool, bucket and a tap's path start at the folder of bridge.yaml; `~` is the home."""
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "tap.json").write_text("{}")
    text = pipeline_text(source="catalog: c.json\nconfig: tap.json", more="spool: {dir: ~/spool}")
    pipeline = settings(text.replace("tap-postgres", "./bin/tap-x --flag")).pipeline(None)
    assert pipeline.source.catalog == tmp_path / "c.json"
    assert pipeline.source.config == tmp_path / "tap.json"
    assert pipeline.source.argv == [str(tmp_path / "bin/tap-x"), "--flag"]
    assert pipeline.spool.dir == Path("/home/me/spool")
    assert settings(GOOD.replace("./lake", "file:///a%20b")).pipeline(None).destination.bucket == "/a b"


@pytest.mark.parametrize(
    ("tap", "argv"),
    [("\"tap-x --name 'a b'\"", ["tap-x", "--name", "a b"]), ("[tap-x, a b, $HOME]", ["tap-x", "a b", "$HOME"])],
)
def test_tap_is_never_given_to_a_shell(settings: Load, tap: str, argv: list[str]) -> None:
    """A text is split like a command line, a list is taken as it is; nothing in it is interpreted."""
    assert settings(GOOD.replace("tap-postgres", tap)).pipeline(None).source.argv == argv


def test_table_root(settings: Load) -> None:
    """`{tap}` is the name of the executable, without folders; `{pipeline}` the pipeline's."""
    text = pipeline_text(destination='path: "raw/{tap}/{pipeline}"').replace("tap-postgres", "/opt/tap-x --a")
    pipeline = settings(text).pipeline(None)
    assert (pipeline.table_root, pipeline.destination.path) == ("raw/tap-x/flights", "raw/{tap}/{pipeline}")
    error = refused(lambda: settings(text.replace("/opt/tap-x", "/opt/.tap")))
    assert "bridge.yaml:7: the tap's name cannot be a folder" in error.message


def test_spool_has_room_for_two_epochs(settings: Load) -> None:
    """A spool in which the tap would block for ever is refused, at the key that was written."""
    error = refused(lambda: settings(pipeline_text(more="spool: {max_bytes: 512MiB}")))
    assert "spool.max_bytes must be more than twice commit.bytes key=pipelines.flights.spool.max_bytes" in error.message
    assert "512MiB" in error.hint
    error = refused(lambda: settings(pipeline_text(more="commit: {bytes: 2GiB}")))
    assert "key=pipelines.flights.commit.bytes" in error.message
    assert settings(pipeline_text(more="spool: {max_bytes: 513MiB}"))


@pytest.mark.parametrize(
    ("more", "in_bucket", "folder"),
    [
        ("", False, None),
        ("spark: {master: 'local-cluster[2,1,1024]'}", False, None),
        ("spark: {master: 'spark://host:7077'}", True, None),
        ("spark: {master: 'spark://host:7077'}\nspool: {dir: /mnt/spool}", False, Path("/mnt/spool")),
        ("spark: {master: 'spark://host:7077'}\nspool: {dir: bucket}", True, None),
        ("spool: {dir: bucket}", True, None),
        ("spool: {dir: /mnt/bucket}", False, Path("/mnt/bucket")),
    ],
)
def test_where_executors_find_the_spool(settings: Load, more: str, in_bucket: bool, folder: Path | None) -> None:
    """On this machine in the default folder; a cluster's do not see that, so they read the bucket, or a folder."""
    pipeline = settings(pipeline_text(more=more)).pipeline(None)
    assert (pipeline.spool_in_bucket, pipeline.spool.folder) == (in_bucket, folder)


def test_a_spool_folder_may_be_called_bucket(settings: Load, tmp_path: Path) -> None:
    """`./bucket` is a folder beside the file."""
    pipeline = settings(pipeline_text(more="spool: {dir: ./bucket}")).pipeline(None)
    assert (pipeline.spool_in_bucket, pipeline.spool.folder) == (False, tmp_path / "bucket")


def test_choosing_a_pipeline(settings: Load) -> None:
    """Without a name there must be one; an unknown name is told with the nearest."""
    two = GOOD + GOOD.replace("pipelines:\n", "").replace("flights", "planes")
    assert settings(two).pipeline("planes").name == "planes"
    assert "flights, planes" in refused(lambda: settings(two).pipeline(None)).hint
    assert refused(lambda: settings(two).pipeline("flight")).hint == 'did you mean "flights"?'
    assert "flights, planes" in refused(lambda: settings(two).pipeline("zzz")).hint


def test_find_file(tmp_path: Path) -> None:
    """The nearest bridge.yaml upwards is found."""
    (tmp_path / "a/b").mkdir(parents=True)
    assert find_file(tmp_path / "a/b") is None
    (tmp_path / "bridge.yaml").touch()
    assert find_file(tmp_path / "a/b") == tmp_path / "bridge.yaml"


def test_missing_file(tmp_path: Path) -> None:
    """A settings file that is not there is an error of settings, not a traceback."""
    assert "cannot read the settings file" in refused(lambda: load(tmp_path / "bridge.yaml", {})).message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the tap's settings key=pipelines.flights.source.config reason=No such file"),
        (f'{{"password": "{PASSWORD}"\n:}}', "the tap's settings are not valid JSON: line 2"),
        (f'["{PASSWORD}"]', "the tap's settings must be a JSON object"),
    ],
)
def test_config_file_that_cannot_be_used(settings: Load, tmp_path: Path, content: str | None, message: str) -> None:
    """A missing or broken config file is told with the line that names it, before the tap starts."""
    if content is not None:
        (tmp_path / "tap.json").write_text(content)
    assert f"bridge.yaml:5: {message}" in refused(lambda: settings(pipeline_text(source="config: tap.json"))).message


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just(PASSWORD),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@given(section=st.sampled_from(["source", "destination", "", "top"]), data=st.data(), value=ANYTHING)
@hypothesis_settings(max_examples=100, deadline=None)
def test_anything_is_accepted_or_refused_with_its_line(section: str, data: st.DataObject, value: Any) -> None:
    """Whatever stands at a key: the file loads, or one SettingsError names the line."""
    key = data.draw(st.sampled_from(sorted(set(BLOCK[section]) - {"config"})))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bridge.yaml"
        path.write_text(block_text(section, key, json.dumps(value)), encoding="utf-8")
        try:
            assert all(load(path, {}).pipelines.values())
        except SettingsError as error:
            told = (error.message, error.hint)
        else:
            return
    assert re.search(r"bridge\.yaml:\d+: ", told[0])
    assert told[1]


def test_a_config_with_nothing_below_it_is_empty(settings: Load) -> None:
    """`config:` alone is no settings, and takes nothing away from those of the defaults."""
    assert settings(pipeline_text(source="config:")).pipeline("flights").source.config == {}
    text = "defaults: {source: {config: {a: 1}}}\n" + pipeline_text(source="config:")
    assert settings(text).pipeline("flights").source.config == {"a": 1}


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("config: {}   # settings\n  # a: 1\n  host: x", "take the {} away"),
        ("select: []\n  - x", "take the [] away"),
        ("config:\n\thost: x", "indent with spaces"),
    ],
)
def test_common_slips_of_yaml_have_a_hint_of_their_own(settings: Load, source: str, hint: str) -> None:
    """A block below `{}` and a tab are told as such."""
    assert hint in refused(lambda: settings(pipeline_text(source=source))).hint
