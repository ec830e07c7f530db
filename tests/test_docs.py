"""The documentation is true: what it tells people to type is typed here, and every name in it exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from tap_bridge.settings import CONFIG_JSONSCHEMA
from target_bridge import TargetBridge

from bridge.errors import DataError
from bridge.load.run.result import Counts, Result
from bridge.settings.load import load
from tests.support.one_spark import OneSpark, printed_here, type_here
from tests.support.reference_page import PAGES, commands, made, settings_tables

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DOCS = [ROOT / "README.md", ARCHITECTURE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_SOURCES = {"mysql.md", "postgres.md", "rest-api.md"}
"""Pages that need a database or a tap from PyPI: `make taps` types what they say, in tests/e2e/test_source_docs.py."""
REFERENCE, COMMANDS = PAGES

EVERYWHERE = {"--quiet", "-q", "--verbose", "-v", "--log-format"}

FIRST = {"README.md", "getting-started.md"}

_QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
_NEEDS_A_SHELL = re.compile(r"[|&;<>()$`*?~]")
_FENCE = re.compile(r"^```(?P<language>\w+)(?P<marks>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r'(\w+)="([^"]*)"')
# What differs from run to run: ids, how long something took, figures with a fraction, and the rate made of them.
_DRIFT = (
    (r"\d{8}T\d{6}Z-\w{4,5}", "RUN"),
    (r"[\d,]+ records/s", "N records/s"),
    (r"\b\d+(\.\d)? (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?", "LONG"),
    (r"\d+\.\d+", "N.N"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ", "TIME"),
    (r"\s+", " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `marks`: `file` names the file it is, `exit` what its commands end with, `skip` why not here.

    `folder` begins a new folder, `needs` says what a machine must have to type it.
    """

    language: str
    marks: dict[str, str]
    text: str

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yield what follows each `$ `, and the output shown below it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip().splitlines()
            yield command, shown


def blocks(path: Path) -> list[Block]:
    """The document's fenced blocks, in order."""
    found = _FENCE.finditer(path.read_text())
    return [Block(match["language"], dict(_MARK.findall(match["marks"])), match["text"]) for match in found]


def section(heading: str, page: Path = COMMANDS) -> str:
    """A page's text below a heading, up to the next one of that depth or above."""
    depth = heading.index(" ")
    text = page.read_text().split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{depth}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """The first cell of each table row, as far as it is code."""
    return re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)


def names(text: str) -> set[str]:
    """What stands in the first cells, code by code."""
    return {code for cell in first_cells(text) for code in re.findall(r"`([^`]+)`", cell)}


def plain(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, replacement in _DRIFT:
        line = re.sub(pattern, replacement, line)
    return line.strip()


Typed = Callable[[Path, "str | list[str]", int, "Mapping[str, str] | None"], str]
"""Types a command, or runs a program, in a folder; fails unless it exits so; returns what it printed."""


def environ_of(more: Mapping[str, str] | None) -> dict[str, str]:
    """A reader's variables: the programs of this project on PATH, and no settings of ours."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SINGER_BRIDGE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | dict(more or {}) | {"PATH": path}


def type_in(folder: Path, words: str | list[str], code: int = 0, environ: Mapping[str, str] | None = None) -> str:
    """Type it in a shell, or run a program; see `Typed`."""
    done = subprocess.run(
        words,
        shell=isinstance(words, str),
        cwd=folder,
        env=environ_of(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == code, f"$ {words}\n{done.stdout}"
    return done.stdout


def type_in_process(
    folder: Path, words: str | list[str], code: int = 0, environ: Mapping[str, str] | None = None
) -> str:
    """Type a line that only calls our command in this process, and any other one in a shell; see `Typed`."""
    if (
        not isinstance(words, str)
        or not words.startswith("singer-bridge ")
        or _NEEDS_A_SHELL.search(_QUOTED.sub("", words))
    ):
        return type_in(folder, words, code, environ)
    with printed_here() as printed:
        exited = type_here(shlex.split(words)[1:], folder, environ_of(environ))
    assert exited == code, f"$ {words}\n{printed()}"
    return printed()


def check_output(command: str, shown: list[str], printed: str) -> None:
    """Every line shown was printed, in this order; a line `...` stands for any lines."""
    lines = iter([plain(line) for line in printed.splitlines()])
    for wanted in filter(None, map(plain, shown)):
        assert wanted == "..." or wanted in lines, f"$ {command}\nthe document shows: {wanted}\n{printed}"


def type_page(
    path: Path,
    folder: Path,
    environ: Mapping[str, str] | None = None,
    *,
    has: Collection[str] = (),
    typed: Typed = type_in,
) -> None:
    """Type a document's commands in a folder, from top to bottom; fail where one does not print what is shown.

    A block that `needs` something is typed if the machine `has` it. From one that is marked with a `folder` on, all is
    typed in a new folder of that name.
    """
    top = folder
    for block in blocks(path):
        if name := block.marks.get("folder"):
            folder = top / name
            folder.mkdir()
        needed = block.marks.get("needs", "")
        if reason := block.marks.get("skip", "" if not needed or needed in has else needed):
            print(f"not run ({reason}): {block.text.splitlines()[0]}")
        elif name := block.marks.get("file"):
            (folder / name).write_text(block.text)
        elif block.language == "console":
            for command, shown in block.commands():
                printed = typed(folder, command, int(block.marks.get("exit", "0")), environ)
                print(f"$ {command}\n{printed}")
                check_output(command, shown, printed)
        elif block.language == "python":
            type_in(folder, [sys.executable, "-c", block.text], environ=environ)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", [page for page in DOCS if page.name not in OF_SOURCES], ids=lambda path: path.name)
def test_what_a_document_tells_to_type_works(path: Path, tmp_path: Path, one_spark: OneSpark) -> None:
    """A reader who types a document's commands in an empty folder, from top to bottom, sees what it shows.

    The first pages that one reads are typed in a shell, as they stand.
    """
    with one_spark.lent():
        type_page(path, tmp_path, typed=type_in if path.name in FIRST else type_in_process)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_example_settings_are_accepted(path: Path, tmp_path: Path) -> None:
    """Every pipeline that a document shows is one that the settings accept."""
    secrets = dict.fromkeys(("API_TOKEN", "PGPASSWORD", "READER_PASSWORD"), "secret") | {
        "CONTOSO_SALES_KEY": "a2V5",
        "MASK_KEY": "s" * 16,
    }
    for block in blocks(path):
        if block.language == "yaml":
            (tmp_path / "bridge.yaml").write_text(block.text)
            for env in load(tmp_path / "bridge.yaml", {}).environments or (None,):
                loaded = load(tmp_path / "bridge.yaml", secrets, env, commands=False)
                assert list(loaded.pipelines.values())


@pytest.mark.parametrize(
    "path", [*DOCS, *sorted(ROOT.glob("tests/*/README.md"))], ids=lambda path: "/".join(path.parts[-2:])
)
def test_links_lead_somewhere(path: Path) -> None:
    """A link inside the repository names a file, and a heading, that exist."""
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", path.read_text()):
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_reference_is_made_from_settings_and_commands(page: Path) -> None:
    """Keys, defaults, flags and their words are those of the code: `python -m tests.support.reference_page`."""
    assert page.read_text() == made(page)


def test_every_section_of_the_settings_is_in_the_reference() -> None:
    """No setting is missing from the page."""
    text = REFERENCE.read_text()
    assert [name for name, _ in settings_tables() if f"made from: settings of {name} -->" not in text] == []


def tables(text: str) -> list[str]:
    """The tables of a text."""
    return re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)


def test_pages_named_in_code_exist() -> None:
    """A message, a comment or the changelog sends nobody to a page that is gone."""
    texts = [path for top in ("bridge", "tests", "targets", "taps") for path in (ROOT / top).rglob("*.py")]
    named = {
        name for path in [*texts, ROOT / "CHANGELOG.md"] for name in re.findall(r"docs/[\w-]+\.md", path.read_text())
    }
    assert "docs/postgres.md" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def flags(command: click.Command) -> set[str]:
    """The flags that `--help` shows, and `[NAME]`; not those that every verb has."""
    options = {opt for parameter in command.params if isinstance(parameter, click.Option) for opt in parameter.opts}
    arguments = {parameter.name for parameter in command.params if isinstance(parameter, click.Argument)}
    return options - EVERYWHERE | ({"[NAME]"} if arguments & {"name", "names"} else set())


def test_every_verb_and_flag_is_documented() -> None:
    """The page has exactly the verbs, arguments and flags that the command line has."""
    headings = re.findall(r"^### singer-bridge (.+)$", section("## Verbs"), re.MULTILINE)
    assert sorted(headings) == sorted(words for words, _ in commands())
    shared = tables(section("## Flags of every verb"))
    everywhere, choosing = ({name.split()[0] for name in names(table)} for table in shared)
    assert everywhere == EVERYWHERE
    for words, command in commands():
        documented = {name.split()[0] for name in names(section(f"### singer-bridge {words}"))}
        assert documented == flags(command) - (choosing if "[NAME]" in flags(command) else set()), words
        assert "[NAME]" not in flags(command) or choosing <= flags(command), words


def test_the_json_object_is_documented() -> None:
    """The page has exactly the keys that `run --json` prints."""
    run, stream = tables(section("## The JSON object"))
    assert names(run) == Result("id", "name").to_json().keys()
    counts = Counts("upsert", "as set", merged={"rows": 1}, held=DataError("a column changed its type"))
    assert names(stream) == counts.to_json().keys()


def test_every_setting_of_the_target_is_documented() -> None:
    """The target's table has exactly the settings that `--about` has."""
    TargetBridge.append_builtin_config(schema := dict(TargetBridge.config_jsonschema))
    documented = tables(section("## Settings of target-bridge", REFERENCE))[-1]
    codes = {
        code
        for cell in re.findall(r"^\| (`[^|]*) \|", documented, re.MULTILINE)
        for code in re.findall(r"`(\w+)`", cell)
    }
    aliases = set(re.findall(r"also called `(\w+)`", documented))
    assert codes | aliases | {"batch_config"} == schema["properties"].keys()


def test_every_setting_of_the_tap_is_documented() -> None:
    """The table of `tap-bridge` has exactly the settings that `--about` has, without the SDK's own."""
    documented = names(section("## Settings", ROOT / "docs/tap-bridge.md"))
    assert documented == CONFIG_JSONSCHEMA["properties"].keys()


ROOMS = ("protocol", "lake", "load", "read", "operate", "serve")
"""Wings that have rooms."""


def layout() -> set[str]:
    """The paths that ARCHITECTURE.md lists as wings and rooms."""
    text = ARCHITECTURE.read_text().split("\n## Wings and rooms\n")[1]
    listed, above = set(), [""]
    for indent, name in re.findall(r"^( *)([\w.]+/?)(?: |$)", _FENCE.findall(text)[0][2], re.MULTILINE):
        del above[len(indent) // 2 + 1 :]
        above.append(above[-1] + name)
        listed.add(above[-1])
    return listed


def test_the_layout_is_the_repository() -> None:
    """ARCHITECTURE.md lists every folder of code, and nothing that does not exist."""
    tops = [ROOT / top for top in ("bridge", "taps", "targets", "tests")]
    folders = [*tops, *(folder for top in tops for folder in top.iterdir())]
    folders += [room for wing in (ROOT / "bridge").iterdir() if wing.name in ROOMS for room in wing.iterdir()]
    of_code = {f"{folder.relative_to(ROOT)}/" for folder in folders if any(folder.rglob("*.py"))}
    assert of_code - layout() == set()
    assert [path for path in layout() if not (ROOT / path).exists()] == []


FOR_DEVELOPERS = [ARCHITECTURE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "tests").glob("*/README.md"))]


@pytest.mark.parametrize("path", FOR_DEVELOPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_named_file_exists(path: Path) -> None:
    """Each path in code marks that a page for developers names is in the repository; `room/` alone is bridge's."""
    named = re.findall(r"`([\w.]+/[\w./]*)`", path.read_text())
    assert named
    made = ".bench/"  # by `make bench` and `make proof`
    named = [name for name in named if not name.startswith(made)]
    assert [name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "bridge"))] == []
