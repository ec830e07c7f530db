"""A STATE is stored as it came, whatever a tap writes into it, and comes back to the tap in the same words."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from bridge.cli import main
from bridge.load.run.run import Run
from bridge.serve.service.web.app import make_app
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.pipe import InProcess
from tests.support.shell import Done
from tests.unit.serve.service.web.conftest import Waiting

TAP = """
import shutil, sys
if "--state" in sys.argv:
    shutil.copy(sys.argv[sys.argv.index("--state") + 1], sys.argv[1] + ".given")
sys.stdout.buffer.write(open(sys.argv[1], "rb").read())
"""
DIGITS = "7" * 5000
TOKENS = [
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude80"', DIGITS, f"-{DIGITS}", f"{DIGITS}.5", f"0.{DIGITS}"),
    *("1e400", "1E+2", "1.0e5", "1e99999999999999999999", "-1e-99999999999999999999", "0.1000000000000000055"),
    *("-0.0", "-0", "0.00000001", "12345678901234567890", "NaN", "-Infinity", "true", "null", '"a\\u0000b"', "{}"),
]
PARTS = ",".join(f'"{number}":{token}' for number, token in enumerate(TOKENS))
MARK = f'{{"replication_key":"id","replication_key_value":1,{PARTS}}}'
OTHERS = rf'"\ud800":{{"replication_key_value":"\udfff"}},"b":{DIGITS}'
STATE = rf'{{"bookmarks":{{"a":{MARK},{OTHERS}}},"currently_syncing":"\ud800"}}'
FLAT = rf'{{"a":1e400,"\ud800":{DIGITS}}}'


def written(text: str | bytes) -> Any:
    """The JSON with each number as the text that it was written as."""
    words: Any = lambda token: ("number", token)  # noqa: E731
    return json.loads(text, parse_int=words, parse_float=words, parse_constant=words)


class Shop:
    """A pipeline `p` whose tap sends one row and a STATE, and keeps the STATE that it was given."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.uri, self._capsys = root, str(root / "lake"), capsys
        monkeypatch.chdir(root)
        source = {"tap": [sys.executable, "-c", TAP, str(root / "sent")], "discover": "never"}
        self.keys = {"source": source, "destination": {"bucket": self.uri}, "commit": {"rows": 1}}
        (root / "bridge.yaml").write_text(json.dumps({"pipelines": {"p": self.keys}}))

    def run(self, state: str) -> Any:
        schema = {"type": "SCHEMA", "stream": "a", "schema": {"properties": {"id": {"type": "integer"}}}}
        row = {"type": "RECORD", "stream": "a", "record": {"id": 1}}
        lines = [json.dumps(schema | {"key_properties": []}), json.dumps(row), f'{{"type":"STATE","value":{state}}}']
        (self.root / "sent").write_text("\n".join(lines) + "\n")
        (self.root / "sent.given").unlink(missing_ok=True)
        result = Run(Pipeline.model_validate(self.keys | {"name": "p"}), Request(), self.root / "home").execute()
        assert result.error is None, result.error
        return result

    @property
    def given(self) -> Any:
        return written((self.root / "sent.given").read_bytes())

    def type(self, *words: str) -> Done:
        """Type a command; it must succeed."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*words])
        done = Done(int(ended.value.code or 0), *self._capsys.readouterr())
        assert done.code == 0, (words, done.err[-2000:])
        return done

    def bucket(self, name: str) -> Any:
        return written((self.root / "lake/.bridge/p" / name).read_bytes())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shop:
    monkeypatch.setattr("bridge.load.run.run.Loader", InProcess)
    return Shop(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("state", [STATE, FLAT], ids=["bookmarks", "flat"])
def test_the_next_tap_gets_what_was_sent(shop: Shop, state: str) -> None:
    """Every number and every half of a surrogate pair, through commit, `state.json`, run record and result."""
    shop.run(state)
    assert shop.bucket("state.json") == written(state)
    assert shop.bucket("commits/00000000000000000001.json")["state"] == written(state)
    run = shop.run(state)
    assert shop.given == written(state)
    record = shop.bucket(f"runs/{run.run_id}.json")
    assert (record["state_before"], record["state"]) == (written(state), written(state))
    assert not [text for text in run.warnings if "edited" in text]


def test_verbs_show_it_and_carry_it(shop: Shop) -> None:
    """`state`, `runs`, `status`, `commits`, `sql`: as it is as JSON, and never an error for people."""
    run = shop.run(STATE)
    whole = written(STATE)
    assert written(shop.type("state", "get", "p").out) == whole
    assert written(shop.type("state", "get", "p", "-s", "a").out) == written(MARK)
    exported = shop.type("state", "export", "p", "--format", "singer").out
    assert written(exported) == whole
    assert written(shop.type("state", "export", "p", "--format", "meltano").out)["singer_state"] == whole
    shop.type("state", "clear", "p", "--yes")
    for words in (("set", "p", exported), ("import", "p", "exported", "--format", "singer"), ("merge", "p", exported)):
        Path("exported").write_text(exported)
        done = shop.type("state", *words, "--yes")
        assert "before" in done.err or words[0] == "merge"
        assert written(shop.type("state", "get", "p").out) == whole
        shop.type("state", "clear", "p", "--yes") if words[0] == "set" else None
    assert "nothing to change" in shop.type("state", "set", "p", exported, "--yes").out
    for words in (("state", "history", "p", "--diff"), ("state", "list", "p"), ("runs", "show", "p"), ("status",)):
        shop.type(*words)
        with suppress(SystemExit):
            assert written(shop.type(*(word for word in words if word != "--diff"), "--json").out)
    assert written(shop.type("status", "--json").out)[0]["bookmarks"]["a"]["bookmark"] == written(MARK)
    assert written(shop.type("runs", "show", "p", "--run", run.run_id, "--json").out)["state"] == whole
    shop.type("commits", "list", "p")
    answer = written(shop.type("sql", "select bookmark from bridge.bookmarks where stream = 'a'", "--json").out)
    assert written(answer["bookmark"]) == written(MARK)
    shop.run(STATE)
    assert shop.given == whole


def test_a_hand_edit_is_taken_as_it_is(shop: Shop) -> None:
    """A `state.json` with such values starts the next run."""
    shop.run('{"bookmarks":{"a":{"id":1}}}')
    shop.root.joinpath("lake/.bridge/p/state.json").write_text(STATE)
    shop.run(STATE)
    assert shop.given == written(STATE)


@pytest.fixture
def client(shop: Shop) -> Iterator[TestClient]:
    shop.run(STATE)
    app = make_app(shop.root / "bridge.yaml", None, Waiting(), host="127.0.0.1", token=None)
    with TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False) as made:
        yield made


def test_page_and_api(shop: Shop, client: TestClient) -> None:
    """Every page that shows bookmarks is readable, and the API has them as they are."""
    whole = written(STATE)
    [listed] = written(client.get("/api/pipelines").content)
    assert listed["bookmarks"]["a"]["bookmark"] == written(MARK)
    [run] = written(client.get("/api/pipelines/p/runs").content)
    record = written(client.get(f"/api/pipelines/p/runs/{run['run_id']}").content)
    assert (record["state"], run["state"]) == (whole, whole)
    assert record["streams"]["a"]["bookmark"] == written(MARK)
    pages = ["", "/runs", f"/runs/{run['run_id']}", "/commits", "/commits/1", "/bookmarks", "/reset", "/table?stream=a"]
    for page in ["/", "/runs", *(f"/pipelines/p{page}" for page in pages)]:
        answer = client.get(page)
        assert answer.status_code == 200, (page, answer.text[-500:])
    assert DIGITS in client.get("/pipelines/p/bookmarks").text
