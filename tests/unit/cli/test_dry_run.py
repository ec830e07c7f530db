"""`run --dry-run`: it reads what a run would read, and ends as a run would that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.lease import take
from bridge.lake.ownership import Owner, claim
from bridge.lake.runs import RunFile
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.slots.note import Note, NoteFile
from tests.support.catalogs import catalog, stream
from tests.support.shell import Typed
from tests.support.tables import Shop

CATALOG: dict[str, Any] = {
    "streams": [
        {
            "tap_stream_id": "orders",
            "stream": "orders",
            "schema": {"properties": {"id": {"type": "integer"}}},
            "metadata": [
                {
                    "breadcrumb": [],
                    "metadata": {"selected": True, "forced-replication-method": "INCREMENTAL"}
                    | {"valid-replication-keys": ["id"], "table-key-properties": ["id"]},
                }
            ],
        }
    ]
}
SETTINGS = """
defaults: {source: {tap: [sh, -c, exit 0]}, destination: {bucket: lake, path: raw}}
pipelines:
  shop: {source: {catalog: orders.json}}
  crm: {source: {catalog: orders.json}}
  own: {source: {catalog: orders.json}, destination: {path: own}}
  last: {source: {catalog: orders.json}, destination: {path: last}}
"""


@pytest.fixture(autouse=True)
def project(folder: Path) -> LocalStorage:
    """Pipelines with one stream; two of them keep their tables in one folder."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    (folder / "orders.json").write_text(json.dumps(CATALOG))
    (folder / "lake").mkdir()
    return LocalStorage(folder / "lake")


def test_a_table_of_another_pipeline_is_refused_as_by_the_run(project: LocalStorage, typed: Typed) -> None:
    """The plan is printed, then the error of the run; exit code 3, and nothing is claimed."""
    claim(project, "raw/orders", Owner("crm", "orders"), shared=False)
    done = typed("run shop --dry-run")
    assert (done.code, "orders" in done.out) == (3, True)
    assert "error: the table belongs to another pipeline folder=raw/orders pipeline=crm" in done.err
    assert typed("run own --dry-run").code == 0
    assert not (project.folder / ".bridge/tables/own").exists()


def test_files_of_others_and_a_held_pipeline_are_refused(project: LocalStorage, typed: Typed) -> None:
    """What would end the run before its tap starts ends the dry run, with the same exit code."""
    (project.folder / "own/orders").mkdir(parents=True)
    (project.folder / "own/orders/theirs.parquet").write_bytes(b"PAR1")
    done = typed("run own --dry-run --json")
    assert (done.code, done.json["refused"]["exit_code"]) == (3, 3)
    assert done.json["refused"]["message"].startswith("the table's folder holds files of others")
    lease = take(project, "last", "another")
    assert typed("run last --dry-run").code == 4
    assert typed("run last --dry-run --wait 1s").code == 0
    lease.close(head=0, clean=True)
    assert typed("run last --dry-run --json").json["refused"] is None


def test_flags_and_settings_are_checked_as_by_the_run(typed: Typed) -> None:
    """A missing tap and flags that contradict each other are refused; other pipelines are planned all the same."""
    assert typed("run shop --full --resume --dry-run").code == 2
    Path("bridge.yaml").write_text(SETTINGS + "  gone: {source: {tap: no-such-tap}, destination: {path: gone}}\n")
    done = typed("run gone own --dry-run --json")
    assert [plan["pipeline"] for plan in done.json] == ["gone", "own"]
    assert (done.code, done.json[0]["refused"]["type"], done.json[1]["refused"]) == (1, "TapNotFound", None)


@pytest.mark.parametrize("before", [None, {"bookmarks": {"orders": {"replication_key_value": 5}}}])
def test_a_hand_edited_state_is_where_it_starts(project: LocalStorage, typed: Typed, before: Any) -> None:
    """The plan has the STATE that the tap would be given, also if nothing was ever committed."""
    if before:
        assert typed(f"state set own '{json.dumps(before)}' --yes").code == 0
    edited = {"bookmarks": {"orders": {"replication_key_value": 2}}}
    (project.folder / ".bridge/own").mkdir(parents=True, exist_ok=True)
    (project.folder / ".bridge/own/state.json").write_text(json.dumps(edited))
    done = typed("run own --dry-run --json")
    assert (done.code, done.json["state"]) == (0, edited)
    assert "state.json was edited by hand" in done.json["warnings"][0]
    (project.folder / ".bridge/own/state.json").write_text("{")
    assert typed("run own --dry-run").code == 3


def test_the_state_is_the_one_that_the_tap_gets(typed: Typed) -> None:
    """A stream that is overwritten starts from the beginning, one with a lookback before its bookmark."""
    state = json.dumps({"bookmarks": {"orders": {"replication_key_value": 50}}})
    assert typed(f"state set own '{state}' --yes").code == 0
    text = SETTINGS.replace("  own: {", "  own: {streams: {orders: {lookback: 20}}, ")
    Path("bridge.yaml").write_text(text)
    assert typed("run own --dry-run --json").json["state"]["bookmarks"]["orders"]["replication_key_value"] == 30
    Path("bridge.yaml").write_text(text.replace("lookback: 20", "load_method: overwrite"))
    assert typed("run own --dry-run --json").json["state"] is None


def test_pipelines_with_one_folder_are_told_apart_beforehand(typed: Typed) -> None:
    """The run that would come second is refused, alone there is a warning; both are named, with what to set."""
    both = "shop and crm keep their tables in the same folder, raw, and both have orders"
    done = typed("run crm --dry-run --json")
    assert (done.code, [text.partition(":")[0] for text in done.json["warnings"] if both in text]) == (0, [both])
    done = typed("run --all --dry-run --json")
    assert (done.code, [plan["refused"] and plan["pipeline"] for plan in done.json]) == (3, [None, "crm", None, None])
    assert done.json[1]["refused"]["message"].startswith(both)
    assert "destination: {path: raw/{pipeline}}" in done.json[1]["refused"]["hint"]


def test_config_check_finds_pipelines_with_one_folder(typed: Typed) -> None:
    """A common stream is a problem; without catalogs the same tap is one, and another tap is a warning."""
    done = typed("config check")
    assert (done.code, done.out.count("keep their tables in the same folder, raw, and both have orders")) == (2, 1)
    Path("bridge.yaml").write_text(SETTINGS.replace("path: raw", "path: raw, shared: true, load_method: append-only"))
    assert typed("config check").code == 0
    without = SETTINGS.replace("catalog: orders.json", "config: {}")
    Path("bridge.yaml").write_text(without)
    done = typed("config check --json")
    assert (done.code, "both have the same streams" in done.json["problems"][0]["message"]) == (2, True)
    Path("bridge.yaml").write_text(without.replace("  crm: {source: {", "  crm: {source: {tap: other, "))
    done = typed("config check --json")
    assert (done.code, done.json["problems"]) == (0, [])
    assert "refused if they have a stream of the same name" in done.json["warnings"][0]


def test_one_tap_with_other_settings_and_views_of_one_name(typed: Typed) -> None:
    """A tap that reads something else is no problem, only a warning; a view of both is one: it is a table, too."""
    without = SETTINGS.replace("catalog: orders.json", "config: {}")
    apart = without.replace("crm: {source: {config: {}}}", "crm: {source: {config: {files: other.csv}}}")
    Path("bridge.yaml").write_text(apart)
    done = typed("config check --json")
    assert (done.code, done.json["problems"], len(done.json["warnings"])) == (0, [], 1)
    assert typed("run --all --dry-run --json").code == 0
    view = "views: {by_id: 'SELECT id, count(*) AS n FROM orders GROUP BY id'}"
    for name in ("shop", "crm"):
        apart = apart.replace(f"  {name}: {{", f"  {name}: {{{view}, ")
    Path("bridge.yaml").write_text(apart)
    done = typed("config check --json")
    assert (done.code, "both have by_id" in done.json["problems"][0]["message"]) == (2, True)


def test_streams_that_the_slot_guard_refuses(project: LocalStorage, typed: Typed) -> None:
    """LOG_BASED streams that may have lost rows, or would, end the dry run as they end the run; nothing is noted."""
    entries = [stream(name, selected=True, replication_method="LOG_BASED") for name in ("orders", "lines")]
    for name, chosen in (("lines", entries[1:]), ("both", entries)):
        Path(f"{name}.json").write_text(json.dumps(catalog(*chosen)))

    def of(name: str, parallelism: int = 1) -> None:
        source = {"tap": ["sh", "-c", "exit 0"], "catalog": f"{name}.json", "config": {"slot": "s"}}
        source |= {"parallelism": parallelism, "replication_slot": {"setting": "slot", "guard": "off"}}
        Path("bridge.yaml").write_text(
            json.dumps({"pipelines": {"p": {"source": source, "destination": {"bucket": "lake"}}}})
        )

    NoteFile(project, "p").write(Note("s", "r", False, {}, ("orders",)))
    note = project.read(".bridge/p/slot.json")
    for flag, message in (("", "LOG_BASED streams may have lost rows"), ("--full", "share a replication slot")):
        of("both", 2)
        done = typed(f"run {flag} --dry-run --json")
        assert (done.code, done.json["refused"]["type"]) == (1, "SlotError")
        assert message in done.json["refused"]["message"]
        assert typed(f"run {flag} -q").code == 1
        assert project.read(".bridge/p/slot.json") == note
    of("lines")
    assert typed("run --dry-run").code == 0


def test_a_held_pipeline_comes_before_what_resume_says(project: LocalStorage, typed: Typed) -> None:
    """As in the run: while another one holds the pipeline nothing can be said of what is left."""
    streams = {"orders": {"complete": True}}
    RunFile(project, "own", "20260101T000000Z-aaaa").finish(status="failed", streams=streams)
    lease = take(project, "own", "another")
    assert (typed("run own --resume --dry-run").code, typed("run own --resume").code) == (4, 4)
    lease.close(head=0, clean=True)
    done = typed("run own --resume --dry-run")
    assert (done.code, "nothing is left to resume" in done.err, typed("run own --resume").code) == (2, True, 2)


def test_errors_are_masked_as_by_the_run(typed: Typed) -> None:
    """A secret of the settings is in no error, whatever names it."""
    source = "{tap: tap-hunter2secret, config: {password: hunter2secret}}"
    Path("bridge.yaml").write_text(f"pipelines: {{p: {{source: {source}, destination: {{bucket: lake}}}}}}")
    for verb in ("run", "run --dry-run", "run --dry-run --json"):
        done = typed(verb)
        assert (done.code, "tap-***" in done.out + done.err, "hunter2" in done.out + done.err) == (1, True, False)


@pytest.mark.parametrize(
    "sql",
    [
        """streams: {orders: {transform: 'SELECT id, "Id" AS x FROM stream'}}""",
        """views: {n: 'SELECT "id" AS id, count(*) AS n FROM orders GROUP BY 1'}""",
    ],
)
def test_a_column_in_double_quotes_is_refused_before_the_run(folder: Path, typed: Typed, sql: str) -> None:
    """Spark takes it for a text, so the run would refuse it; `config check` does, too, as the catalog is stored."""
    (folder / "bridge.yaml").write_text(SETTINGS.replace(", path: raw", "").replace("  own: {", f"  own: {{{sql}, "))
    done = typed("run own --dry-run")
    assert (done.code, "has the name of a column in double quotes" in done.err, "`id`" in done.err) == (2, True, True)
    done = typed("config check --json")
    assert (done.code, [one["pipeline"] for one in done.json["problems"]]) == (2, ["own"])
    right = sql.replace('"id"', "`id`").replace('"Id"', "`Id`")
    (folder / "bridge.yaml").write_text(SETTINGS.replace(", path: raw", "").replace("  own: {", f"  own: {{{right}, "))
    assert (typed("run own --dry-run").code, typed("config check").code) == (0, 0)


def test_only_columns_that_a_statement_sees(folder: Path, typed: Typed) -> None:
    """A text with the name of a column that is not selected, or that has another name in the table, is one."""
    facts = CATALOG["streams"][0]
    properties = {key: {"type": "integer"} for key in ("id", "at", "by")}
    unselected = {"breadcrumb": ["properties", "at"], "metadata": {"selected": False}}
    entry = facts | {"schema": {"properties": properties}, "metadata": [*facts["metadata"], unselected]}
    (folder / "orders.json").write_text(json.dumps({"streams": [entry]}))
    for text, code in (("at", 0), ("by", 0), ("who", 2), ("id", 2)):
        stream = f"""{{rename: {{by: who}}, transform: 'SELECT id, "{text}" AS x FROM stream'}}"""
        sql = f"streams: {{orders: {stream}}}"
        (folder / "bridge.yaml").write_text(
            SETTINGS.replace(", path: raw", "").replace("  own: {", f"  own: {{{sql}, ")
        )
        assert (text, typed("run own --dry-run").code) == (text, code)


def test_a_view_of_a_table_whose_catalog_nobody_has(folder: Path, typed: Typed) -> None:
    """The columns are those of the table."""
    shop = Shop(folder)
    shop.load("orders", {"id": {"type": "integer"}}, [{"id": 1}])
    view = """views: {n: 'SELECT "id" AS id, count(*) AS n FROM orders GROUP BY 1'}"""
    text = f"pipelines: {{shop: {{{view}, source: {{tap: [sh, -c, exit 0]}}, destination: {{bucket: lake}}}}}}"
    (folder / "bridge.yaml").write_text(text)
    done = typed("run shop --dry-run")
    assert (done.code, "has the name of a column in double quotes" in done.err) == (2, True), done.err
    assert typed("config check").code == 0


def test_a_key_that_is_a_new_column_is_said_before(folder: Path, typed: Typed) -> None:
    """The run would refuse it, as older rows would never be merged again."""
    shop = Shop(folder)
    shop.load("orders", {"other": {"type": "integer"}}, [{"other": 1}], keys=("other",), mode="upsert")
    text = SETTINGS.replace(", path: raw", "").replace(
        "  shop: {", "  shop: {streams: {orders: {load_method: upsert}}, "
    )
    (folder / "bridge.yaml").write_text(text)
    said = "orders: the key is a new column, and the table has rows"
    assert said in " ".join(typed("run shop --dry-run").out.split())
    assert said not in " ".join(typed("run shop --dry-run --full").out.split())


def test_a_name_as_messages_have_it(folder: Path, typed: Typed) -> None:
    """In the bucket, and in each hint, the pipeline of an environment is `prod.shop`: a copied command works."""
    prod = SETTINGS.replace(", path: raw", "") + "environments: {prod: {defaults: {destination: {bucket: prod}}}}\n"
    (folder / "bridge.yaml").write_text(prod)
    (folder / "prod").mkdir()
    done = typed("run prod.shop --dry-run --json")
    assert (done.code, done.json["pipeline"], Path(done.json["bucket"]).name) == (0, "prod.shop", "prod"), done.err
    assert typed("run prod.shop prod.crm --dry-run --json").json[1]["pipeline"] == "prod.crm"
    assert typed("state get prod.shop").err == typed("state get shop --env prod").err
    for wrong in ("run test.shop --dry-run", "run prod.none --dry-run", "run prod.shop crm --dry-run"):
        assert (typed(wrong).code, "unknown pipeline" in typed(wrong).err) == (2, True)


def test_what_becomes_text_is_said_before(folder: Path, typed: Typed) -> None:
    """A number, a time or a boolean; the run itself says it as a difference. A refused change is said, too."""
    shop = Shop(folder)
    shop.load("orders", {"id": {"type": "integer"}, "total": {"type": "number"}}, [{"id": 1, "total": 0.5}])
    properties = {"id": {"type": "integer"}, "total": {"type": "string"}}
    retyped = {"streams": [CATALOG["streams"][0] | {"schema": {"properties": properties}}]}
    (folder / "orders.json").write_text(json.dumps(retyped))
    settings = SETTINGS.replace(", path: raw", "")
    (folder / "bridge.yaml").write_text(settings)
    said = "orders: total changes from float64 to string: its values are text from now on"
    assert said in " ".join(typed("run shop --dry-run").out.split())
    assert "changes from" not in typed("run shop --dry-run --full").out
    frozen = settings.replace("shop: {", "shop: {streams: {orders: {schema_policy: freeze}}, ")
    (folder / "bridge.yaml").write_text(frozen)
    assert "column changes its type" in typed("run shop --dry-run").out


def test_resume_that_skips_nothing_is_no_warning(typed: Typed) -> None:
    """Nothing is wrong: each stream goes on at its bookmark. The plan and the run say nothing of it."""
    assert typed("run own --resume --dry-run --json").json["skipped"] == []
    done = typed("run own --resume --json")
    assert (done.code, done.json["skipped"]) == (0, [])
    assert not any("resume" in text for text in done.json["warnings"])
