"""`select`: what is written into bridge.yaml, what is refused before that, and what the list says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.settings.load import load
from tests.support.shell import Typed, children_seconds

FILE = """\
# what goes where
pipelines:
  shop:
    source:
      tap: tap-smoke   # comes with singer-bridge
      config:
        streams:
          - {name: orders, records: 10}
          - {name: rates, records: 5, replication_method: FULL_TABLE}
    destination: {bucket: lake}
"""


@pytest.fixture(scope="module")
def discovered(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the tap says, asked once."""
    config = tmp_path_factory.mktemp("tap") / "config.json"
    rates = {"name": "rates", "records": 5, "replication_method": "FULL_TABLE"}
    config.write_text(json.dumps({"streams": [{"name": "orders", "records": 10}, rates]}))
    command = [sys.executable, "-m", "tap_smoke", "--config", str(config), "--discover"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout


@pytest.fixture
def shop(folder: Path, discovered: bytes) -> Path:
    """A project whose catalog is kept, and whose tap is gone: nothing below needs it."""
    file = folder / "bridge.yaml"
    file.write_text(FILE.replace("tap-smoke ", "tap-gone "))
    (folder / ".singer-bridge" / "catalogs").mkdir(parents=True)
    (folder / ".singer-bridge" / "catalogs" / "shop.json").write_bytes(discovered)
    return file


def listed(file: Path) -> list[str]:
    return load(file, {}).pipeline("shop").source.select


def test_patterns_are_added(shop: Path, typed: Typed) -> None:
    """They go to the end of the list, nothing else of the file changes, and the outcome is told."""
    before = shop.read_text()
    done = typed("select shop orders '!orders.name'")
    assert (done.code, done.out) == (
        0,
        "+ orders\n+ !orders.name\n1 of 2 streams selected, 1 of their columns left out\n",
    )
    assert shop.read_text() == before.replace(
        "    destination", '      select: ["orders", "!orders.name"]\n    destination'
    )
    assert typed("select rates").code == 0
    assert listed(shop) == ["orders", "!orders.name", "rates"]


def test_exclude_and_rm(shop: Path, typed: Typed) -> None:
    """`--exclude` writes the `!`; the opposite of what is added goes; `--rm` takes out what stands there."""
    assert typed("select orders rates orders.amount").code == 0
    done = typed("select --exclude orders.amount rates")
    assert listed(shop) == ["orders", "!orders.amount", "!rates"]
    assert done.out.startswith("- rates\n- orders.amount\n+ !orders.amount\n+ !rates\n")
    assert typed("select --rm --exclude rates").code == 0
    assert typed("select --rm '!orders.amount'").code == 0
    assert listed(shop) == ["orders"]
    assert typed("select orders").out.startswith("nothing changed")
    assert typed("select --rm orders").code == 0
    assert listed(shop) == []


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("select ordres", "the pattern matches nothing pattern=ordres", 'did you mean "orders"?'),
        ("select orders.nmae", "the pattern matches nothing", 'did you mean "orders.name"?'),
        ("select --exclude orders rates", "no stream would be selected", "orders, rates"),
        ("select --rm order", "the list has no such pattern", "the list has: nothing"),
        ("select --rm", "no pattern", "public-users.email"),
        ("select --list orders", "--list only looks", "leave out PATTERN"),
    ],
)
def test_slips_are_refused(shop: Path, typed: Typed, line: str, message: str, hint: str) -> None:
    """What can only be a mistake ends with 2, a guess at what was meant, and the file as it was."""
    before = shop.read_bytes()
    done = typed(line)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert shop.read_bytes() == before


def test_a_glob_may_speak_of_what_is_to_come(shop: Path, typed: Typed) -> None:
    """It is written, with a warning that it matches nothing now."""
    done = typed("select orders '!*.secret_*'")
    assert done.code == 0
    assert "!*.secret_* matches nothing" in done.err
    assert listed(shop) == ["orders", "!*.secret_*"]


def test_list(shop: Path, typed: Typed) -> None:
    """Each stream and column with its status and the reason; `--all` shows what is left out, too."""
    assert typed("select orders '!orders.id' '!orders.name'").code == 0
    rows = [" ".join(line.split()) for line in typed("select --list").out.splitlines()]
    assert rows[:4] == [
        "stream column status why",
        "orders selected orders",
        "id automatic the replication key, in spite of !orders.id",
        "n selected the tap's default",
    ]
    assert rows[-1] == "not shown: 1 stream and 7 columns; see --all"
    everything = [line.split() for line in typed("select --list --all").out.splitlines()]
    ends = [number for number, words in enumerate(everything) if not words]
    assert len(ends) == 1  # an empty line between the two streams
    assert everything[ends[0] + 1][1] in ("excluded", "selected")
    rows = [" ".join(line.split()) for line in typed("select --list --all").out.splitlines()]
    assert "name excluded !orders.name" in rows
    assert "rates excluded no pattern names it" in rows
    assert "id excluded its stream" in rows


def test_json(shop: Path, typed: Typed) -> None:
    """One document: the list, and every stream and column."""
    said = json.loads(typed("select --json orders '!orders.name'").out)
    assert (said["format"], said["pipeline"], said["select"]) == (1, "shop", ["orders", "!orders.name"])
    orders, rates = said["streams"]
    assert (orders["stream"], orders["status"], rates["status"]) == ("orders", "selected", "excluded")
    assert {"column": "name", "status": "excluded", "why": "!orders.name"} in orders["columns"]
    assert said == json.loads(typed("select --list --json").out)


def test_the_tap_is_asked_where_nothing_is_kept(folder: Path, typed: Typed) -> None:
    """Without a catalog `select` discovers; a tap that cannot ends with words."""
    (folder / "bridge.yaml").write_text(FILE)
    assert typed("select orders").code == 0
    assert (folder / ".singer-bridge/catalogs/shop.json").exists()
    (folder / ".singer-bridge/catalogs/shop.json").unlink()
    (folder / "tap-runs").write_text('#!/bin/sh\necho \'{"type": "STATE"}\'\n')
    (folder / "tap-runs").chmod(0o755)
    (folder / "bridge.yaml").write_text(FILE.replace("tap-smoke ", "./tap-runs "))
    done = typed("select rates")
    assert done.code == 2
    assert "no --discover" in done.err


def test_several_pipelines(folder: Path, typed: Typed) -> None:
    """The first word is the pipeline then; a slip in its name is not taken for a pattern."""
    other = FILE.split("pipelines:\n")[1].replace("shop", "store")
    (folder / "bridge.yaml").write_text(FILE + other)
    assert typed("select store orders").code == 0
    settings = load(folder / "bridge.yaml", {})
    assert (settings.pipeline("shop").source.select, settings.pipeline("store").source.select) == ([], ["orders"])
    done = typed("select stor orders")
    assert done.code == 2
    assert 'did you mean "store"?' in done.err


def test_defaults_includes_and_environments(folder: Path, typed: Typed) -> None:
    """The list of the defaults is carried over, an included file is the one that changes, an overlay is respected."""
    pipeline = FILE.split("  shop:\n")[1].split("    destination")[0]
    (folder / "more").mkdir()
    (folder / "more" / "shop.yaml").write_text(f"pipelines:\n  shop:\n{pipeline}")
    top = "defaults: {destination: {bucket: lake}, source: {select: [orders]}}\ninclude: [more/*.yaml]\n"
    file = folder / "bridge.yaml"
    file.write_text(top)
    assert typed("select '!orders.name'").code == 0
    assert file.read_text() == top
    assert '      select: ["orders", "!orders.name"]\n' in (folder / "more" / "shop.yaml").read_text()
    file.write_text(top + "environments: {prod: {}, test: {pipelines: {shop: {source: {select: [rates]}}}}}\n")
    assert typed("select rates --env prod").code == 0
    assert listed(file) == ["orders", "!orders.name", "rates"]
    before = (folder / "more" / "shop.yaml").read_bytes()
    done = typed("select orders --env test")
    assert done.code == 2
    assert "not the one that counts" in done.err
    assert (folder / "more" / "shop.yaml").read_bytes() == before


def test_variables_stay(shop: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`${...}` in the list stays as it is written, and a pattern with one is taken as text."""
    monkeypatch.setenv("STREAM", "orders")
    shop.write_text(shop.read_text().replace("      config:", '      select: ["${STREAM}"]\n      config:'))
    assert typed("select rates").code == 0
    assert 'select: ["${STREAM}", "rates"]' in shop.read_text()


def test_without_a_file_it_only_looks(shop: Path, typed: Typed, folder: Path) -> None:
    """With `--to` the list is shown, and nothing can be written."""
    (folder / "tap.json").write_text(json.dumps({"streams": [{"name": "orders", "records": 1}]}))
    assert typed("discover --tap tap-smoke --tap-config tap.json --to lake --name x").code == 0
    done = typed("select --to lake --name x --list")
    assert done.code == 0
    assert "orders" in done.out
    done = typed("select --to lake --name x orders")
    assert done.code == 2
    assert "no bridge.yaml to write into" in done.err


def test_it_answers_at_once(shop: Path) -> None:
    """The kept catalog is enough: no tap, no Spark, no JVM, and little to import."""
    program = "import sys; from bridge.cli import main\ntry: main(['select', '--list'])\nexcept SystemExit: pass\n"
    program += "print(*sorted(m for m in sys.modules if m in ('pyarrow', 'pyspark', 'boto3')))"
    with children_seconds() as seconds:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=shop.parent, capture_output=True, text=True, check=True, timeout=60
        )
    assert done.stdout.splitlines()[-1] == ""
    assert seconds() < 5
