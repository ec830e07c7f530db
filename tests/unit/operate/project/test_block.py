"""Entries are taken out of bridge.yaml as people wrote it, and nothing else moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.operate.project.append import append_pipeline
from bridge.operate.project.block import without_entries

BODY = "  source:\n    tap: tap-x\n    # pip_url: tap-x\n  streams:\n    a: {load_method: upsert}\n    # b: {}\n"
FILE = """\
# ours
defaults: {destination: {bucket: lake}}
pipelines:

  # the first one
  a: {source: {tap: tap-a}}   # why


  b:
    source:
      tap: tap-b
      config:
        text: |
          # no comment

          pipelines:
    # schedule: {cron: "@daily"}

  # the last one
  c:
    source: {tap: tap-c}
environments:
  prod:
    pipelines:
      b:
        commit: {every: 1m}
      c: {commit: {every: 2m}}
    # of prod
  staging:
    defaults: {}
"""


def without(folder: Path, text: str, *keys: tuple[str, ...]) -> str:
    path = folder / "bridge.yaml"
    path.write_bytes(text.encode())
    after = without_entries(path, keys).decode()
    assert path.read_bytes() == text.encode()
    assert [one.name for one in folder.iterdir()] == ["bridge.yaml"]
    return after


@pytest.mark.parametrize(
    "before",
    [
        "pipelines:\n",
        "# mine\npipelines:\n  # later\n",
        "pipelines:\n    a: {x: 1}   # why\n\n",
        "pipelines:\n  a: 1\n",
        "pipelines:\n  a:\n    x: 1\n    # y: 2\n\n# of all\ndefaults: {y: 1}\n",
        "pipelines:\n  a: 1\ndefaults: {y: 1}\n",
        "x-a: &a {x: 1}\npipelines:\n  b: *a\n",
        "pipelines:\r\n  a: 1\r\n",
    ],
)
def test_it_undoes_what_was_appended(tmp_path: Path, before: str) -> None:
    """Byte for byte, wherever the pipeline was put."""
    path = tmp_path / "bridge.yaml"
    path.write_bytes(before.encode())
    append_pipeline(path, "new", BODY)
    added = path.read_bytes().decode()
    assert added != before
    after = without(tmp_path, added, ("pipelines", "new"))
    assert after == before.replace("1\ndefaults", "1\n\ndefaults")  # `add` parts them by a blank line


def test_only_its_own_lines_go(tmp_path: Path) -> None:
    """Comments beside and above others, blank lines and flow style stay, in every section that names the pipeline."""
    lines = FILE.splitlines(keepends=True)
    start, end = lines.index("  b:\n"), lines.index("  # the last one\n")
    inner = lines.index("      b:\n")
    expected = "".join([*lines[: start - 1], *lines[end - 1 : inner], *lines[inner + 2 :]])
    assert without(tmp_path, FILE, ("pipelines", "b"), ("environments", "prod", "pipelines", "b")) == expected


def test_a_pipeline_on_one_line(tmp_path: Path) -> None:
    """It goes with the comment behind it; the comment above it stays."""
    expected = FILE.replace("  a: {source: {tap: tap-a}}   # why\n", "")
    assert without(tmp_path, FILE, ("pipelines", "a")) == expected.replace("one\n\n\n", "one\n\n\n")


@pytest.mark.parametrize(
    "text",
    [
        "pipelines: {new: {x: 1}, b: {x: 1}}\n",
        "{pipelines: {new: 1}}\n",
        "x-p: &p\n  new: {x: 1}\npipelines: *p\n",
        "pipelines:\n  new: &new {x: 1}\n  other: *new\n",
        "pipelines:\n  ? new\n  : {x: 1}\n",
    ],
)
def test_what_cannot_be_edited_is_refused(tmp_path: Path, text: str) -> None:
    """Where anything else would change, the file stays as it is, and the hint names the entry."""
    with pytest.raises(SettingsError, match="cannot be edited") as caught:
        without(tmp_path, text, ("pipelines", "new"))
    assert "take it out yourself: pipelines.new" in caught.value.hint
    assert (tmp_path / "bridge.yaml").read_text() == text
