"""Facts are told once, to real receivers; one that hangs or fails costs the run a warning."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.lake.runs import RunFile, read_run
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.facts.after_run import after_run, look_at_clock
from bridge.serve.facts.metrics import figures, metrics_text
from bridge.settings.load import load
from bridge.settings.options import Pipeline
from tests.support.receiver import receiver
from tests.support.tables import INTEGER, STRING, Shop

# apprise imports a module of Python that is to go.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
TOKEN = "t0psecret-token"
ALL = "[failed, recovered, stale, rejects, empty, volume, drift]"


def settings(root: Path, port: int, more: str = "", on: str = ALL, path: str = TOKEN) -> Pipeline:
    """The pipeline `shop` with one receiver, as bridge.yaml has it."""
    (root / "bridge.yaml").write_text(f"""
pipelines:
  shop:
    source: {{tap: tap-x}}
    destination: {{bucket: lake}}
    notify: [{{url: "${{URL}}", on: {on}}}]
    {more}
""")
    return load(root / "bridge.yaml", {"URL": f"json://127.0.0.1:{port}/{path}"}).pipeline("shop")


class Runs:
    """Run records of `shop`, as runs one after another leave them."""

    def __init__(self, root: Path) -> None:
        self.storage = LocalStorage(root / "lake")
        self.storage.prepare()
        self._n = 0

    def id(self) -> str:
        self._n += 1
        return f"20260101T0000{self._n:02}Z-aaaa"

    def ended(self, status: str, *, records: int = 5, **facts: Any) -> str:
        run = self.id()
        streams = {"s": {"records": records} | facts.pop("stream", {})}
        error = {"error": {"type": "TapError", "message": "the tap failed", "hint": ""}} if status == "failed" else {}
        RunFile(self.storage, "shop", run).finish(status=status, streams=streams, **error, **facts)
        return run


@pytest.mark.parametrize(
    ("statuses", "kinds"),
    [
        (["success", "failed", "failed", "success"], ["failed", "recovered"]),
        (["failed", "held", "failed", "interrupted", "success", "success"], ["failed", "recovered"]),
        (["success", "failed", "success", "failed"], ["failed", "recovered", "failed"]),
        (["success", "success"], []),
    ],
)
def test_a_failure_is_told_once(tmp_path: Path, statuses: list[str], kinds: list[str]) -> None:
    """`failed` at the first failure, `recovered` at the next success; whatever machine runs it, as the bucket knows."""
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        for status in statuses:
            assert after_run(runs.storage, pipeline, runs.ended(status)) == []
        assert server.kinds == kinds


def test_attempts_of_one_run_are_one_run(tmp_path: Path) -> None:
    """A run that succeeded at its second attempt never failed, so it has not recovered."""
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        runs.ended("success")
        runs.ended("failed", attempt=1)
        assert after_run(runs.storage, pipeline, runs.ended("success", attempt=2)) == []
        runs.ended("failed", attempt=1)
        assert after_run(runs.storage, pipeline, runs.ended("failed", attempt=2)) == []
        assert server.kinds == ["failed"]


def test_an_attempt_that_died_is_one_of_its_run(tmp_path: Path) -> None:
    """Nobody was told of it before the next attempt succeeded: the run never failed."""
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        runs.ended("success")
        runs.ended("failed", attempt=1)
        RunFile(runs.storage, "shop", runs.id(), opened=True, commit=None, attempt=2)
        assert after_run(runs.storage, pipeline, runs.ended("success", attempt=3)) == []
        assert server.kinds == []


def test_what_looks_wrong_is_told_once(tmp_path: Path) -> None:
    """Rejects, few rows, no rows: at the first run that has them, also across a failure; again after a good run."""
    runs = Runs(tmp_path)
    bad = {"stream": {"rejected": 2}, "marks": {"volume": ["s"]}}
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        for status, facts in [
            ("success", {}),
            ("success", bad),
            ("success", bad),
            ("failed", {}),
            ("success", bad),
            ("success", {"records": 0}),
            ("success", {"records": 0}),
            ("success", bad),
        ]:
            after_run(runs.storage, pipeline, runs.ended(status, **facts))
        assert server.kinds == ["rejects", "volume", "failed", "recovered", "empty", "rejects", "volume"]
        assert "s (2)" in server.bodies[0]["message"]


def test_a_difference_from_the_source_is_told_once(tmp_path: Path) -> None:
    """As drift: each kind of each stream when it is new, not in each run that finds it again."""
    runs = Runs(tmp_path)
    first = {"stream": "s", "kind": "null_key", "text": "200 rows without updated_at", "rows": 200}
    second = {"stream": "s", "kind": "lost_digits", "text": "12 values lost digits"}
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        for differences in ([first], [first | {"rows": 201}], [first, second], [second]):
            after_run(runs.storage, pipeline, runs.ended("success", differences=differences))
        assert server.kinds == ["drift", "drift"]
        assert all(
            f"s: {one['text']}" in body["message"] for one, body in zip((first, second), server.bodies, strict=True)
        )


def test_a_long_history_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run before and the last success are read, however many failed in between."""
    runs = Runs(tmp_path)
    success = runs.ended("success")
    since = {"run_id": success, "at": "2026-01-01T00:00:01+00:00", "is_success": True}
    for _ in range(40):
        runs.ended("failed", since=since)
    run = runs.ended("success", records=0, since=since)
    reads, read = list[str](), LocalStorage.read
    monkeypatch.setattr(LocalStorage, "read", lambda self, key: (reads.append(key), read(self, key))[1])
    with receiver() as server:
        assert after_run(runs.storage, settings(tmp_path, server.port), run) == []
        assert server.kinds == ["recovered", "empty"]
    assert sum("/runs/" in key for key in reads) <= 4


def test_a_receiver_gets_what_it_asked_for(tmp_path: Path) -> None:
    """`on` chooses; nothing else is sent, not even an empty message."""
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port, on="[recovered]")
        for status in ("failed", "success"):
            after_run(runs.storage, pipeline, runs.ended(status))
        assert server.kinds == ["recovered"]


def test_columns_that_change(tmp_path: Path) -> None:
    """`drift` names the new columns of a run that brought them, and only of that run."""
    shop = Shop(tmp_path)
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        for columns in ({"id": INTEGER}, {"id": INTEGER, "city": STRING}, {"id": INTEGER, "city": STRING}):
            shop.run = runs.id()
            run = shop.load("s", columns, [{"id": 1}]).run
            RunFile(shop.storage, "shop", run).finish(status="success", streams={"s": {"records": 1}}, commits=1)
            assert after_run(shop.storage, pipeline, run) == []
        assert server.kinds == ["drift"]
        assert (
            "new: city string" in server.bodies[0]["message"] or "new: city large_string" in server.bodies[0]["message"]
        )
    assert runs.storage.uri == shop.storage.uri


@pytest.mark.parametrize("status", [500, None])
def test_a_receiver_that_fails_or_hangs(tmp_path: Path, status: int | None) -> None:
    """The others are told all the same; the run waits at most for the deadline, warns once, and shows no secret."""
    runs = Runs(tmp_path)
    with receiver(status) as broken, receiver() as good:
        pipeline = settings(tmp_path, good.port)
        bad = settings(tmp_path, broken.port).notify
        pipeline = pipeline.model_copy(update={"notify": [*bad, *pipeline.notify]})
        began = time.monotonic()
        run = runs.ended("failed")
        warnings = after_run(runs.storage, pipeline, run, deadline=2)
        assert time.monotonic() - began < 30
        assert good.kinds == ["failed"]
    assert len(warnings) == 1
    assert warnings[0].startswith("notify[0] (json) ")
    assert TOKEN not in warnings[0]
    record = read_run(runs.storage, "shop", run)
    assert record
    assert (record.warnings, record.status) == (tuple(warnings), "failed")
    assert record.ended


def test_stale_is_told_once(tmp_path: Path) -> None:
    """By whoever looks first; again only after a success in between. A pipeline that ran just now is not stale."""
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port, "stale_after: 6h")
        runs.ended("success")
        assert look_at_clock(runs.storage, pipeline) == ([], [])
        late = pipeline.model_copy(update={"stale_after": timedelta(microseconds=1)})
        time.sleep(1.1)  # records have whole seconds
        assert [fact.kind for fact in look_at_clock(runs.storage, late)[0]] == ["stale"]
        assert look_at_clock(runs.storage, late) == ([], [])
        runs.ended("success")
        time.sleep(1.1)
        look_at_clock(runs.storage, late)
        assert server.kinds == ["stale", "stale"]


def test_a_run_that_died(tmp_path: Path) -> None:
    """Nobody but the clock tells of it: `failed` once, and `recovered` at the next success."""
    runs = Runs(tmp_path)
    with receiver() as server:
        pipeline = settings(tmp_path, server.port)
        RunFile(runs.storage, "shop", runs.id(), opened=True, commit=None)
        for _ in range(2):
            look_at_clock(runs.storage, pipeline)
        after_run(runs.storage, pipeline, runs.ended("success"))
        assert server.kinds == ["failed", "recovered"]


def test_the_textfile_is_what_prometheus_reads(tmp_path: Path) -> None:
    """One file a pipeline, replaced as a whole, with the figures of the bucket."""
    runs = Runs(tmp_path)
    pipeline = settings(tmp_path, 1, "metrics: {textfile: prom}\n    stale_after: 6h", on="[stale]")
    runs.ended("failed")
    assert after_run(runs.storage, pipeline, runs.ended("success", stream={"rejected": 3})) == []
    assert [file.name for file in (tmp_path / "prom").iterdir()] == ["singer_bridge_shop.prom"]
    text = (tmp_path / "prom/singer_bridge_shop.prom").read_text()
    samples = {one.name: one.value for family in text_string_to_metric_families(text) for one in family.samples}
    assert samples["singer_bridge_run_success"] == 1
    assert samples["singer_bridge_run_records"] == 5
    assert samples["singer_bridge_run_rejects"] == 3
    assert samples["singer_bridge_stale"] == 0
    assert metrics_text([figures(runs.storage, "shop", timedelta(hours=6))]) == text


def test_no_text_shows_a_receiver(tmp_path: Path) -> None:
    """`config show`, reprs and the redactor hide the URL, and a token in it."""
    from bridge.settings.effective import effective, to_yaml
    from bridge.settings.redact import redactor

    pipeline = settings(tmp_path, 1, 'openlineage: {url: "http://me:pa55word@127.0.0.1/api"}')
    shown = "\n".join(to_yaml(effective(pipeline, every=True)[0]))
    assert "notify: [{url: " in shown
    for secret in (TOKEN, "pa55word"):
        assert secret not in shown
        assert secret not in repr(pipeline)
        assert secret not in redactor(pipeline.secrets).text(f"POST to /{secret} failed")
