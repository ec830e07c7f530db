"""The tables of docs/reference.md and docs/commands.md, made from the settings and from the command line.

What is made stands between `<!-- made from: ... -->` and `<!-- end -->`; all else is written by hand. After a
change of a setting or a flag, `python -m tests.support.reference_page` writes it again.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bridge.cli import cli
from bridge.settings.json_schema import json_schema
from bridge.settings.options import Keys
from bridge.settings.service import Service
from bridge.settings.values.section import Section, section_of
from bridge.settings.values.units import DURATION, SIZE

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("reference.md", "commands.md")]
OF_EVERY_VERB = {"--quiet", "--verbose", "--log-format"}
CHOOSING = {"--file", "--env", "--to", "--name"}
"""Flags that choose the pipeline, of every verb that takes a `[NAME]`."""
READ_ON = {
    "mask": "personal-data.md#mask-fields",
    "mask_key": "personal-data.md#change-masks",
    "forget": "personal-data.md#forget-a-person",
    "views": "views.md#what-may-stand-in-a-view",
    "stale_after": "alerts.md#notifications",
    "notify.on": "alerts.md#notifications",
    "metrics.textfile": "alerts.md#prometheus",
    "openlineage.url": "alerts.md#openlineage",
    "on_null_key": "loading.md#rows-without-a-replication-key",
    "on_no_state": "loading.md#what-looks-wrong-beside-earlier-runs",
    "source.discover": "catalog.md#a-run-discovers-by-itself",
    "source.select": "catalog.md#select",
    "source.parallelism": "running.md#parallel-taps",
    "source.replication_slot.guard": "guarantees.md#log-based-replication-from-postgresql",
    "destination.bucket": "s3.md",
    "destination.format": "table-formats.md",
    "destination.load_method": "loading.md#load-methods",
    "destination.hard_delete": "loading.md#deletions",
    "destination.compression_level": "loading.md#compression",
    "destination.partition_by": "loading.md#partitions",
    "destination.file_size": "loading.md#file-sizes",
    "destination.column_names": "loading.md#names",
    "destination.add_record_metadata": "loading.md#metadata-columns",
    "destination.shared": "running.md#whose-a-table-is",
    "destination.catalog.properties": "table-formats.md#secrets",
    "rejects.validate": "repair.md#every-rule-of-the-schema",
    "guard.rejected": "loading.md#an-overwrite-that-went-wrong",
    "spark.master": "cluster.md",
    "schedule.cron": "running.md#cron",
    "schedule.timezone": "service.md#schedules",
    "schedule.catch_up": "service.md#schedules",
    "service.max_runs": "service.md#schedules",
    "streams.GLOB.sequence": "history.md#when-a-version-begins",
    "streams.GLOB.track": "history.md#which-changes-make-a-version",
    "streams.GLOB.ignore": "history.md#which-changes-make-a-version",
    "streams.GLOB.sort_by": "loading.md#sorting",
    "streams.GLOB.columns": "loading.md#columns",
    "streams.GLOB.rename": "loading.md#names",
    "streams.GLOB.transform": "loading.md#transform",
    "streams.GLOB.parent": "running.md#parallel-taps",
    "streams.GLOB.lookback": "loading.md#lookback",
    "streams.GLOB.schema_policy": "types.md#when-a-schema-changes",
    "streams.GLOB.on_bad_time": "types.md#texts-that-are-no-time",
    "streams.GLOB.on_type_change": "types.md#when-a-schema-changes",
}
"""Where a page says more of a setting."""

_TABLE = re.compile(r"(?<=<!-- made from: )(.+)( -->\n)(?:.*\n)*?(?=<!-- end -->)")
_WORDS = {"string": "text", "integer": "number", "object": "mapping", "array": "list", "boolean": "`true`, `false`"}


def made(page: Path) -> str:
    """A page with its tables as settings and command line have them now."""
    tables = {f"settings of {section}": table for section, table in settings_tables()}
    tables |= {words: help_of(words, command) for words, command in commands()}
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}{tables[match[1]]}", page.read_text())


def settings_tables() -> Iterator[tuple[str, str]]:
    """The table of each section, by the section's dotted name."""
    described = json_schema()["$defs"]
    for name, section in (*_sections(Keys), ("service", Service)):
        rows = []
        for key, field in section.model_fields.items():
            if section_of(field.annotation):
                continue
            of_key = described[section.__name__]["properties"][key]
            text = of_key["description"].replace("\n", " ")
            path = f"{name}.{key}".lstrip(".")
            if more := READ_ON.get(path):
                text += f" [More]({more})"
            rows.append(f"| `{path}` | {_kind(of_key, field)} | {_default(of_key, field)} | {text} |\n")
        if rows:
            yield name or "a pipeline", "| key | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _sections(section: type[Section], name: str = "") -> Iterator[tuple[str, type[Section]]]:
    yield name, section
    for key, field in section.model_fields.items():
        if inner := section_of(field.annotation):
            glob = ".GLOB" if "dict" in str(field.annotation) else ""
            yield from _sections(inner, f"{name}.{key}".lstrip(".") + glob)


def _kind(schema: dict[str, Any], field: FieldInfo) -> str:
    kinds = [kind for kind in _kinds(schema) if kind != "null" or field.default is not None]
    return " or ".join(dict.fromkeys(kinds))


def _kinds(schema: dict[str, Any]) -> Iterator[str]:
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if inner := schema.get("anyOf"):
        for one in inner:
            yield from _kinds(one)
    elif "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"] if isinstance(value, str))
    elif "const" in schema:
        yield f"`{schema['const']}`"
    elif schema.get("pattern") in (SIZE, DURATION):
        yield "size" if schema["pattern"] == SIZE else "duration"
        yield from (_WORDS.get(name, name) for name in names if name not in ("string", "integer"))
    elif "maximum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}"
    else:
        yield from (_WORDS.get(name, name) for name in names)


def _default(schema: dict[str, Any], field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = schema.get("default", field.get_default(call_default_factory=True))
    if default is None:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every verb, by the words that are typed."""
    for verb in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), verb)
        assert command
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        yield from ((f"{verb} {word}".strip(), each) for word, each in inner.items())


def takes_a_name(command: click.Command) -> bool:
    """Whether a verb works on pipelines that its arguments and flags choose."""
    return any(parameter.name in ("name", "names") for parameter in command.params) and not CHOOSING - {
        name for parameter in command.params for name in parameter.opts
    }


def help_of(words: str, command: click.Command) -> str:
    """What `--help` says of a verb, but for its examples, and its own flags."""
    context = click.Context(command, **cli.context_settings)  # click keeps the names of the help flag of the first one
    arguments = " ".join(command.collect_usage_pieces(context)[1:])
    usage = f"`singer-bridge {words} {arguments}`\n\n" if arguments not in ("", "[NAME]") else ""
    text = inspect.cleandoc(command.help or "").split("\b")[0].strip()
    table = flags_table(command)
    return f"{usage}{text}\n" + (f"\n{table}" if table else "")


def flags_table(command: click.Command) -> str:
    """The verb's own flags."""
    shared = OF_EVERY_VERB | (CHOOSING if takes_a_name(command) else set())
    own = [each for each in command.params if isinstance(each, click.Option) and not shared & {*each.opts}]
    return "| flag | meaning |\n|---|---|\n" + "".join(_flag_row(option) for option in own) if own else ""


def _flag_row(option: click.Option) -> str:
    first, *others = sorted(option.opts, key=lambda name: (not name.startswith("--"), option.opts.index(name)))
    value = (option.metavar or "").replace("|", " or ")
    text = option.help or ""
    if isinstance(option.type, click.Choice):
        text += f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."
    elif not value and not option.is_flag:
        value = "N" if isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)) else "PATH"
    if option.required:
        text += " Required."
    elif option.show_default and option.default not in (None, PydanticUndefined):
        text += f" Default: `{option.default}`."
    cell = ", ".join(f"`{name}`" for name in (f"{first} {value}".strip(), *others))
    return f"| {cell} | {text.strip()} |\n"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(made(page))
