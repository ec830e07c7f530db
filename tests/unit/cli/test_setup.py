"""`init`, `add` and `install`, as they are typed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from bridge.operate.project.append import raw_settings
from bridge.settings.json_schema import SCHEMA_FILE
from bridge.settings.load import check, load
from bridge.settings.text.variables import read_dotenv
from tests.support.shell import Typed
from tests.support.terminal import talk, talked
from tests.support.wheels import TAP, wheel

TWO = """\
# ours
pipelines:
  flights:
    source: {tap: tap-smoke, config: {password: "${NOT_SET}"}}
    destination: {bucket: ./warehouse}   # big
"""
FILES = ["bridge.yaml", "bridge.schema.json", ".gitignore", ".env.example"]


def test_init_writes_a_project_that_is_right_as_it_stands(typed: Typed, folder: Path) -> None:
    """Its pipeline passes every check and can be planned, and an editor finds the schema of this very version."""
    assert typed("init").code == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert (folder / "bridge.yaml").read_text().splitlines()[0] == (
        "# yaml-language-server: $schema=./bridge.schema.json"
    )
    assert check(folder / "bridge.yaml", {}) == []
    assert (folder / "bridge.schema.json").read_bytes() == SCHEMA_FILE.read_bytes()
    assert typed("run --dry-run").code == 0
    assert typed("install").code == 0


def test_what_init_shows_as_comments_is_right_too(typed: Typed, folder: Path) -> None:
    """Every setting that is commented out may be uncommented."""
    typed("init")
    text = (folder / "bridge.yaml").read_text()
    start = text.index("  example:")
    lines = [
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line for line in text[start:].splitlines()
    ]
    (folder / "bridge.yaml").write_text("pipelines:\n" + "\n".join(lines) + "\n")
    assert {"schedule", "retry", "rejects", "commit"} < set(
        raw_settings(folder / "bridge.yaml")["pipelines"]["example"]
    )
    assert check(folder / "bridge.yaml", {}) == []


def test_init_touches_no_file_that_is_there(typed: Typed, folder: Path) -> None:
    """Each is kept and named; --force replaces the schema, and nothing else."""
    for name in FILES:
        (folder / "shop" / name).parent.mkdir(exist_ok=True)
        (folder / "shop" / name).write_text("mine\n")
    done = typed("init shop")
    assert done.code == 0
    assert all(f"{name} was there and is kept" in done.out for name in FILES)
    assert "add to it: .env, .singer-bridge/" in done.out
    assert {(folder / "shop" / name).read_text() for name in FILES} == {"mine\n"}
    typed("init shop --force")
    assert (folder / "shop/bridge.schema.json").read_bytes() == SCHEMA_FILE.read_bytes()
    assert (folder / "shop/bridge.yaml").read_text() == "mine\n"


def test_init_says_where_it_cannot_write(typed: Typed, folder: Path) -> None:
    """A file in the folder's place is an error of the command line."""
    (folder / "taken").write_text("")
    done = typed("init taken/deeper")
    assert (done.code, "cannot write the project" in done.err) == (2, True)


def test_gitignore_keeps_secrets_out_and_locks_in(typed: Typed, folder: Path) -> None:
    """git sees what another machine needs, and nothing that is secret or scratch."""
    typed("init")
    subprocess.run(["git", "init", "-q", "."], check=True)
    home = ".singer-bridge"
    wanted = [f"{home}/taps/tap-x-1/requirements.lock", f"{home}/catalogs/shop.json"]
    for name in [*wanted, ".env", f"{home}/taps/tap-x-1/venv.1/x.py", f"{home}/spool/x", "lake/x.parquet"]:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")
    said = subprocess.run(["git", "status", "--short", "-uall"], capture_output=True, text=True, check=True).stdout
    assert sorted(line[3:] for line in said.splitlines()) == sorted([*FILES, *wanted])


def test_add_writes_the_settings_that_the_tap_requires(typed: Typed, folder: Path) -> None:
    """Installed, asked, written: other pipelines and comments stay, and variables are named in .env.example."""
    (folder / "bridge.yaml").write_text(TWO)
    wheel(folder)
    done = typed("add sales --tap tap-x --pip-url ./tap_x-1.0-py3-none-any.whl")
    assert done.code == 0, done.err
    text = (folder / "bridge.yaml").read_text()
    assert text.startswith(TWO)
    sales = yaml.safe_load(text)["pipelines"]["sales"]
    assert sales["source"]["pip_url"] == "./tap_x-1.0-py3-none-any.whl"
    assert sales["source"]["config"] == {
        "host": "${TAP_X_HOST}",
        "port": 5432,
        "password": "${TAP_X_PASSWORD}",
        "mode": "slow",
        "limits": {},
    }
    assert sales["destination"] == {"bucket": "./warehouse"}
    assert "# start_date:" in text
    assert (folder / ".env.example").read_text() == "# sales: tap-x\nTAP_X_HOST=\nTAP_X_PASSWORD=\n"
    assert "TAP_X_HOST, TAP_X_PASSWORD" in done.out
    known = {"TAP_X_HOST": "here", "TAP_X_PASSWORD": "hunter2-longer"}
    assert load(folder / "bridge.yaml", known).pipeline("sales").source.config["host"] == "here"  # type: ignore[index]
    assert typed("install sales").out.startswith("tap-x is installed already")


def test_a_second_pipeline_of_a_tap_has_variables_of_its_own(typed: Typed, folder: Path) -> None:
    """Two databases have two passwords."""
    (folder / "bridge.yaml").write_text(TWO)
    typed("add one --tap tap-replay")
    typed("add two-b --tap tap-replay --to ./other")
    pipelines = yaml.safe_load((folder / "bridge.yaml").read_text())["pipelines"]
    assert pipelines["one"]["source"]["config"]["path"] == "${TAP_REPLAY_PATH}"
    assert pipelines["two-b"]["source"]["config"]["path"] == "${TWO_B_PATH}"
    assert pipelines["two-b"]["destination"]["bucket"] == "./other"


def test_paths_are_written_as_the_file_reads_them(typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed in a folder below is relative to the file, and means the same."""
    (folder / "bridge.yaml").write_text("pipelines:\n")
    (folder / "below").mkdir()
    (folder / "below/tap.sh").write_text("#!/bin/sh\nexit 2\n")
    (folder / "below/tap.sh").chmod(0o755)
    monkeypatch.chdir(folder / "below")
    assert typed("add x --tap './tap.sh --fast' --to ./lake").code == 0
    pipeline = load(folder / "bridge.yaml", {}).pipeline("x")
    assert pipeline.source.argv == [str(folder / "below/tap.sh"), "--fast"]
    assert pipeline.destination.bucket == str(folder / "below/lake")
    assert "documentation" in (folder / "bridge.yaml").read_text()


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("add flights --tap tap-smoke", 2, "there is a pipeline of that name"),
        ("add 'a b' --tap tap-smoke", 2, "not a name for a pipeline"),
        ("add x --tap tap-nowhere", 1, "give --pip-url"),
        ("add x --tap tap-x --pip-url ./nothing-here", 1, "cannot be installed"),
        ("add x --tap tap-smoke --to s3://lake", 0, ""),
        ("add x", 2, "--tap"),
    ],
)
def test_add_refuses_what_cannot_work(typed: Typed, folder: Path, line: str, code: int, words: str) -> None:
    """And then the file is as it was."""
    (folder / "bridge.yaml").write_text(TWO)
    done = typed(line)
    assert (done.code, words in done.err) == (code, True), done.err
    assert ((folder / "bridge.yaml").read_text() == TWO) == bool(code)


def test_add_needs_a_project(typed: Typed) -> None:
    """Without bridge.yaml it says how to begin."""
    done = typed("add x --tap tap-smoke")
    assert (done.code, "singer-bridge init" in done.err) == (2, True)


ANSWERS = [
    ("host: ", "db: 1"),
    ("port [5432]: ", "many"),
    ("port [5432]: ", "99"),
    ("password: ", "hunter2-longer"),
    ("mode (fast, slow) [slow]: ", "fast"),
]
"""To the settings that tap-x requires."""
CONFIG = {"host": "db: 1", "port": 99, "password": "hunter2-longer", "mode": "fast", "limits": {}}


def test_on_a_terminal_add_asks(folder: Path) -> None:
    """What is required is asked for, the password unseen and into .env; any other setting by its name."""
    (folder / "bridge.yaml").write_text("pipelines:\n")
    wheel(folder)
    more = [
        ("no more): ", "verfy"),
        ("no more): ", "verify"),
        ("verify [True]: ", "no"),
        ("no more): ", ""),
        ("now? [Y/n]: ", "n"),
    ]
    said = talk("add sales --tap tap-x --pip-url ./tap_x-1.0-py3-none-any.whl", [*ANSWERS, *more])
    assert "'many' is not a valid integer" in said
    assert 'did you mean "verify"?' in said
    assert "hunter2" not in said + (folder / "bridge.yaml").read_text()
    assert read_dotenv(folder / ".env") == {"TAP_X_PASSWORD": "hunter2-longer"}
    assert load(folder / "bridge.yaml", {}).pipeline("sales").source.config == {**CONFIG, "verify": False}
    assert "singer-bridge discover sales" in said.splitlines()[-1]


def test_on_a_terminal_add_proposes_how_streams_are_replicated(folder: Path) -> None:
    """It discovers, shows what each stream could be replicated by, and writes what is chosen; all else stays."""
    (folder / "bridge.yaml").write_text(TWO)
    wheel(folder, module=SHOP)
    streams = [
        ("no more): ", ""),
        ("now? [Y/n]: ", "y"),
        ("excludes [public-*]: ", "public-userz"),
        ("excludes [public-*]: ", ""),
        ("(yes, each, no) [yes]: ", "each"),
        ("public-users: replicate by (updated_at, id, full) [updated_at]: ", "id"),
        ("public-orders: replicate by (updated_at, id, full) [updated_at]: ", ""),
    ]
    done = talked("add sales --tap tap-x --pip-url ./tap_x-1.0-py3-none-any.whl", [*ANSWERS, *streams])
    code, said = done.code, done.out
    assert code == 0
    assert "public-userz matches nothing" in said
    assert "3 streams, and 1 stream of the database's own schemas: public-users, public-orders, public-log" in said
    text = (folder / "bridge.yaml").read_text()
    assert text.startswith(TWO)
    assert check(folder / "bridge.yaml", {"NOT_SET": "x"}) == []
    sales = raw_settings(folder / "bridge.yaml")["pipelines"]["sales"]
    assert sales["source"]["select"] == ["public-*"]
    assert sales["streams"] == {
        "public-users": {"replication_method": "INCREMENTAL", "replication_key": "id", "load_method": "upsert"},
        "public-orders": {
            "replication_method": "INCREMENTAL",
            "replication_key": "updated_at",
            "load_method": "upsert",
        },
        "public-log": {"replication_method": "FULL_TABLE"},
    }


def test_a_tap_that_cannot_discover_leaves_the_pipeline_added(folder: Path) -> None:
    """Exit code 1; what the tap failed of is said, and what to type once it is corrected, or to be rid of it."""
    (folder / "bridge.yaml").write_text("pipelines:\n")
    wheel(
        folder,
        module=SHOP.replace(
            'elif "--discover"', 'elif "--discover" in sys.argv:\n        sys.exit("no host")\n    elif "--x"'
        ),
    )
    done = talked(
        "add sales --tap tap-x --pip-url ./tap_x-1.0-py3-none-any.whl",
        [*ANSWERS, ("no more): ", ""), ("now? [Y/n]: ", "")],
    )
    assert (done.code, "no host" in done.out) == (1, True)
    assert "the pipeline is added: correct its settings in bridge.yaml" in done.out
    assert "then: singer-bridge discover sales\n" in done.out
    assert done.out.endswith("or take it out again: singer-bridge remove sales\n")
    assert load(folder / "bridge.yaml", {}).pipeline("sales").source.config == CONFIG


def test_in_ci_nobody_is_asked(folder: Path) -> None:
    """A runner may have a terminal: what is required becomes a variable."""
    (folder / "bridge.yaml").write_text("pipelines:\n")
    wheel(folder)
    talk("add sales --tap tap-x --pip-url ./tap_x-1.0-py3-none-any.whl", [], CI="true")
    config = raw_settings(folder / "bridge.yaml")["pipelines"]["sales"]["source"]["config"]
    assert config["host"] == "${TAP_X_HOST}"


SHOP = TAP.replace(
    """schema=dict(type="object", properties=dict(id=dict(
            type="integer")))) for name in STREAMS]""",
    """schema=dict(type="object", properties=dict(
            id=dict(type="integer"), updated_at=dict(type="string", format="date-time"))), metadata=[dict(breadcrumb=[],
            metadata={"schema-name": name.split("-")[0], "table-key-properties": ["id"] if "log" not in name else []})])
            for name in ["pg_catalog-pg_class", "public-users", "public-orders", "public-log"]]
        del streams[-1]["schema"]["properties"]["updated_at"]""",
)
"""The tap with a system table, two tables with a key and a time, and one that has neither."""


def test_install_puts_each_tap_into_its_venv(typed: Typed, folder: Path) -> None:
    """--all takes all of them, needs no variables, and goes on after one that fails; the exit code is the worst."""
    wheel(folder)
    (folder / "bridge.yaml").write_text(
        TWO
        + "  bad: {source: {tap: tap-bad, pip_url: ./bad.whl}, destination: {bucket: l}}\n"
        + "  x: {source: {tap: tap-x, pip_url: ./tap_x-1.0-py3-none-any.whl}, destination: {bucket: l}}\n"
    )
    done = typed("install --all")
    assert done.code == 1
    assert "tap-smoke needs no installation" in done.out
    assert "tap-x installed in" in done.out
    assert "the tap cannot be installed" in done.err
    assert typed("install x --locked").out.startswith("tap-x is installed already")
    assert typed("discover x").code == 0
    assert typed("install").err.startswith("error: which pipeline?")
    assert typed("install y").code == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("install flights --locked --upgrade", "contradict"),
        ("install flights --all", "leave out NAME"),
        ("install --to ./lake --name x", "pip_url"),
        ("install gone", "not on PATH"),
        ("install locked --locked", "there is no lock file"),
        ("install vault", "no ${cmd:...} here"),
    ],
)
def test_install_says_what_is_wrong(typed: Typed, folder: Path, line: str, words: str) -> None:
    """Nothing is installed, and the hint says what to change."""
    (folder / "bridge.yaml").write_text(
        TWO
        + "  gone: {source: {tap: tap-nowhere}, destination: {bucket: l}}\n"
        + "  locked: {source: {tap: tap-x, pip_url: tap-x}, destination: {bucket: l}}\n"
        + "  vault: {source: {tap: tap-x, pip_url: 'git+https://x:${cmd:echo secret}@h/x'}, destination: {bucket: l}}\n"
    )
    done = typed(line)
    assert (done.code, words in done.err) == (2, True), done.err
    assert not (folder / ".singer-bridge").exists()


def test_add_of_a_tap_that_requires_nothing(typed: Typed, folder: Path) -> None:
    """The file is right as it stands, and says what prints the settings; what that prints may be pasted there."""
    (folder / "bridge.yaml").write_text("pipelines:\n")
    done = typed("add users --tap tap-smoke")
    assert "tap-smoke marks no setting as required; write what it needs below config" in done.out
    assert typed("config check").code == 0
    text = (folder / "bridge.yaml").read_text()
    assert "      config:\n        ## The tap has 16 optional settings: singer-bridge config tap users\n" in text
    printed = typed("config tap users")
    assert printed.code == 0, printed.err
    lines = [line for line in printed.out.splitlines() if not line.startswith("  ##")]
    assert len(lines) == 16
    (seed,) = [line for line in lines if line.startswith("  # seed:")]
    pasted = text.replace("config:\n", f"config:\n      {seed.replace('# ', '', 1)}\n")
    (folder / "bridge.yaml").write_text(pasted)
    assert "seed" in load(folder / "bridge.yaml", {}).pipeline("users").source.config


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("config tap", 2, "which pipeline?"),
        ("config tap flihgts", 2, 'did you mean "flights"?'),
        ("config tap silent", 1, "see its documentation"),
        ("config tap gone", 1, "tap-nowhere"),
        ("config tap --to ./lake --name x", 2, "leave out --to"),
        ("config tap flights", 0, ""),
    ],
)
def test_config_tap_needs_a_tap_that_answers(typed: Typed, folder: Path, line: str, code: int, words: str) -> None:
    """No password has to be set for it; what it cannot print is an error that says what to do."""
    (folder / "bridge.yaml").write_text(
        TWO
        + "  silent: {source: {tap: 'true'}, destination: {bucket: l}}\n"
        + "  gone: {source: {tap: tap-nowhere}, destination: {bucket: l}}\n"
    )
    done = typed(line)
    assert (done.code, words in done.err) == (code, True), done.err
