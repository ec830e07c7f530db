"""`forget`: take the rows of a key out of everything that could bring them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bridge.cli.answer import Answer, is_quiet
from bridge.cli.confirm import warn
from bridge.cli.options import NEEDS_YES, changing, pipelines_verb
from bridge.cli.selection import Selection, committed
from bridge.cli.show import as_json, console, count_of
from bridge.errors import SettingsError
from bridge.lake.state.store import StateStore


@click.command()
@pipelines_verb
@click.option("-s", "--stream", required=True, metavar="STREAM", help="The stream whose key it is.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A value of its key; may be repeated.")
@click.option(
    "--key-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Keys, one on each line."
)
@changing(NEEDS_YES)
def forget(selection: Selection, *, stream: str, keys: tuple[str, ...], key_file: Path | None, answer: Answer) -> None:
    """Take the rows of a key out of tables, views, rejects and the trash, and write a receipt.

    Rows of other streams go with them that `forget` in the settings names. No rollback brings them back. A key of
    several columns is a JSON array: --key '[42, "de"]'. The receipt and the list of forgotten keys have codes of the
    keys under `mask_key`, never the keys. Whatever interrupts it, the same command again finishes it.

    \b
    singer-bridge forget flights -s public-users --key 7 --dry-run
    singer-bridge forget --all -s public-users --key-file left.txt --yes
    """
    from bridge.load.maintain.forget.forget import forget as take_out
    from bridge.load.maintain.forget.forget import outlook

    texts, receipts = [*keys, *_lines(key_file)], list[dict[str, Any]]()
    answer.require_consent("to forget all the same: --yes; --dry-run shows it")
    for chosen in selection.pipelines():
        pipeline = chosen.with_names
        storage, _ = committed(pipeline, required=not selection.everything)
        if not answer.dry_run:
            StateStore.at(storage, pipeline.name).refuse_if_held()
        receipt = outlook(storage, pipeline, chosen.home, stream, texts, required=not selection.everything)
        if receipt is not None:
            _print(receipt, answer)
            if answer.goes_ahead("forget it for good? No rollback brings it back."):
                receipt, notes = take_out(storage, pipeline, chosen.home, stream, texts)
                _tell(receipt, notes, answer)
            receipts.append(receipt | {"dry_run": answer.dry_run})
    if not receipts:
        hint = "`singer-bridge tables list` shows those there are"
        raise SettingsError("no pipeline has such a table", hint=hint, stream=stream)
    if answer.json_output:
        as_json(receipts if selection.everything else receipts[0])
    elif answer.dry_run:
        click.echo("dry run: nothing was changed")


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        return [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a text file with one key on each line"
        raise SettingsError("--key-file cannot be read", hint=hint, file=file) from error


def _print(receipt: dict[str, Any], answer: Answer) -> None:
    """Print on stderr what goes."""
    if is_quiet() or answer.json_output:
        return
    lines = [
        f"{name}: {count_of(facts['rows'], 'row')} in {count_of(facts['files'], 'file')}"
        for name, facts in receipt["tables"].items()
    ]
    lines += [f"{name}: its half loaded table starts again" for name in receipt["staged"]]
    lines += [count_of(receipt["rejects"], "reject")] if receipt["rejects"] else []
    lines += [f"{count_of(receipt['old_files'], 'file')} that tables gave up"] if receipt["old_files"] else []
    lines += [f"not searched: {text}" for text in receipt["not_searched"] if ": " in text]
    for line in lines or ["nothing of it is in tables, rejects, or files that they gave up"]:
        console(err=True).print(f"{receipt['pipeline']}: {line}", markup=False, soft_wrap=True)


def _tell(receipt: dict[str, Any], notes: list[str], answer: Answer) -> None:
    for text in notes:
        warn(text)
    if not answer.json_output:
        click.echo(f"{receipt['pipeline']}: forgotten; receipt: {receipt['file']}")
