"""The API says what the pages say, in JSON; a row of a view comes with the commit that it is of."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.lake.log import Log
from tests.support.busy_lake import record_run
from tests.support.view_tables import Views

from .conftest import NOW, TOKEN, Open, Page

OWN = {"x-singer-bridge": "1"}
LONG = "9" * 5000


def counts(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"id": pa.array([a for a, _ in pairs], pa.int64()), "n": pa.array([b for _, b in pairs], pa.int64())}
    )


def test_pipelines_as_status_prints_them(page: Page) -> None:
    page.runs.next["shop"] = NOW
    shop, quiet, failing = page.client.get("/api/pipelines").json()
    assert (shop["name"], shop["rows"], shop["commit"], shop["next_run"]) == ("shop", 31, 4, NOW.isoformat())
    assert (quiet["status"], quiet["run_id"], quiet["live"]) == ("never ran", None, [])
    assert failing["failures"]["count"] == 1
    one = page.client.get("/api/pipelines/shop").json()
    assert one["tables"][0] | {"bytes": 0} == {
        "stream": "orders", "kind": "table", "folder": "shop/orders", "format": "parquet", "rows": 31, "files": 4,
        "bytes": 0,
    }  # fmt: skip
    assert page.client.get("/api/pipelines/no").status_code == 404


def test_runs_and_one_run(page: Page) -> None:
    runs = page.client.get("/api/pipelines/failing/runs?limit=2").json()
    assert [run["status"] for run in runs] == ["failed", "success"]
    older = page.client.get(f"/api/pipelines/failing/runs?before={runs[1]['run_id']}").json()
    assert len(older) == 2
    one = page.client.get(f"/api/pipelines/failing/runs/{runs[1]['run_id']}").json()
    assert one["streams"]["s"]["records"] == 502
    for wrong in ("limit=0", "limit=x", "limit=9999", f"limit={LONG}", "before=../x"):
        assert page.client.get(f"/api/pipelines/failing/runs?{wrong}").status_code == 400


def test_a_number_may_have_any_length(page: Page) -> None:
    """Python refuses to read one of more than 4300 digits: it is one that there is not."""
    for path, status in {
        f"commits/{LONG}": 404, "commits/x": 404, "commits/99": 404, "commits/1": 200, f"commits?before={LONG}": 200,
        "commits?before=0": 200, f"bookmarks?before={LONG}": 200, f"rollback?to={LONG}": 400,
    }.items():  # fmt: skip
        assert page.client.get(f"/pipelines/shop/{path}").status_code == status, path
    body = f'{{"full": {LONG}}}'
    assert page.client.post("/api/pipelines/shop/runs", content=body, headers=OWN).status_code == 400


def test_a_run_is_started_and_stopped(page: Page) -> None:
    """By the flags of `run`; a second request for the same pipeline is refused with the reason."""
    body = {"full": True, "resume": False, "streams": ["a", "b"]}
    answer = page.client.post("/api/pipelines/shop/runs", json=body, headers=OWN)
    assert answer.status_code == 202
    run = answer.json()["run_id"]
    assert answer.headers["location"] == f"/api/pipelines/shop/runs/{run}"
    assert page.runs.requested == [("shop", "--full", "--stream", "a", "--stream", "b")]
    assert page.client.get(answer.headers["location"]).json()["live"]["status"] == "waiting"
    again = page.client.post("/api/pipelines/shop/runs", headers=OWN)
    assert (again.status_code, again.json()["error"]["type"]) == (400, "SettingsError")
    assert page.client.post(f"/api/runs/{run}/stop", headers=OWN).status_code == 202
    assert page.client.post(f"/api/runs/{run}/stop", headers=OWN).status_code == 404
    facts = page.client.get(answer.headers["location"]).json()
    assert (facts["status"], facts["reason"], facts["live"]) == ("not run", "stopped before it started", None)


@pytest.mark.parametrize("body", ["[]", "{", '{"full": 1}', '{"state": "x"}', '{"streams": "a"}', '{"--adopt": true}'])
def test_what_no_run_takes_is_refused(page: Page, body: str) -> None:
    assert page.client.post("/api/pipelines/shop/runs", content=body, headers=OWN).status_code == 400
    assert page.runs.requested == []


@pytest.fixture
def views(page: Page) -> Views:
    made = Views(page.root, pipeline="quiet")
    made.put(counts((1, 10), (2, 20)))
    return made


def ask(page: Page, query: str, **headers: str) -> Any:
    return page.client.get(f"/api/views/quiet/counts?{query}", headers=headers)


def test_a_row_of_a_view_with_its_commit(page: Page, views: Views) -> None:
    """The ETag is the commit, in each answer; who has it gets 304 until a commit changes."""
    answer = ask(page, "key=2")
    assert answer.json() == {"pipeline": "quiet", "view": "counts", "commit": 1, "row": {"id": 2, "n": 20}}
    assert answer.headers["etag"] == '"1"'
    same = ask(page, "key=id=2", **{"if-none-match": '"1"'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", '"1"')
    views.put(counts((2, 21)))
    newer = ask(page, "key=2", **{"if-none-match": '"1"'})
    assert (newer.status_code, newer.json()["row"], newer.headers["etag"]) == (200, {"id": 2, "n": 21}, '"2"')
    gone = ask(page, "key=1")
    assert (gone.status_code, gone.json()["row"], gone.json()["commit"], gone.headers["etag"]) == (404, None, 2, '"2"')
    assert ask(page, "key=1&at=1").json()["row"] == {"id": 1, "n": 10}


@pytest.mark.parametrize(
    ("query", "status"),
    [("key=x", 400), ("", 400), ("key=1&key=2", 400), ("key=1&at=x", 400), ("key=1&at=99", 400), ("key=nope=1", 400)],
)
def test_a_key_that_is_none_is_refused(page: Page, views: Views, query: str, status: int) -> None:
    answer = ask(page, query)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})


def test_a_view_that_is_not_there(page: Page, views: Views) -> None:
    answer = page.client.get("/api/views/quiet/count?key=1")
    assert answer.status_code == 404
    assert "counts" in answer.json()["error"]["message"]
    assert page.client.get("/api/views/shop/orders?key=1").status_code == 404


def test_no_digit_is_lost(page: Page) -> None:
    """A bookmark of more digits than a double has comes out as it went in."""
    digits = "12345678901234567.000000000000000001"
    page.lake.write(".bridge/failing/state.json", b'{"bookmarks": {"s": {"id": %s}}}' % digits.encode())
    record_run(page.lake, "failing", NOW, "success")
    assert f'"bookmark": {{"id": {digits}}}' in page.client.get("/api/pipelines/failing").text
    assert json.loads(page.client.get("/api/pipelines/failing").text)["name"] == "failing"


def test_figures_for_prometheus(page: Page) -> None:
    """Of each pipeline what its bucket says now; of one whose bucket is broken, that it is."""
    log = Log(page.lake, "failing")
    page.lake.write(log.key(log.latest() + 1), b"not a record")
    answer = page.client.get("/metrics")
    assert answer.status_code == 200
    values = {
        (sample.name.removeprefix("singer_bridge_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert values["table_rows", "shop", "orders"] == 31
    assert (values["readable", "shop"], values["commit", "shop"]) == (1, 4)
    assert values["readable", "failing"] == 0
    assert ("commit", "failing") not in values


def test_figures_need_the_token(open_page: Open) -> None:
    page = open_page(host="0.0.0.0", token=TOKEN, base_url="http://bridge.example")
    assert page.client.get("/metrics").status_code == 401
    assert page.client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_an_error_about_what_no_text_holds(page: Page) -> None:
    """Half of a character in a request is the caller's mistake, and no error of ours."""
    body = b'{"\\ud800": true}'
    answer = page.client.post("/api/pipelines/shop/runs", content=body, headers=OWN)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "SettingsError")
