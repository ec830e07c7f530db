"""`doctor`: it reports all that is missing with a fix, and one failure does not stop the other checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.findings import run_checks
from bridge.lake.lease import take
from bridge.lake.runs import RunFile
from bridge.lake.state.store import StateStore
from bridge.lake.storage.local.storage import LocalStorage
from bridge.operate.doctor.contents import content_checks
from bridge.operate.doctor.lake import lake_checks
from bridge.settings.load import load
from bridge.settings.options import Pipeline
from tests.support.lake import FIRST, Lake
from tests.support.shell import Typed

YAML = """\
pipelines:
  flights:
    source: {tap: tap-smoke, config: {streams: [{name: users, records: 3}, {name: orders, records: 3}]}}
    destination: {bucket: ./lake}
"""
BROKEN_TAP = """#!/bin/sh
case "$*" in
  *--about*) echo '{"settings": {"required": ["host", "password"], "properties": {"host": {}, "password": {}}}}' ;;
  *) echo "cannot log in with hunter2-longer" >&2; exit 1 ;;
esac
"""


def write(folder: Path, text: str = YAML, **changes: str) -> None:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "bridge.yaml").write_text(text)


def examined(typed: Typed, arguments: str = "flights") -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and for each check the worst that it found."""
    done = typed(f"doctor {arguments} --no-spark --json")
    found: dict[str, dict[str, Any]] = {}
    for check in json.loads(done.out)["checks"]:
        if check["status"] != "ok" or check["check"] not in found:
            found[check["check"]] = check
    assert all(check["fix"] for check in found.values() if check["status"] != "ok")
    return done.code, found


def bad(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: check["status"] for name, check in found.items() if check["status"] != "ok"}


def test_all_is_fine_and_nothing_is_left_behind(typed: Typed, folder: Path) -> None:
    """A project that works has no finding, and is afterwards as it was: no bucket, no catalog, no scratch."""
    write(folder)
    code, found = examined(typed)
    assert (code, bad(found)) == (0, {})
    assert "it does not exist yet" in found["bucket"]["found"]
    assert os.listdir(folder) == ["bridge.yaml"]
    (folder / "lake/.bridge").mkdir(parents=True)
    code, found = examined(typed)
    assert (code, bad(found)) == (0, {})
    assert [path.name for path in (folder / "lake").rglob("*")] == [".bridge"]


def test_people_get_a_line_for_each_check(typed: Typed, folder: Path) -> None:
    """With a mark, what was found, and at the end the sum."""
    write(folder)
    done = typed("doctor --no-spark")
    assert done.code == 0
    assert "✓ put-if-absent   the second writer of one name is refused" in done.out
    assert done.out.splitlines()[-1] == "✓ all is fine"


def test_before_there_is_a_project(typed: Typed) -> None:
    """The machine is checked, and the report names the next step."""
    code, found = examined(typed, "")
    assert (code, bad(found)) == (0, {"settings": "warning"})
    assert "singer-bridge init" in found["settings"]["fix"]


def test_java_is_missing(typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are looked at all the same."""
    write(folder)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, found = examined(typed)
    assert (code, bad(found)) == (2, {"java": "error"})
    assert "JAVA_HOME" in found["java"]["fix"]
    assert found["streams"]["status"] == "ok"


def test_settings_that_are_wrong(typed: Typed, folder: Path) -> None:
    """One pipeline's mistake keeps no other from being examined."""
    write(folder, YAML + '  other: {source: {tap: tap-x, config: {p: "${NOT_SET}"}}, destination: {bucket: l}}\n')
    code, found = examined(typed, "")
    assert (code, bad(found)) == (2, {"settings": "error"})
    assert found["settings"]["pipeline"] == "other"
    assert "NOT_SET" in found["settings"]["found"]
    assert found["bucket"]["pipeline"] == "flights"
    code, found = examined(typed, "flihgts")
    assert (code, found["settings"]["fix"]) == (2, 'did you mean "flights"?')


def test_a_bucket_that_is_a_file(typed: Typed, folder: Path) -> None:
    """It is the lake's matter: exit code 3."""
    write(folder)
    (folder / "lake").write_text("")
    code, found = examined(typed)
    assert code == 3
    names = ["bucket", "put-if-absent", "publish", "commit log", "clock", "locks", "lease"]
    assert bad(found) == dict.fromkeys(names, "error")
    assert "choose another bucket folder" in found["bucket"]["fix"]


class Careless(LocalStorage):
    """A bucket that lets the second writer win, and forgets to publish."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.write(key, data)
        return True

    def publish(self, changes: Any) -> None:
        pass


def test_a_bucket_that_does_not_keep_its_promises(folder: Path) -> None:
    """A place where two runs could both commit is refused, and swept."""
    write(folder)
    (folder / "lake").mkdir()
    checks = lake_checks(load(folder / "bridge.yaml", {}).pipeline(None), Careless(folder / "lake"))
    found = {finding.check: finding for finding in run_checks(checks)}
    assert {name for name, finding in found.items() if finding.status != "ok"} == {"put-if-absent", "publish"}
    assert found["put-if-absent"].exit_code == 3
    assert os.listdir(folder / "lake") == []


def test_a_damaged_commit_log(typed: Typed, folder: Path) -> None:
    """What a run would stumble over is found before."""
    write(folder)
    commits = folder / "lake/.bridge/flights/commits"
    commits.mkdir(parents=True)
    (commits / f"{1:020d}.json").write_text("{")
    code, found = examined(typed)
    assert (code, bad(found)) == (3, {"commit log": "error"})


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_state(typed: Typed, folder: Path, text: str) -> None:
    """A `state.json` that would stop the next run is found before, by `status` too, with the command that mends it."""
    write(folder)
    StateStore(folder / "lake", "flights").replace({"bookmarks": {"users": 1}})
    file = folder / "lake/.bridge/flights/state.json"
    file.write_text(text)
    code, found = examined(typed)
    assert (code, bad(found)) == (3, {"state": "error"})
    assert found["state"]["fix"] == f"rm {file}; the commit log brings back the last STATE"
    told = typed("status --json")
    assert (told.code, json.loads(told.out)[0]["status"]) == (3, "unreadable")
    file.unlink()
    assert bad(examined(typed)[1]) == {}


def test_an_unreadable_run_record(lake: Lake) -> None:
    """The record of the last run is named, with what to do; the other checks go on."""
    RunFile(lake.storage, "p", "20260101T000000Z-aaaa").finish(status="success")
    lake.storage.write(".bridge/p/runs/20260102T000000Z-aaaa.json", b"{")
    pipeline = Pipeline.model_validate({"name": "p", "source": {"tap": "t"}, "destination": {"bucket": "lake"}})
    findings = [one for one in run_checks(content_checks(lake.storage, pipeline)) if one.check == "last run"]
    assert [one.status for one in findings] == ["warning", "ok"]
    assert "20260102T000000Z-aaaa" in findings[0].text
    assert findings[0].fix.startswith("delete it")


def test_an_edited_state(typed: Typed, folder: Path) -> None:
    """One that was edited by hand is a warning, as it counts, and an earlier one as well."""
    write(folder)
    store = StateStore(folder / "lake", "flights")
    store.replace({"bookmarks": {"users": 1}})
    store.replace({"bookmarks": {"users": 2}})
    file = folder / "lake/.bridge/flights/state.json"
    for state in ({"users": 9}, {"bookmarks": {"users": 1}}):
        file.write_text(json.dumps(state))
        assert bad(examined(typed)[1]) == {"state": "warning"}


def test_files_of_a_table_that_are_gone(folder: Path) -> None:
    """Each file of the log is checked, up to a limit; what a crash left to the next run is not missing."""
    lake = Lake(folder / "lake")
    committer = lake.open(FIRST)
    files = [lake.load(committer, {"n": n}) for n in range(3)]
    settings = {"source": {"tap": "t"}, "destination": {"bucket": "lake"}}
    pipeline = Pipeline.model_validate({"name": "p", "streams": {"s": {"load_method": "append-only"}}} | settings)
    checks = content_checks(lake.storage, pipeline)
    assert [finding.status for finding in run_checks(checks)] == ["ok", "ok"]
    last = lake.root / "p/s" / files[2]["name"]
    last.rename(lake.root / files[2]["source"])
    assert [finding.status for finding in run_checks(checks)] == ["ok", "ok"]
    path = lake.root / "p/s" / files[0]["name"]
    path.write_bytes(b"torn and longer than it was")
    (found,) = [finding for finding in run_checks(checks) if finding.status != "ok"]
    assert (found.check, found.exit_code) == ("tables", 3)
    assert found.text == f"s: 1 of 3 files missing: {path}"
    assert found.fix.endswith("again: set load_method: auto for s, then singer-bridge run p --full -s s")
    found = list(run_checks(content_checks(lake.storage, pipeline, 2)))[-1]
    assert found.text.endswith("; looked at the first 2 of 3")


def test_somebody_holds_the_pipeline(typed: Typed, folder: Path) -> None:
    """The report says who holds it; that is no error."""
    write(folder)
    lease = take(LocalStorage(folder / "lake"), "flights", "20261120T000000Z-abcd")
    code, found = examined(typed)
    lease.close(head=0, clean=True)
    assert (code, bad(found)) == (0, {"lease": "warning"})
    assert f"pid {os.getpid()}" in found["lease"]["found"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_of_another_user(typed: Typed, folder: Path) -> None:
    """A folder that is closed to us is named, and so is the command that opens it."""
    write(folder)
    table = folder / "lake/flights/users"
    table.mkdir(parents=True)
    table.chmod(0o500)
    code, found = examined(typed)
    assert (code, bad(found)) == (3, {"rights": "error"})
    assert "chown" in found["rights"]["fix"]


def test_too_little_space(typed: Typed, folder: Path) -> None:
    """A spool that may grow beyond its disk is a warning."""
    write(folder, YAML + "    spool: {max_bytes: 900TiB}\n")
    code, found = examined(typed)
    assert (code, bad(found)) == (0, {"spool": "warning"})


def test_a_tap_that_is_not_there(typed: Typed, folder: Path) -> None:
    """Exit code 1, and how to install it."""
    write(folder, **{"tap-smoke": "tap-nowhere"})
    code, found = examined(typed)
    assert (code, bad(found)) == (1, {"tap": "error"})
    assert "singer-bridge install" in found["tap"]["fix"]


def test_a_wrong_key_and_a_wrong_password(typed: Typed, folder: Path) -> None:
    """A key that the tap requires and one that it does not know belong together; what the tap says comes masked."""
    (folder / "tap.sh").write_text(BROKEN_TAP)
    (folder / "tap.sh").chmod(0o755)
    write(
        folder,
        "pipelines:\n  flights:\n    source: {tap: ./tap.sh, config: {hots: h, password: hunter2-longer}}\n"
        "    destination: {bucket: ./lake}\n",
    )
    code, found = examined(typed)
    assert (code, bad(found)) == (2, {"tap settings": "error", "tap --discover": "error"})
    assert found["tap settings"]["found"].endswith("missing=host")
    assert found["tap settings"]["fix"] == 'hots: did you mean "host"?'
    assert "cannot log in with ***" in found["tap --discover"]["fix"]
    write(folder, (folder / "bridge.yaml").read_text(), **{"hots: h": "host: h, mode: fast"})
    code, found = examined(typed)
    assert (code, found["tap settings"]["status"]) == (1, "warning")
    assert "the tap does not know: mode" in found["tap settings"]["found"]


def test_a_tap_that_forgot_a_dependency(typed: Typed, folder: Path) -> None:
    """What older taps take for granted is no longer in a new venv; the hint says how to bring it in."""
    (folder / "tap.sh").write_text("#!/bin/sh\necho \"No module named 'pkg_resources'\" >&2; exit 1\n")
    (folder / "tap.sh").chmod(0o755)
    write(folder, **{"tap-smoke": "./tap.sh"})
    code, found = examined(typed)
    assert (code, bad(found)) == (1, {"tap --discover": "error"})
    assert "add setuptools to source.pip_url" in found["tap --discover"]["fix"]
    out = typed("doctor --no-spark").out
    assert "\n  fix: add setuptools to source.pip_url: the tap needs it and does not say so\n" in out
    assert "\n  it said: No module named 'pkg_resources'\n" in out


def test_a_table_that_was_renamed(typed: Typed, folder: Path) -> None:
    """A selected stream that the tap lost is named with a similar name; the stored catalog stays as it is."""
    write(folder)
    assert typed("discover").code == 0
    kept = folder / ".singer-bridge/catalogs/flights.json"
    before = kept.read_bytes()
    write(folder, **{"name: users": "name: users_2"})
    code, found = examined(typed)
    assert (code, bad(found)) == (2, {"streams": "error"})
    assert found["streams"]["found"].endswith("gone=users")
    assert 'users: did you mean "users_2"?' in found["streams"]["fix"]
    assert kept.read_bytes() == before


def test_a_renamed_table_beside_one_of_a_similar_name(typed: Typed, folder: Path) -> None:
    """A table that was there before is not offered, neither before `discover` nor after it."""
    old = {"name: orders": "name: users_old"}
    write(folder, **old, **{"config:": "select: [users, users_old], config:"})
    assert typed("discover").code == 0
    write(folder, (folder / "bridge.yaml").read_text(), **{"name: users,": "name: people,"})
    _, found = examined(typed)
    assert found["streams"]["fix"] == "singer-bridge discover shows what changed"
    assert typed("discover").code == 0
    _, found = examined(typed)
    assert found["streams"]["fix"] == "remove it"


@pytest.mark.parametrize(
    ("select", "code", "status", "words"),
    [
        ("[users]", 0, "ok", "1 of 2 selected: users"),
        ("[users, oders]", 0, "warning", "oders"),
        ("['!*']", 2, "error", "no stream is selected"),
    ],
)
def test_what_is_selected(typed: Typed, folder: Path, select: str, code: int, status: str, words: str) -> None:
    """Patterns are compared with what the tap has."""
    write(folder, **{"source: {": f"source: {{select: {select}, "})
    ended, found = examined(typed)
    assert (ended, found["streams"]["status"]) == (code, status)
    assert words in found["streams"]["found"]


def test_nothing_is_selected_before_discover(typed: Typed, folder: Path) -> None:
    """If the tap selects nothing, a run would load nothing: the warning says what to type, user tables first."""
    streams = [
        {"tap_stream_id": name, "schema": {}, "metadata": [{"breadcrumb": [], "metadata": {"inclusion": "available"}}]}
        for name in ("information_schema-views", "public-users")
    ]
    (folder / "catalog.json").write_text(json.dumps({"streams": streams}))
    (folder / "tap-x").write_text(
        f'#!/bin/sh\ncase "$*" in *--discover*) cat {folder}/catalog.json;; *) exit 2;; esac\n'
    )
    (folder / "tap-x").chmod(0o755)
    text = f"pipelines: {{shop: {{source: {{tap: {folder}/tap-x}}, destination: {{bucket: lake}}}}}}"
    (folder / "bridge.yaml").write_text(text)
    code, found = examined(typed, "shop")
    assert (code, found["streams"]["status"]) == (0, "warning")
    assert "nothing is selected, and there is no catalog" in found["streams"]["found"]
    assert found["streams"]["fix"] == (
        "singer-bridge discover shop, then choose: singer-bridge select shop public-users"
    )
    assert typed("discover shop").code == 0
    assert typed("select shop public-users").code == 0
    assert examined(typed, "shop")[1]["streams"]["status"] == "ok"


def test_an_old_tap_whose_catalog_selects_nothing(typed: Typed, folder: Path) -> None:
    """The tap does not discover, so its catalog is looked at alone: a run would end with this error."""
    (folder / "tap-x").write_text('#!/bin/sh\necho \'{"type": "STATE", "value": {}}\'\n')
    (folder / "tap-x").chmod(0o755)
    source = f"{{tap: {folder}/tap-x --properties, catalog: catalog.json}}"
    (folder / "bridge.yaml").write_text(f"pipelines: {{shop: {{source: {source}, destination: {{bucket: lake}}}}}}")
    entry = {"stream": "users", "schema": {"properties": {"id": {"type": "integer"}}}}
    (folder / "catalog.json").write_text(json.dumps({"streams": [entry]}))
    code, found = examined(typed, "shop")
    assert (code, bad(found)) == (2, {"streams": "error"})
    assert found["streams"]["found"].startswith("the catalog selects no stream")
    assert typed("run shop").code == 2
    (folder / "catalog.json").write_text(json.dumps({"streams": [entry | {"selected": True}]}))
    code, found = examined(typed, "shop")
    assert (code, found["streams"]["found"]) == (0, "1 of 1 selected: users")


def test_without_any_file(typed: Typed, folder: Path) -> None:
    """A bucket alone can be examined."""
    code, found = examined(typed, "--to ./lake --name x")
    assert (code, bad(found)) == (0, {})
    assert "tap" not in found


@pytest.mark.heavy
def test_spark_is_started(typed: Typed, folder: Path) -> None:
    """With the pipeline's own settings; the report has the seconds, and nothing is left running or on the disk."""
    write(folder)
    done = typed("doctor flights --json")
    spark = next(check for check in json.loads(done.out)["checks"] if check["check"] == "spark")
    assert (done.code, spark["status"]) == (0, "ok"), spark
    assert "on local[*] started in" in spark["found"]
    write(folder, YAML + "    spark: {conf: {spark.driver.memory: nonsense}}\n")
    # As a process of its own: pyspark leaves a pipe open when its JVM does not come up.
    command = [sys.executable, "-m", "bridge", "doctor", "flights", "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    spark = next(check for check in json.loads(ended.stdout)["checks"] if check["check"] == "spark")
    assert (ended.returncode, spark["found"].split(" cause")[0]) == (1, "Spark did not start")
    assert "nonsense" in spark["fix"]
    assert os.listdir(folder) == ["bridge.yaml"]
