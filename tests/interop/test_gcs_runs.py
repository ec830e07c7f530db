"""A lake on Google Cloud Storage as a user has it: `doctor`, runs into it, and what reads the tables that they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import LakeError
from bridge.findings import exit_code, run_checks
from bridge.lake.storage.gcs.checks import _lifecycle, _old_versions, _retention
from bridge.lake.storage.gcs.facts import Rule, Settings
from bridge.lake.storage.gcs.store import GcsStore
from bridge.operate.doctor.lake import lake_checks
from bridge.settings.load import load
from bridge.settings.values.stores import GcsOptions
from tests.e2e.conftest import stream
from tests.interop.fakegcs import FakeGcs

pytestmark = pytest.mark.timeout(900)


@dataclass
class Project:
    """A project whose lake is on gs://."""

    folder: Path
    bucket: str

    def write(self, **destination: Any) -> None:
        source = {"tap": "tap-smoke", "config": "tap.json"}
        settings = {"source": source, "destination": {"bucket": f"gs://{self.bucket}/team"} | destination}
        (self.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": settings}}))

    def command(self, *arguments: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        argv = [sys.executable, "-m", "bridge", *arguments]
        environ = os.environ | {"PATH": path}
        done = subprocess.run(argv, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def grow(self, users: int, full: int) -> None:
        streams = [stream(records=users), stream("full", full, replication_method="FULL_TABLE")]
        config = {"seed": 1, "state": {"every": 100}, "streams": streams}
        (self.folder / "tap.json").write_text(json.dumps(config))

    def run(self, users: int, full: int) -> dict[str, Any]:
        self.grow(users, full)
        return dict(json.loads(self.command("run", "--json")))

    def doctor(self) -> tuple[int, dict[str, list[str]]]:
        """Return the exit code, and what each check of the bucket found."""
        findings = list(run_checks(lake_checks(load(self.folder / "bridge.yaml", {}).pipeline(None))))
        assert all(finding.fix for finding in findings if finding.status != "ok")
        result: dict[str, list[str]] = {}
        for finding in findings:
            result.setdefault(finding.check, []).append(f"{finding.status}: {finding.text}")
        return exit_code(findings), result


@pytest.fixture
def project(gcs: FakeGcs, tmp_path: Path) -> Project:
    project = Project(tmp_path, gcs.bucket(uuid.uuid4().hex))
    project.grow(300, 100)
    return project


def test_doctor(gcs: FakeGcs, project: Project) -> None:
    """Each thing that a run needs is tried and is well, and nothing is left in the bucket."""
    project.write()
    code, findings = project.doctor()
    assert code == 0, findings
    for check in ("bucket", "rights", "swap", "uploads", "copies", "put-if-absent", "publish", "retention"):
        assert [text.partition(":")[0] for text in findings[check]] == ["ok"], findings
    assert list(gcs.client().list_blobs(project.bucket)) == []


def test_doctor_finds_a_store_that_ignores_conditions(gcs: FakeGcs, project: Project) -> None:
    """fake-gcs-server by itself copies over whatever there is: a lake must not be there."""
    project.write(gcs={"endpoint_url": gcs.without_proxy})
    code, findings = project.doctor()
    assert (code, len(findings["copies"])) == (3, 1)
    assert "copies an object whatever version is requested" in findings["copies"][0]


def test_doctor_without_a_bucket(project: Project) -> None:
    """Nothing more is tried in a bucket that does not exist."""
    project.bucket = uuid.uuid4().hex
    project.write()
    code, findings = project.doctor()
    assert (code, list(findings)) == (3, ["bucket"])


DAY = timedelta(days=1)
PLAIN = Settings("EU", False, 0 * DAY, 0 * DAY, False, False, ())


def test_settings_of_a_bucket_that_hurt() -> None:
    """A retention or a hold is an error; rules that delete, and versions that stay, are warned of, with what to do."""
    store = GcsStore.of("gs://lake/team", GcsOptions())
    for settings in (replace(PLAIN, retention=30 * DAY), replace(PLAIN, hold=True)):
        with pytest.raises(LakeError) as caught:
            list(_retention(settings))
        assert caught.value.hint
    statuses = {}
    for name, rules in {
        "all": (Rule((), False),),
        "above": (Rule(("te",), False),),
        "below": (Rule(("team/shop/",), False),),
        "beside": (Rule(("other/",), False),),
        "old": (Rule((), True),),
    }.items():
        (lifecycle,) = _lifecycle(store, replace(PLAIN, deletes=rules))
        versions, _ = _old_versions(store, replace(PLAIN, versioning=True, deletes=rules))
        statuses[name] = (lifecycle.status, versions.status)
    assert statuses == {
        "all": ("warning", "warning"),
        "above": ("warning", "warning"),
        "below": ("warning", "warning"),
        "beside": ("ok", "warning"),
        "old": ("ok", "ok"),
    }
    _, soft = _old_versions(store, replace(PLAIN, soft_delete=7 * DAY))
    assert "for 7 d;" in soft.text


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_runs(gcs: FakeGcs, project: Project, kind: str) -> None:
    """Rows are exact after a run and one that resumes and overwrites; SQL, verbs and other engines read the same."""
    project.write(format=kind)
    project.command("discover")
    assert project.run(300, 100)["status"] == "success"
    second = project.run(420, 40)
    assert (second["status"], second["streams"]["users"]["records"]) == ("success", 120)
    answer = project.command("sql", "SELECT count(*), count(DISTINCT id), max(id) FROM users", "--csv")
    assert answer.splitlines()[-1] == "420,420,420"
    head = project.command("tables", "head", "-s", "full", "--json", "-n", "50")
    assert head.count("\n") == 40
    project.command("verify", "shop")
    for dialect in ("polars", "pyarrow"):
        for flags in ((), ("--manifest",)):
            assert _rows(gcs, project, dialect, *flags) == list(range(1, 421))
    names = [blob.name for blob in gcs.client().list_blobs(project.bucket)]
    assert [name for name in names if "/pending/" in name] == []


def _rows(gcs: FakeGcs, project: Project, dialect: str, *flags: str) -> list[int]:
    """The ids that the printed code reads. An engine's own credentials are left out: an emulator has none."""
    code = project.command("tables", "ddl", "-s", "users", "--dialect", dialect, *flags)
    key = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
    options = {"google_base_url": gcs.endpoint, "google_service_account_key": key}
    host = gcs.endpoint.partition("://")[2]
    emulator = f'fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override="{host}")'
    code = code.replace("fs.GcsFileSystem()", emulator)
    if dialect == "polars":
        code = code.replace("glob=False,", f"glob=False, storage_options={options!r},")
        code = code.replace("scan_csv(", f"scan_csv(storage_options={options!r}, source=")
        code = code.replace('/users")', f'/users", storage_options={options!r})')
    else:
        code = code.replace('/users")', f'/users", storage_options={options!r})')
    names: dict[str, Any] = {}
    exec(compile(code, "code", "exec"), names)
    table = names["users"]
    rows = table.collect() if dialect == "polars" else table.to_table()
    return sorted(rows["id"].to_list() if dialect == "polars" else rows["id"].to_pylist())
