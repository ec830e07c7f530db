"""`${cmd:...}`: what a command prints, once, masked everywhere; and each way in which that fails."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.settings import load as load_module
from bridge.settings.effective import effective, to_yaml
from bridge.settings.load import SettingsFile, check, load
from bridge.settings.redact import redactor
from bridge.settings.text import command_output
from bridge.settings.text.command_output import Outputs
from tests.unit.settings.settings_files import PASSWORD, Load, file_text, pipeline_text, refused

Vault = Callable[[str], str]


@pytest.fixture(autouse=True)
def outputs(monkeypatch: pytest.MonkeyPatch) -> Outputs:
    """The memory of a new process."""
    outputs = Outputs()
    for module in (load_module, command_output, sys.modules["bridge.settings.text.variables"]):
        monkeypatch.setattr(module, "OUTPUTS", outputs)
    return outputs


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Writes a program with this body, which notes each of its starts in `starts`; returns its `${cmd:...}`."""

    def write(body: str) -> str:
        program = tmp_path / "vault"
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\nopen('starts', 'a').write('x')\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return "${cmd:./vault}"

    return write


def _starts(folder: Path) -> int:
    return len((folder / "starts").read_text()) if (folder / "starts").exists() else 0


def _password(written: str) -> str:
    return file_text(source=f"config:\n  password: {written}")


@pytest.mark.parametrize("printed", [PASSWORD, f"{PASSWORD}\\n", f"{PASSWORD}\\r\\n", "12345678\\n"])
def test_an_output_is_a_value(settings: Load, vault: Vault, printed: str) -> None:
    """Stdout without its last line break, always as text, also among other text; stdin is at its end."""
    written = vault(f"assert sys.stdin.read() == ''; sys.stdout.write({json.dumps(printed)!s})".replace("\\\\", "\\"))
    text = file_text(source=f"config:\n  password: {written}\n  url: 'postgresql://u:{written}@h/db'")
    pipeline = settings(text).pipeline(None)
    secret = PASSWORD if "hunter" in printed else "12345678"
    assert pipeline.source.config == {"password": secret, "url": f"postgresql://u:{secret}@h/db"}
    assert secret in pipeline.secrets


def test_words_without_a_shell(settings: Load, tmp_path: Path) -> None:
    """Words are split as a shell does, and no more: `$`, `*`, `;` and `|` are text to the command."""
    program = shlex.quote(sys.executable)
    command = f"{program} -c 'import sys; print(sys.argv[1:])' a \"b c\" '$HOME' *; | ~"
    pipeline = settings(_password(f"'${{cmd:{command.replace(chr(39), chr(39) * 2)}}}'")).pipeline(None)
    assert pipeline.source.config == {"password": "['a', 'b c', '$HOME', '*;', '|', '~']"}


def test_a_command_sees_the_variables_of_the_file(settings: Load, vault: Vault, tmp_path: Path) -> None:
    """It runs in the file's folder, with the environment and `.env`, whose values are never run themselves."""
    (tmp_path / ".env").write_text("VAULT_TOKEN='${cmd:./no}'\n")
    written = vault("print(os.environ['VAULT_TOKEN'], os.path.basename(os.getcwd()))")
    pipeline = settings(_password(written), {"PATH": os.environ["PATH"]}).pipeline(None)
    assert pipeline.source.config == {"password": f"${{cmd:./no}} {tmp_path.name}"}


def test_nothing_is_filled_in_twice(settings: Load, vault: Vault, tmp_path: Path) -> None:
    """A `${cmd:...}` in a variable, a default, a file or an output is text, and so is `$${cmd:...}`."""
    (tmp_path / "pw").write_text("${cmd:./vault}")
    written = vault("print('${cmd:./vault}')")
    lines = {"variable": "${V}", "file": "${file:pw}", "output": written, "literal": "$${cmd:./vault}"}
    text = file_text(source="config:\n" + "".join(f"  {key}: {value}\n" for key, value in lines.items()))
    config = settings(text, {"V": "${cmd:./vault}"}).pipeline(None).source.config
    assert config == dict.fromkeys(lines, "${cmd:./vault}")
    assert _starts(tmp_path) == 1


def test_it_runs_once_in_a_process(settings: Load, vault: Vault, tmp_path: Path) -> None:
    """Several uses, pipelines, threads and readings of the file start it once; what nobody reads, never."""
    written = vault(f"time.sleep(0.2); print('{PASSWORD}')")
    text = _password(written) + _password(written).replace("pipelines:\n", "").replace("flights", "hotels")
    read = settings(text + "x-free: ${cmd:./nothing}\n")
    threads = [threading.Thread(target=read.pipeline, args=(name,)) for name in ("flights", "hotels")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(3):
        assert settings(text).pipeline("hotels").source.config == {"password": PASSWORD}
    assert _starts(tmp_path) == 1


def test_a_value_that_is_overridden_or_not_needed_is_never_run(settings: Load, vault: Vault, tmp_path: Path) -> None:
    """A layer above replaces the command; a verb that only looks at the lake runs none of the source's."""
    written = vault("print('x' * 9)")
    above = "environments:\n  dev:\n    pipelines:\n      flights: {source: {config: {password: p}}}\n"
    assert settings(_password(written) + above, env="dev").pipeline(None).source.config == {"password": "p"}
    assert _starts(tmp_path) == 0
    (tmp_path / "bridge.yaml").write_text(_password(written))
    assert load(tmp_path / "bridge.yaml", {}).pipeline(None, source=False).name == "flights"
    assert _starts(tmp_path) == 0


FAILURES = [
    ("sys.exit(3)", "${cmd:...} failed command=vault exit=3", "try it in a terminal"),
    (
        f"print('{PASSWORD}'); print('a\\nlocked \\x1b[1m{PASSWORD}', file=sys.stderr); sys.exit(1)",
        "${cmd:...} failed command=vault exit=1",
        "it says: locked  [1m***",
    ),
    ("print('not here', file=sys.stderr)", "${cmd:...} printed nothing", "it says: not here"),
    ("print()", "${cmd:...} printed nothing", "stdout"),
    ("sys.stdout.buffer.write(b'hunter2-longer\\xff')", "the output of ${cmd:...} is not UTF-8", "base64"),
    ("sys.stdout.write('hunter2-longer' * 9999); sys.stdout.flush(); time.sleep(60)", "more than 64 KiB", "short"),
    ("print('hunter2-longer', flush=True); time.sleep(60)", "${cmd:...} took longer than 1 s", "stdin is closed"),
    ("os.kill(os.getpid(), 9)", "${cmd:...} failed command=vault exit=-9", "terminal"),
]


@pytest.mark.parametrize(("body", "message", "hint"), FAILURES)
def test_what_fails(
    settings: Load, vault: Vault, body: str, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names file, line, key and program, and has stderr's last line; nothing shows what stdout had."""
    monkeypatch.setattr(command_output, "_LIMIT", 1.0)
    text = _password(vault(body))
    error = refused(lambda: settings(text).pipeline(None))
    assert "bridge.yaml:6: " in error.message and "key=pipelines.flights.source.config.password" in error.message
    assert message.removeprefix("${cmd:...} ") in error.message.replace(
        " key=pipelines.flights.source.config.password", ""
    )
    assert hint in error.hint


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        (
            "${cmd:no-such-program-here x}",
            "reason=No such file or directory command=no-such-program-here",
            "install it",
        ),
        ("${cmd:./folder}", "reason=Permission denied command=folder", "whole path"),
        ("${cmd:}", "no command in ${cmd:...}", "pass show"),
        ("${cmd:pass 'hunter2-longer}", "quotes are not closed in ${cmd:...}", "close them"),
        ("${cmd:awk '{print $1}' hunter2-longer}", "malformed ${...}", "script"),
    ],
)
def test_what_cannot_be_run(settings: Load, tmp_path: Path, written: str, message: str, hint: str) -> None:
    """A program that does not exist, and what is no command, are named with their place, without their arguments."""
    (tmp_path / "folder").mkdir()
    text = file_text(source="config:\n  password: " + json.dumps(written))
    error = refused(lambda: settings(text).pipeline(None))
    assert "bridge.yaml:6: " in error.message and hint in error.hint
    assert message in error.message.replace(" key=pipelines.flights.source.config.password", "")


def test_a_process_that_is_left_behind_holds_nobody_up(settings: Load, vault: Vault, tmp_path: Path) -> None:
    """An agent that the command starts, and that keeps its stdout open, is not waited for, and lives on."""
    body = (
        "sys.stdout.write('hunter2-longer'); sys.stdout.flush()\n"
        "if os.fork() == 0:\n    os.setsid(); open('agent', 'w').write(str(os.getpid())); time.sleep(600)"
    )
    assert settings(_password(vault(body))).pipeline(None).source.config == {"password": PASSWORD}
    os.kill(int((tmp_path / "agent").read_text()), 9)


def test_a_command_that_takes_too_long_ends_with_its_children(
    settings: Load, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of its time all processes of the command are killed."""
    monkeypatch.setattr(command_output, "_LIMIT", 1.0)
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    (tmp_path / "fifo").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "fifo")
    body = "if os.fork() == 0:\n    open('fifo', 'w').write('x') and time.sleep(60)\ntime.sleep(60)"
    alive = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    refused(lambda: settings(_password(vault(body))).pipeline(None))
    os.set_blocking(alive, True)
    while os.read(alive, 100):  # at its end nobody has it open any more
        pass
    for one in (alive, reading, writing):
        os.close(one)


def test_a_failure_is_remembered_for_a_minute(
    settings: Load, vault: Vault, tmp_path: Path, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vault that is locked is asked once, whoever reads; a minute later, who follows the file asks again."""
    text = _password(vault("sys.exit(1)"))
    for _ in range(3):
        refused(lambda: settings(text).pipeline(None))
    assert _starts(tmp_path) == 1
    (tmp_path / "bridge.yaml").write_text(text)
    file = SettingsFile(tmp_path / "bridge.yaml", None)
    refused(lambda: file.read().pipeline(None))
    assert not file.has_changed()
    vault(f"print('{PASSWORD}')")
    monkeypatch.setattr(command_output, "_FAILURE", 0.0)
    file.has_changed()
    for thread in [one for one in threading.enumerate() if one.name == "command"]:
        thread.join()
    assert file.has_changed()
    assert file.read().pipeline(None).source.config == {"password": PASSWORD}


def test_a_service_runs_it_again_for_a_run(
    vault: Vault, tmp_path: Path, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at an unchanged or changed file run nothing; a run takes a new output if the old one is of long ago.

    Then whoever follows the file has to read it again, as a key of the bucket may be another one.
    """
    path = tmp_path / "bridge.yaml"
    path.write_text(_password(vault("print('first-password')")))
    file = SettingsFile(path, None)
    assert file.read().pipeline(None).source.config == {"password": "first-password"}
    vault("print('second-password')")
    path.write_text(path.read_text() + "# changed\n")
    assert file.has_changed()
    assert file.read().pipeline(None).source.config == {"password": "first-password"}
    assert load_module.read_settings(path, renew=True).pipeline(None).source.config == {"password": "first-password"}
    assert (_starts(tmp_path), file.has_changed()) == (1, False)
    monkeypatch.setattr(command_output, "_TOO_OLD", 0.0)
    assert load_module.read_settings(path, renew=True).pipeline(None).source.config == {"password": "second-password"}
    assert file.has_changed()
    monkeypatch.setattr(command_output, "_TOO_OLD", 600.0)
    assert file.read().pipeline(None).source.config == {"password": "second-password"}
    assert (_starts(tmp_path), file.has_changed()) == (2, False)


def test_an_output_is_masked_wherever_it_stands(settings: Load, vault: Vault) -> None:
    """Also at a key that names no secret, in the destination, in Spark's settings, and line by line."""
    written = vault("print('first line of the key\\nsecond line of the key')")
    text = pipeline_text(
        source=f"config: {{host: '{written}'}}",
        destination=f"path: x\nazure: {{sas_token: 'sig={written}'}}",
        more=f"spark: {{conf: {{spark.hadoop.fs.s3a.secret.key: '{written}'}}}}\nnotify: [{{url: 'json://{written}'}}]",
    )
    pipeline = settings(text.replace("./lake", "az://lake/x")).pipeline(None)
    shown = "\n".join(to_yaml(*effective(pipeline, every=True))) + repr(pipeline)
    assert "line of the key" not in shown
    assert redactor(pipeline.secrets)(b"at host: second line of the key!") == b"at host: ***!"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("source.pip_url", "pip_url: git+https://x:{}@host/repo"),
        ("source.tap", ""),
        ("spark.conf", "spark: {{conf: {{spark.my.key: '{}'}}}}"),
        ("include", 'include: ["{}"]'),
        ("system_tables.path", "system_tables: {{path: '{}'}}"),
    ],
)
def test_where_a_command_cannot_stand(settings: Load, vault: Vault, tmp_path: Path, key: str, text: str) -> None:
    """Where others would see it, on a command line, and where files are looked for, an output is refused."""
    written = vault("print('x' * 9)")
    if key.startswith("source.pip"):
        text = file_text(source=text.format(written))
    elif key == "source.tap":
        text = file_text("").replace("tap: tap-postgres", f"tap: [tap-postgres, --password, '{written}']")
    elif key == "spark.conf":
        text = file_text("", more=text.format(written))
    else:
        text = file_text("") + text.format(written) + "\n"
    error = refused(lambda: settings(text).pipeline(None))
    assert "no ${cmd:...} here" in error.message and key in error.message
    (tmp_path / "bridge.yaml").write_text(text)
    assert ["no ${cmd:...} here" in one.error.message for one in check(tmp_path / "bridge.yaml", {})] == [True]


def test_checks_run_nothing(vault: Vault, tmp_path: Path) -> None:
    """`check`, and settings without commands, take `***` for an output; what is wrong beside it is told."""
    written = vault("sys.exit(1)")
    path = tmp_path / "bridge.yaml"
    good = pipeline_text(
        source=f"config: {{password: '{written}'}}",
        destination=f"bucket: '{written}'\nazure: {{account: contoso, account_key: '{written}'}}",
        more=f"notify: [{{url: '{written}'}}]\nopenlineage: {{url: '{written}'}}\ncommit: {{every: '{written}'}}",
    ).replace("      bucket: ./lake\n", "")
    path.write_text(good + f"service: {{token: '{written}'}}\n")
    assert check(path, {}) == []
    path.write_text(good.replace(f"commit: {{every: '{written}'}}", ""))
    pipeline = load(path, {}, commands=False).pipeline(None)
    assert pipeline.source.config == {"password": "***"}
    shown = "\n".join(to_yaml(*effective(pipeline, every=False)))
    assert "***" in shown and "cmd:" not in shown
    path.write_text(good)
    with pytest.raises(SettingsError, match="only a command knows a value"):
        load(path, {}, commands=False).pipeline(None)
    path.write_text(good.replace("source:", "sauce:"))
    assert ["unknown key" in one.error.message for one in check(path, {})] == [True]
    assert _starts(tmp_path) == 0


def test_a_wrong_setting_runs_no_command_of_another_pipeline(vault: Vault, tmp_path: Path) -> None:
    """The error of one pipeline counts the mistakes of all, and runs nothing for that."""
    other = _password(vault("sys.exit(1)")).replace("pipelines:\n", "").replace("flights", "hotels")
    (tmp_path / "bridge.yaml").write_text(file_text("", more="commit: {every: 5}") + other)
    error = refused(lambda: load(tmp_path / "bridge.yaml", {}).pipeline("flights"))
    assert "commit.every" in error.message
    assert _starts(tmp_path) == 0
