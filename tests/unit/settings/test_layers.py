"""Defaults, environments and included files: what lies over what, and where a mistake in any of them is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.settings.load import load
from tests.unit.settings.settings_files import GOOD, PASSWORD, Load, pipeline_text, refused

LAYERS = """\
defaults:
  source: {config: {host: h, port: 1}, select: [a, b]}
  destination: {bucket: ./lake, path: raw}
  spark: {conf: {a: low, b: low}}
environments:
  prod:
    defaults: {destination: {bucket: /prod}, spark: {conf: {b: high}}}
    pipelines: {flights: {source: {config: {port: 3}}, commit: {every: 1h}}}
  dev: {}
pipelines:
  flights:
    source: {tap: tap-x, config: {port: 2, user: me}, streams: [c]}
    destination: {compression: gzip}
  planes:
    source: {tap: tap-y, config: tap.json}
"""


def test_defaults_lie_below_each_pipeline(settings: Load, tmp_path: Path) -> None:
    """Mappings are merged at every depth, scalars and lists replaced, also where a key is spelled differently."""
    (tmp_path / "tap.json").write_text("{}")
    loaded = settings(LAYERS)
    flights, planes = loaded.pipeline("flights"), loaded.pipeline("planes")
    assert flights.source.config == {"host": "h", "port": 2, "user": "me"}
    assert flights.source.select == ["c"]
    destination = flights.destination
    assert (destination.bucket, destination.path, destination.compression) == (str(tmp_path / "lake"), "raw", "gzip")
    assert planes.source.config == tmp_path / "tap.json"
    assert (planes.source.select, planes.destination.compression) == (["a", "b"], "zstd")


def test_an_environment_lies_over_the_file(settings: Load, tmp_path: Path) -> None:
    """What an environment says of a pipeline beats all, what it says in `defaults` beats the file's `defaults`."""
    (tmp_path / "tap.json").write_text("{}")
    prod = settings(LAYERS, env="prod").pipeline("flights")
    assert prod.source.config == {"host": "h", "port": 3, "user": "me"}
    assert (prod.destination.bucket, prod.destination.path) == ("/prod", "raw")
    assert prod.spark.conf == {"a": "low", "b": "high"}
    assert prod.commit.every.total_seconds() == 3600
    assert settings(LAYERS).pipeline("flights").spark.conf == {"a": "low", "b": "low"}


def test_a_pipeline_beats_the_defaults_of_an_environment(settings: Load) -> None:
    """`defaults` stay below the pipelines, wherever they stand."""
    text = GOOD + "environments: {prod: {defaults: {destination: {bucket: /prod, path: p}}}}\n"
    destination = settings(text, env="prod").pipeline("flights").destination
    assert (Path(destination.bucket).name, destination.path) == ("lake", "p")


def test_environments_share_no_state(settings: Load, tmp_path: Path) -> None:
    """In an environment a pipeline has another name in the bucket; it is asked for by its plain one."""
    (tmp_path / "tap.json").write_text("{}")
    names = [settings(LAYERS, env=env).pipeline("planes").name for env in (None, "prod", "dev")]
    assert names == ["planes", "prod.planes", "dev.planes"]
    text = GOOD + "environments: {prod: {}}\n"
    assert settings(text, env="prod").pipeline(None).table_root == "prod.flights"


@pytest.mark.parametrize("name", ["prod.flights", "Prod.flights"])
def test_a_pipeline_is_never_called_as_one_of_an_environment(settings: Load, name: str) -> None:
    """Two ways to one name in the bucket would be two pipelines with one STATE."""
    text = GOOD.replace("flights:", f"{name}:") + "environments: {prod: {}}\n"
    assert "bridge.yaml:2: a pipeline's name cannot begin with" in refused(lambda: settings(text)).message


def test_the_environment_is_chosen_by_name_or_variable(settings: Load, tmp_path: Path) -> None:
    """`--env` wins over SINGER_BRIDGE_ENV, which may stand in `.env` too; empty is none."""
    text = GOOD + "environments: {prod: {}, dev: {}}\n"
    assert settings(text, {"SINGER_BRIDGE_ENV": "dev"}, "prod").environment == "prod"
    assert settings(text, {"SINGER_BRIDGE_ENV": "dev"}).environment == "dev"
    (tmp_path / ".env").write_text("SINGER_BRIDGE_ENV=prod\n")
    assert settings(text).environment == "prod"
    assert settings(text, {"SINGER_BRIDGE_ENV": ""}).environment is None
    assert settings(text).environments == ("prod", "dev")


def test_an_unknown_environment_is_refused(settings: Load) -> None:
    """A slip in the environment's name runs nothing, whether the file has environments or not."""
    text = GOOD + "environments: {prod: {}, dev: {}}\n"
    assert refused(lambda: settings(text, env="pord")).hint == 'did you mean "prod"?'
    assert "prod, dev" in refused(lambda: settings(text, {"SINGER_BRIDGE_ENV": "zzz"})).hint
    assert "has no environments" in refused(lambda: settings(GOOD, env="prod")).hint


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ("defaults: {sorce: {}}", ":7: unknown key defaults.sorce", '"source"'),
        ("defaults: {commit: {every: 5}}", ":7: not a duration key=defaults.commit.every", "5m"),
        ("defaults: [1]", ":7: must be a mapping key=defaults", "keys"),
        ("environments: {prod: {defaults: {comit: {}}}}", ":7: unknown key environments.prod.defaults.comit", "commit"),
        (
            "environments:\n  prod:\n    pipelines:\n      flights:\n        source: {tapp: x}",
            ":11: unknown key environments.prod.pipelines.flights.source.tapp",
            '"tap"',
        ),
        ("environments: {prod: {pipelines: {flight: {}}}}", ":7: unknown pipeline key=environments.prod", '"flights"'),
        ("environments: {prod: {pipelines: {zzz: {}}}}", ":7: unknown pipeline key=environments.prod", "first"),
        ("environments: {prod: {pipeline: {}}}", ":7: unknown key environments.prod.pipeline", '"pipelines"'),
        ("environments: {prod: {source: {}}}", ":7: unknown key environments.prod.source", "defaults and pipelines"),
        ("environments: {prod: [1]}", ":7: must be a mapping key=environments.prod", "keys"),
        ("environments: {prod: {defaults: 1}}", ":7: must be a mapping key=environments.prod.defaults", "keys"),
        ("environments: {prod: {pipelines: 1}}", ":7: must be a mapping key=environments.prod.pipelines", "keys"),
        ("environments: {prod: {pipelines: {flights: 1}}}", ":7: must be a mapping key=environments.prod", "keys"),
        ("environments: {a.b: {}, prod: {}}", ":7: not a name for an environment key=environments.a.b", "no dot"),
        ("environments: 1", ":7: must be a mapping key=environments", "keys"),
        ("environments: {prod: {}, Prod: {}}", ":7: another name differs in case only", "rename"),
        ("include: x.yaml", ":7: must be a list of files key=include", "such as"),
        ("include: [5]", ":7: must be a list of files key=include", "such as"),
        ("include:\n- a/*.yaml\n- gone.yaml", ":9: no such file key=include.1", "relative"),
        ("include: [.]", ":7: no such file key=include.0", "relative"),
        ('include: ["\\0", "~nobody-here/x.yaml"]', ":7: no such file key=include.0", "relative"),
        ('include: ["${NOPE}/x.yaml"]', ":7: variable is not set variable=NOPE key=include.0", "export"),
    ],
)
def test_a_mistake_in_a_layer_is_told_where_it_stands(settings: Load, more: str, message: str, hint: str) -> None:
    """Not the pipeline that inherits a wrong key is named, but the place where it is written."""
    error = refused(lambda: settings(GOOD + more + "\n", env="prod" if "prod" in more else None))
    assert f"bridge.yaml{message}" in error.message
    assert hint in error.hint


def test_a_layer_that_takes_a_key_away_is_told(settings: Load) -> None:
    """What the defaults have is missing only if an upper layer put something else in its place."""
    text = "defaults: {source: {tap: x}, destination: {bucket: b}}\npipelines:\n  a:\n    source: []\n"
    assert "bridge.yaml:4: must be a mapping key=pipelines.a.source" in refused(lambda: settings(text)).message


def test_anchors_inside_layers(settings: Load) -> None:
    """`x-*` keys feed defaults and environments alike, and a wrong key is told at the anchor."""
    text = "x-c: &c\n  every: 1h\n  bytes: 2MiB\ndefaults: {commit: *c}\n" + GOOD
    assert settings(text).pipeline("flights").commit.bytes == 2 * 1024**2
    wrong = text.replace("2MiB", "2MB")
    assert "bridge.yaml:3: not a size key=defaults.commit.bytes" in refused(lambda: settings(wrong)).message


def test_included_files(settings: Load, tmp_path: Path) -> None:
    """Globs add pipelines; a file's paths, config file and secret files are relative to its own folder."""
    more = tmp_path / "more/deep"
    more.mkdir(parents=True)
    (more / "pw").write_text(PASSWORD)
    (more / "c.json").write_text("{}")
    (more / "a.yaml").write_text(
        "x-to: &to {bucket: lake}\n"
        "pipelines:\n"
        '  a: {source: {tap: ./tap, catalog: c.json, config: {password: "${file:pw}"}}, destination: *to}\n'
        "  b: {source: {tap: x, config: c.json}}\n"
    )
    (more / "off.yaml").write_text("# all of it is switched off\n")
    (tmp_path / "also.yaml").write_text("pipelines: {c: {source: {tap: x}}}\n")
    text = (
        'include: ["more/**/*.yaml", also.yaml, "*.yaml", none/*.yaml]\ndefaults: {destination: {bucket: top}}\n' + GOOD
    )
    loaded = settings(text)
    assert set(loaded.pipelines) == {"flights", "a", "b", "c"}
    a, b = loaded.pipeline("a"), loaded.pipeline("b")
    assert (a.source.argv, a.source.catalog) == ([str(more / "tap")], more / "c.json")
    assert (a.source.config, a.secrets) == ({"password": PASSWORD}, {PASSWORD})
    assert (a.destination.bucket, b.destination.bucket) == (str(more / "lake"), str(tmp_path / "top"))
    assert b.source.config == more / "c.json"


def test_a_file_of_pipelines_only(settings: Load, tmp_path: Path) -> None:
    """The main file, or an included one, may have no pipelines, but somewhere there has to be one."""
    (tmp_path / "a.yaml").write_text(GOOD)
    assert settings("include: [a.yaml]\n").pipeline(None).name == "flights"
    (tmp_path / "a.yaml").write_text("pipelines:\n")
    assert "bridge.yaml:1: no pipelines" in refused(lambda: settings("include: [a.yaml]\n")).message
    assert settings(f"include: [a.yaml]\n{GOOD}").pipeline(None).name == "flights"
    assert "bridge.yaml:1: no pipelines" in refused(lambda: settings("include: [b/*.yaml]\n")).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipelines: {b: {source: {tap: x, tapp: y}}}\n", "more.yaml:1: unknown key pipelines.b.source.tapp"),
        ("\npipelines: {flights: {}}\n", "more.yaml:2: this pipeline exists already key=pipelines.flights first="),
        ("pipelines: {Flights: {}}\n", "more.yaml:1: another name differs in case only"),
        ("defaults: {}\n", "more.yaml:1: unknown key defaults"),
        ("include: []\n", "more.yaml:1: unknown key include"),
        ("[1]\n", "more.yaml:1: must be a mapping"),
        ("a: [\n", "more.yaml:2: not valid yaml"),
        ("pipelines: {a b: {}}\n", "more.yaml:1: not a name for a pipeline"),
        ("pipelines: {b: {source: {tap: x, config: {a: '${N}'}}}}\n", "more.yaml:1: variable is not set variable=N"),
    ],
)
def test_a_mistake_in_an_included_file_is_told_there(settings: Load, tmp_path: Path, text: str, message: str) -> None:
    """The included file is named with its line; the same pipeline twice names both places."""
    (tmp_path / "more.yaml").write_text(text)
    told = refused(lambda: settings("include: [more.yaml]\n" + GOOD)).message
    assert message in told
    assert not told.endswith("first=") or told.endswith("bridge.yaml:3")


def test_variables_inside_layers(settings: Load, tmp_path: Path) -> None:
    """`.env`, defaults of variables and text as written work in defaults and environments as in a pipeline."""
    (tmp_path / ".env").write_text("PORT=5432\n")
    text = (
        'defaults: {source: {env: {A: 007}, config: {port: "${PORT}", size: "${SIZE:-5}"}}}\n'
        "environments:\n  prod:\n    defaults:\n      source:\n        config:\n          port: ${PORT}\n"
    )
    assert settings(text + GOOD).pipeline(None).source.config == {"port": "5432", "size": "5"}
    prod = settings(text + GOOD, env="prod").pipeline(None)
    assert (prod.source.config, prod.source.env) == ({"port": 5432, "size": "5"}, {"A": "007"})


def test_a_variable_of_another_pipeline_stops_nothing(tmp_path: Path) -> None:
    """Only the pipeline that is asked for is filled in and checked."""
    text = pipeline_text(source='config: {a: "${NOPE}"}') + GOOD.replace("pipelines:\n", "").replace("flights", "ok")
    (tmp_path / "bridge.yaml").write_text(text)
    loaded = load(tmp_path / "bridge.yaml", {})
    assert loaded.pipeline("ok").name == "ok"
    assert "variable=NOPE" in refused(lambda: loaded.pipeline("flights")).message


def test_a_variable_that_is_laid_over_need_not_be_set(settings: Load) -> None:
    """A layer's value that an upper layer replaces is never looked up."""
    text = 'defaults: {destination: {bucket: "${NOPE}"}}\n' + GOOD
    assert settings(text).pipeline(None).destination.bucket.endswith("lake")
