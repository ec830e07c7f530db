"""Escape sequences of a tap, its data and its logs: shown as text by every verb, and never obeyed by a terminal."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.text import Text

from bridge.cli import events, show
from bridge.cli.plain import PlainLines, plain, plain_json
from bridge.cli.run.progress import Progress
from bridge.cli.run.reporter import summary
from bridge.errors import TapError
from bridge.lake.runs import RunFile, log_key
from bridge.load.run.result import Counts
from bridge.load.run.run import Run
from bridge.settings.load import load
from bridge.settings.values.request import Request
from tests.support.shelf import Shelf, record, schema, state
from tests.support.shell import Typed

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\x7f[/]é"
SHOWN = "a\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\x7f[/]é"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
RUN = "20260101T000000Z-aaaa"


@pytest.fixture
def evil(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A lake that holds escape sequences wherever a tap, or whoever may write there, can put some."""
    monkeypatch.setenv("COLUMNS", "400")
    (folder / "bridge.yaml").write_text('pipelines: {p: {source: {tap: "true"}, destination: {bucket: lake}}}')
    shelf = Shelf(folder)
    text = schema(EVIL, n={"type": ["null", "string"]})
    text["schema"]["properties"][EVIL] = {"type": "string"}
    shelf.say(text, record(1, "x", EVIL), record("bad" + EVIL, EVIL, EVIL), record(2, EVIL, EVIL), state(2, EVIL))
    run = RunFile(shelf.storage, "p", RUN, tap=EVIL, tap_version=EVIL)
    streams, error = {EVIL: Counts("append-only", EVIL).to_json()}, {"message": EVIL, "hint": EVIL}
    reached = {"state_before": None, "state": {"bookmarks": {EVIL: EVIL}}}
    run.finish(status="failed", streams=streams, error=error, warnings=[EVIL], skipped=[EVIL], **reached)
    shelf.storage.write(log_key("p", RUN), f"INFO {EVIL}\r\n50 %\r100 %\n".encode() + b"\x9b31m\n")
    return shelf


@pytest.mark.parametrize(
    "words",
    [
        *("status", "runs list", "runs show", "runs show --json", "runs show --logs", "commits list", "verify"),
        *("tables list", "tables show p", "tables head p", "tables head p --json", "tables history p --diff"),
        *("rejects list", "rejects show", "rejects show --json", "state list", "state get p", "tables ddl nope"),
        *("rejects replay p --dry-run", "compact p --dry-run", "state clear p --dry-run", "commits show p"),
        *("tables list --json", "state list --json", "rejects list --log-format json"),
    ],
)
def test_no_verb_prints_what_a_terminal_obeys(evil: Shelf, typed: Typed, words: str) -> None:
    """Whatever a verb prints of a lake, as a table, as JSON or as a log, has no control character but line ends."""
    done = typed(words)
    assert not OBEYED.findall((done.out + done.err).replace("\r\n", "\n"))
    assert "Traceback" not in done.err


def test_what_it_looks_like(evil: Shelf, typed: Typed) -> None:
    """A control character is shown by its number; everything else of a name stays, and JSON says the very same."""
    assert SHOWN in typed("tables list").out
    assert SHOWN in typed("runs show").out
    assert SHOWN in typed("rejects show").out
    assert typed("runs show --logs").out == f"INFO {SHOWN}\r\n50 %\\x0d100 %\n\ufffd31m\n"
    assert typed("tables list --json").json[0]["stream"] == EVIL
    assert EVIL in [json.loads(line)["n"] for line in typed("tables head p --json").out.splitlines()]


def test_errors_and_what_runs_say(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Errors, hints, warnings, the summary and the progress of a run are plain, whatever the tap put into them."""
    (folder / "bridge.yaml").write_text('pipelines: {p: {source: {tap: "true"}, destination: {bucket: lake}}}')
    run = Run(load(folder / "bridge.yaml", {}).pipeline("p"), Request(), folder)
    run.result.streams[EVIL] = Counts("append-only", EVIL, records=5, committed=5)
    events.report(TapError(f"the tap failed: {EVIL}", hint=EVIL))
    events.trace(TapError(EVIL, hint=""))
    show.note("warning", "yellow", EVIL)
    run.result.status, run.result.warnings = "failed", [EVIL]
    summary(run.result)
    show.console().print(Progress(run, enabled=False)._table())
    said = "".join(capfd.readouterr())
    assert not OBEYED.findall(said)
    assert said.count(SHOWN) >= 7


def test_our_own_colours_reach_the_terminal() -> None:
    """Only what the text holds is taken its power."""
    kind, out = type(show.console()), io.StringIO()
    kind(file=out, force_terminal=True, color_system="standard").print(Text("red\x1b[2J", "red"))
    assert out.getvalue() == "\x1b[31mred\\x1b[2J\x1b[0m\n"


def test_plain() -> None:
    """C0, DEL and C1 are written as numbers; line ends, tabs and all other characters are text."""
    assert plain("a\tb\nc\r\nd é 日本 \u202e") == "a\tb\nc\r\nd é 日本 \u202e"
    assert plain("\x00\x1b\x7f\x80\x9f\r") == "\\x00\\x1b\\x7f\\x80\\x9f\\x0d"
    assert plain_json('{"a": "\x7f\x9b"}') == '{"a": "\\u007f\\u009b"}'
    out = io.BytesIO()
    lines = PlainLines(out)
    lines.write("é\x1b[2J\n".encode() + b"\x9b\n")
    lines.flush()
    assert out.getvalue().decode() == "é\\x1b[2J\n\ufffd\n"
