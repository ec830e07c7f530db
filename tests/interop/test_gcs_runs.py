"""A lake on Google Cloud Storage as a user has it: `doctor`, runs into it, and what reads the tables that they left."""

from __future__ import annotations

import uuid
from dataclasses import replace
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
from tests.interop.fakegcs import FakeGcs
from tests.support.project import SMOKE, Project, stream

pytestmark = pytest.mark.timeout(900)


class GcsProject(Project):
    """A project whose lake is on gs://."""

    bucket: str

    def to(self, **destination: Any) -> None:
        """Write bridge.yaml with these keys of the destination."""
        self.write(shop={"source": SMOKE, "destination": {"bucket": f"gs://{self.bucket}/team"} | destination})

    def grow(self, users: int, full: int) -> None:
        self.sends(stream(records=users), stream("full", full, replication_method="FULL_TABLE"))


@pytest.fixture
def project(gcs: FakeGcs, tmp_path: Path) -> GcsProject:
    project = GcsProject(tmp_path)
    project.bucket = gcs.bucket(uuid.uuid4().hex)
    project.grow(300, 100)
    return project


def findings_of(project: GcsProject) -> tuple[int, dict[str, list[str]]]:
    """The exit code of `doctor`, and what each check of the bucket found."""
    findings = list(run_checks(lake_checks(load(project.folder / "bridge.yaml", {}).pipeline(None))))
    assert all(finding.fix for finding in findings if finding.status != "ok")
    result: dict[str, list[str]] = {}
    for finding in findings:
        result.setdefault(finding.check, []).append(f"{finding.status}: {finding.text}")
    return exit_code(findings), result


def test_doctor(gcs: FakeGcs, project: GcsProject) -> None:
    """Each thing that a run needs is tried and is well, and nothing is left in the bucket."""
    project.to()
    code, findings = findings_of(project)
    assert code == 0, findings
    for check in ("bucket", "rights", "swap", "uploads", "copies", "put-if-absent", "publish", "retention"):
        assert [text.partition(":")[0] for text in findings[check]] == ["ok"], findings
    assert list(gcs.client().list_blobs(project.bucket)) == []


def test_doctor_finds_a_store_that_ignores_conditions(gcs: FakeGcs, project: GcsProject) -> None:
    """fake-gcs-server by itself copies over whatever there is: a lake must not be there."""
    project.to(gcs={"endpoint_url": gcs.without_proxy})
    code, findings = findings_of(project)
    assert (code, len(findings["copies"])) == (3, 1)
    assert "copies an object whatever version is requested" in findings["copies"][0]


def test_doctor_without_a_bucket(project: GcsProject) -> None:
    """Nothing more is tried in a bucket that does not exist."""
    project.bucket = uuid.uuid4().hex
    project.to()
    code, findings = findings_of(project)
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
def test_runs(gcs: FakeGcs, project: GcsProject, kind: str) -> None:
    """Rows are exact after a run and one that resumes and overwrites; SQL, verbs and other engines read the same."""
    project.to(format=kind)
    project.output("discover")
    project.run()
    project.grow(420, 40)
    assert project.run()["streams"]["users"]["records"] == 120
    answer = project.output("sql", "SELECT count(*), count(DISTINCT id), max(id) FROM users", "--csv")
    assert answer.splitlines()[-1] == "420,420,420"
    head = project.output("tables", "head", "-s", "full", "--json", "-n", "50")
    assert head.count("\n") == 40
    project.output("verify", "shop")
    for dialect in ("polars", "pyarrow"):
        for flags in ((), ("--manifest",)):
            assert _rows(gcs, project, dialect, *flags) == list(range(1, 421))
    names = [blob.name for blob in gcs.client().list_blobs(project.bucket)]
    assert [name for name in names if "/pending/" in name] == []


def _rows(gcs: FakeGcs, project: GcsProject, dialect: str, *flags: str) -> list[int]:
    """The ids that the printed code reads. An engine's own credentials are left out: an emulator has none."""
    code = project.output("tables", "ddl", "-s", "users", "--dialect", dialect, *flags)
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
