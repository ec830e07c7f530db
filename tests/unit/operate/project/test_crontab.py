"""Pipelines in the user's crontab: their own lines whole, everybody else's as they were, byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.errors import SettingsError
from bridge.operate.project.crontab import Job, installed, with_jobs, without
from bridge.settings.values.cron import check_cron, next_time

OTHERS = (
    b"# mine\nMAILTO=me@example.com\n0  0 * * *\t  backup  'a  b' \n@daily   foo\n"
    b"not a line of cron\n\n\xff\r\n# 5 * * * * x"
)
FILE = """
pipelines:
  flights:
    source: {tap: tap-smoke}
    destination: {bucket: ./lake}
    schedule: {cron: "0 */2 * * *"}
  weather:
    source: {tap: tap-smoke}
    destination: {bucket: ./lake}
    schedule: {cron: "@daily"}
  manual:
    source: {tap: tap-smoke}
    destination: {bucket: ./lake}
"""
# What cron's own program does with a file: list it, or take a new one from stdin.
CRONTAB = """#!/bin/sh
store="$(dirname "$0")/crontab.txt"
case "$1" in
  -l) test -f "$store" || { echo "no crontab for me" >&2; exit 1; }; cat "$store" ;;
  -) cat > "$store.new"
     if grep -q REFUSED "$store.new"; then echo "bad command" >&2; exit 1; fi
     mv "$store.new" "$store" ;;
esac
"""


class Machine:
    """A project, and a `crontab` on PATH that keeps its file beside it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.project = root / "a 100% project's"
        self.bin = root / "bin"
        self.project.mkdir()
        self.bin.mkdir()
        (self.project / "bridge.yaml").write_text(FILE)
        (self.bin / "crontab").write_text(CRONTAB)
        (self.bin / "crontab").chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin:/usr/bin")
        monkeypatch.setenv("JAVA_HOME", "/opt/java 17")
        for name in ("SINGER_BRIDGE_ENV", "SINGER_BRIDGE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(self.project)
        self._capsys = capsys

    @property
    def crontab(self) -> bytes | None:
        file = self.bin / "crontab.txt"
        return file.read_bytes() if file.exists() else None

    @crontab.setter
    def crontab(self, text: bytes) -> None:
        (self.bin / "crontab.txt").write_bytes(text)

    def schedule(self, *words: str, code: int = 0) -> str:
        """Type `singer-bridge schedule ...` and return what it printed; an error's text after it."""
        with pytest.raises(SystemExit) as exit_:
            main(["schedule", *words])
        printed = self._capsys.readouterr()
        assert exit_.value.code == code, printed
        return printed.out + printed.err


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, monkeypatch, capsys)


def test_install_leaves_other_lines_alone(machine: Machine) -> None:
    """What others wrote stays byte for byte, and ours is one line more; a second install changes nothing."""
    machine.crontab = OTHERS
    assert "flights: installed, next run" in machine.schedule("install", "flights")
    after = machine.crontab
    assert after and after.startswith(OTHERS + b"\n")
    assert after.count(b"\n") == OTHERS.count(b"\n") + 2
    assert "flights: was installed" in machine.schedule("install", "flights")
    assert machine.crontab == after


def test_install_into_an_empty_crontab(machine: Machine) -> None:
    """A user who has no crontab has one of these lines then; --all takes every pipeline that has a schedule."""
    machine.schedule("install", "--all")
    assert machine.crontab
    first, second = machine.crontab.decode().splitlines()
    assert first.startswith("0 */2 * * * mkdir -p ") and first.endswith(":flights")
    assert second.startswith("@daily mkdir -p ") and second.endswith(":weather")


def test_the_line_runs_the_pipeline(machine: Machine) -> None:
    """What cron hands to its shell starts this Python with this file and environment, its output in the log."""
    machine.schedule("install", "flights")
    assert machine.crontab
    line = machine.crontab.decode().rstrip()
    command = line.removeprefix("0 */2 * * * ").replace(r"\%", "%")  # as cron does
    probe = command.replace(f"{sys.executable} -m bridge run", f"{sys.executable} -c '{_PROBE}' run")
    subprocess.run(["/bin/sh", "-c", probe], env={"HOME": "/", "PATH": "/usr/bin:/bin"}, cwd="/", check=True)
    log = machine.project / ".singer-bridge/logs/flights.log"
    seen = json.loads(log.read_text())  # its folder was not there before
    assert seen["argv"] == ["run", "flights", "--no-progress", "--file", str(machine.project / "bridge.yaml")]
    assert seen["PATH"] == f"{machine.bin}:/usr/bin:/bin"
    assert (seen["JAVA_HOME"], seen["SINGER_BRIDGE_ENV"]) == ("/opt/java 17", None)


_PROBE = (
    'import json, os, sys; names = ("PATH", "JAVA_HOME", "SINGER_BRIDGE_ENV"); '
    'print(json.dumps({"argv": sys.argv[1:]} | {name: os.environ.get(name) for name in names}))'
)


def test_dry_run_changes_nothing(machine: Machine) -> None:
    """--dry-run prints the very line that is installed, or removed, and leaves crontab and folders alone."""
    shown = machine.schedule("install", "flights", "--dry-run")
    assert machine.crontab is None
    assert not (machine.project / ".singer-bridge").exists()
    machine.schedule("install", "flights")
    assert machine.crontab == shown.encode()
    assert machine.schedule("remove", "flights", "--dry-run") == shown
    assert machine.crontab == shown.encode()


def test_at_the_start_of_the_machine(machine: Machine) -> None:
    """@reboot has no time, and that is said."""
    (machine.project / "bridge.yaml").write_text(FILE.replace("@daily", "@reboot"))
    assert "next run when the machine starts" in machine.schedule("install", "weather")
    assert json.loads(machine.schedule("list", "weather", "--json"))[0]["next"] is None


def test_a_changed_schedule_takes_its_place(machine: Machine) -> None:
    """Install after an edit exchanges the line where it stands; list had said that it is another one."""
    machine.schedule("install", "--all")
    machine.crontab = b"# before\n" + (machine.crontab or b"") + b"# after\n"
    (machine.project / "bridge.yaml").write_text(FILE.replace("0 */2", "30 4"))
    assert "installed, with another schedule" in machine.schedule("list", "flights")
    machine.schedule("install", "flights")
    assert machine.crontab
    starts = [line.split(b"mkdir")[0] for line in machine.crontab.splitlines()]
    assert starts == [b"# before", b"30 4 * * * ", b"@daily ", b"# after"]


@pytest.mark.parametrize(("machines", "code"), [("Europe/Rome", 0), ("UTC", 2), ("Africa/Algiers", 2)])
def test_a_time_zone_is_the_machines_or_refused(
    machines: str, code: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cron knows no other; one whose clocks show the same, in winter and in summer, is as good as the machine's."""
    file = machine.project / "bridge.yaml"
    file.write_text(FILE.replace('"0 */2 * * *"', '"0 */2 * * *", timezone: Europe/Paris'))
    monkeypatch.setenv("TZ", machines)
    time.tzset()
    try:
        printed = machine.schedule("install", "flights", code=code)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert ("Europe/Paris" in printed) is bool(code)


def test_remove_takes_only_ours(machine: Machine) -> None:
    """Remove gives back the crontab that was before install; a pipeline that left the file goes as well."""
    machine.crontab = OTHERS + b"\n"
    machine.schedule("install", "--all")
    (machine.project / "bridge.yaml").write_text(FILE.replace("weather", "climate"))
    assert "removed: weather" in machine.schedule("remove", "weather")
    assert "removed: nothing" in machine.schedule("remove", "weather")
    machine.schedule("remove", "--all")
    assert machine.crontab == OTHERS + b"\n"


def test_a_commented_line_is_the_users(machine: Machine) -> None:
    """A line of ours that somebody made a comment is neither counted nor touched."""
    machine.schedule("install", "flights")
    machine.crontab = paused = b"# " + (machine.crontab or b"")
    assert "not installed" in machine.schedule("list", "flights")
    assert "removed: nothing" in machine.schedule("remove", "flights")
    assert machine.crontab == paused


def test_projects_do_not_touch_each_other(tmp_path: Path) -> None:
    """A pipeline of the same name in another folder, also in one whose name begins alike, has its own line."""
    folders = [tmp_path / "a", tmp_path / "a:b", tmp_path]
    crontab = b""
    for folder in folders:
        job = Job("@daily", folder / "bridge.yaml", "x", "x", None, folder / "log")
        crontab = with_jobs(crontab, {"x": job.line({})}, folder)
    assert crontab.count(b"\n") == 3
    rest = without(crontab, {"x"}, folders[0])
    assert [list(installed(rest, folder)) for folder in folders] == [[], ["x"], ["x"]]


def test_list(machine: Machine) -> None:
    """List shows what the file wants and what cron has, with the next run by the machine's clock."""
    machine.schedule("install", "flights")
    facts = {fact["pipeline"]: fact for fact in json.loads(machine.schedule("list", "--json"))}
    assert {name: fact["crontab"] for name, fact in facts.items()} == {
        "flights": "installed",
        "weather": "not installed",
    }
    following = datetime.fromisoformat(facts["flights"]["next"])
    assert (following.minute, following.hour % 2) == (0, 0)
    assert following > datetime.now().astimezone()
    assert facts["weather"]["next"] is None
    assert "not installed" in machine.schedule("list")


def test_no_crontab_program(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no cron, install says so, shows the line, and names the way by systemd; list still lists."""
    (machine.bin / "crontab").unlink()
    monkeypatch.setenv("PATH", str(machine.bin))
    said = machine.schedule("install", "flights", code=2)
    assert "there is no crontab program on this machine" in said
    assert "systemd timer" in said
    assert "0 */2 * * * mkdir -p" in said
    assert "no crontab program" in machine.schedule("list")
    assert machine.schedule("remove", "flights", code=2)


def test_cron_refuses(machine: Machine) -> None:
    """If cron does not take the file, the old one stays and its words are shown."""
    machine.crontab = b"REFUSED\n"
    said = machine.schedule("install", "flights", code=2)
    assert "cron refuses the crontab" in said and "bad command" in said
    assert machine.crontab == b"REFUSED\n"


def test_an_unreadable_crontab_is_not_replaced(machine: Machine) -> None:
    """An error that is not «there is none» stops install: writing would delete what could not be read."""
    (machine.bin / "crontab").write_text("#!/bin/sh\necho 'you are not allowed to use this program' >&2; exit 1\n")
    assert "not allowed" in machine.schedule("install", "flights", code=2)


def test_a_long_line_is_explained(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some crons take 998 bytes: if ours is refused and longer, the hint says what to shorten."""
    machine.crontab = b"REFUSED\n"
    monkeypatch.setenv("PATH", f"{machine.bin}:/usr/bin:/bin:" + ":".join(f"/opt/tools/{n}/bin" for n in range(80)))
    assert "shorter PATH" in machine.schedule("install", "flights", code=2)


@pytest.mark.parametrize("value", ["${BUCKET}", "./${BUCKET:-lake}"])
def test_variables_of_the_shell(machine: Machine, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Settings that only this shell's variables complete, or change, are not installed; with .env they are."""
    (machine.project / "bridge.yaml").write_text(FILE.replace("./lake", f'"{value}"'))
    monkeypatch.setenv("BUCKET", "there")
    said = machine.schedule("install", "flights", code=2)
    assert ".env" in said
    assert machine.crontab is None
    (machine.project / ".env").write_text("BUCKET=there\n")
    machine.schedule("install", "flights")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["install", "manual"], "no schedule pipeline=manual"),
        (["install"], "which pipeline?"),
        (["install", "fligths"], "did you mean"),
        (["install", "flights", "--to", "lake"], "a schedule needs a bridge.yaml"),
        (["install", "flights", "--name", "weather"], "two names for one pipeline"),
        (["remove", "flights", "--all"], "--all means every line"),
        (["list", "--file", "nothing.yaml"], "nothing.yaml"),
    ],
)
def test_wrong_use(machine: Machine, words: list[str], text: str) -> None:
    """What cannot be meant ends with exit code 2 and changes nothing."""
    assert text in machine.schedule(*words, code=2)
    assert machine.crontab is None


def test_environments_have_lines_of_their_own(machine: Machine) -> None:
    """--env is part of the line, so that cron loads what was installed; two environments stand beside each other."""
    (machine.project / "bridge.yaml").write_text(f"environments: {{prod: {{}}}}\n{FILE}")
    machine.schedule("install", "flights", "--env", "prod")
    machine.schedule("install", "flights")
    assert machine.crontab
    first, second = machine.crontab.decode().splitlines()
    assert " --env prod >> " in first and first.endswith(":prod.flights")
    assert "--env" not in second and second.endswith(":flights")
    machine.schedule("remove", "flights", "--env", "prod")
    assert machine.crontab == f"{second}\n".encode()


def test_a_line_break_in_a_path(tmp_path: Path) -> None:
    """A folder that no crontab can name is refused."""
    with pytest.raises(SettingsError, match="line break"):
        Job("@daily", tmp_path / "a\nb/bridge.yaml", "x", "x", None, tmp_path / "log").line({})


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 */2 * * *", "2026-11-20 19:59", "2026-11-20 20:00"),
        ("0 */2 * * *", "2026-11-20 20:00", "2026-11-20 22:00"),
        ("*/15 8-17 * * mon-fri", "2026-11-20 17:45", "2026-11-23 08:00"),
        ("30 4 1,15 * 5", "2026-11-20 05:00", "2026-11-27 04:30"),  # either day is enough
        ("30 4 */2 * 1", "2026-11-20 05:00", "2026-11-23 04:30"),  # a star wants both
        ("0 0 29 2 *", "2026-11-20 05:00", "2028-02-29 00:00"),
        ("0 0 * * 7", "2026-11-20 05:00", "2026-11-22 00:00"),
        ("59 23 31 12 *", "2026-12-31 23:59", "2027-12-31 23:59"),
        ("@monthly", "2026-12-20 05:00", "2027-01-01 00:00"),
    ],
)
def test_next_run(cron: str, after: str, expected: str) -> None:
    """The next run is the first minute after now that the five fields hit."""
    found = next_time(check_cron(cron), datetime.fromisoformat(after))
    assert found == datetime.fromisoformat(expected)


def test_at_boot_has_no_time() -> None:
    """Nobody knows when the machine starts next."""
    assert next_time("@reboot", datetime.now()) is None


def test_help_offers_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    """No `--to`, which is refused; `remove --all` takes every line of the project."""
    for words in ("install", "remove", "list"):
        with pytest.raises(SystemExit):
            main(["schedule", words, "-h"])
        out = " ".join(capsys.readouterr().out.split())
        assert "--to" not in out
        assert ("Every line of this project" in out) is (words == "remove")


def test_a_line_compares_the_pipeline_with_its_source(machine: Machine) -> None:
    """`reconcile.schedule` is a line of its own, with a log of its own; `list` and `remove` know it."""
    compared = FILE.replace(
        '{cron: "0 */2 * * *"}', '{cron: "0 */2 * * *"}\n    reconcile: {schedule: "@weekly", keys: true}'
    )
    compared += '    reconcile: {schedule: "0 3 * * 0", apply: true}\n'
    (machine.project / "bridge.yaml").write_text(compared)
    text = machine.schedule("install", "--all")
    assert "flights:reconcile: installed, next run" in text
    assert "manual:reconcile: installed, next run" in text
    lines = installed(machine.crontab or b"", machine.project)
    assert sorted(lines) == ["flights", "flights:reconcile", "manual:reconcile", "weather"]
    assert lines["flights:reconcile"].startswith("@weekly ")
    assert " -m bridge reconcile --keys flights --no-progress " in lines["flights:reconcile"]
    assert "/logs/flights.reconcile.log" in lines["flights:reconcile"]
    assert " -m bridge reconcile --apply --wait 1h manual --no-progress " in lines["manual:reconcile"]
    listed = json.loads(machine.schedule("list", "flights", "--json"))
    assert [(one["pipeline"], one["crontab"]) for one in listed] == [
        ("flights", "installed"),
        ("flights:reconcile", "installed"),
    ]
    assert "removed: flights, flights:reconcile" in machine.schedule("remove", "flights")
    assert sorted(installed(machine.crontab or b"", machine.project)) == ["manual:reconcile", "weather"]


def test_a_changed_comparison_is_listed_and_installed_anew(machine: Machine) -> None:
    """`list` sees other flags; `install` takes the line of a comparison that the file no longer has."""
    manual = FILE + '    reconcile: {schedule: "0 3 * * 0", keys: true}\n'
    (machine.project / "bridge.yaml").write_text(manual)
    machine.schedule("install", "--all")

    def listed() -> dict[str, str]:
        return {one["pipeline"]: one["crontab"] for one in json.loads(machine.schedule("list", "--json"))}

    assert listed()["manual:reconcile"] == "installed"
    for other in ("keys: false", "keys: true, apply: true", "apply: true"):
        (machine.project / "bridge.yaml").write_text(manual.replace("keys: true", other))
        assert listed()["manual:reconcile"] == "installed, with other flags"
        assert listed()["flights"] == "installed"
    (machine.project / "bridge.yaml").write_text(FILE)
    assert listed()["manual:reconcile"] == "installed, without a schedule in the file"
    machine.schedule("install", "--all")
    assert sorted(installed(machine.crontab or b"", machine.project)) == ["flights", "weather"]
