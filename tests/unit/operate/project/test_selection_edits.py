"""The list in bridge.yaml is changed where it stands, and not one other byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.operate.project.selection import write_selection

KEY = ("pipelines", "shop")
HEAD = "# ours\npipelines:\n  shop:\n    source:\n      # the tap\n      tap: tap-x   # ours\n"
TAIL = "    destination: {bucket: lake}  # here\n  other:\n    source: {tap: y, select: [a]}\n"


def written(tmp_path: Path, text: str, patterns: list[str]) -> str:
    """Write the patterns into a file of that text and return what it is then."""
    file = tmp_path / "bridge.yaml"
    file.write_bytes(text.encode())
    assert write_selection(file, KEY, patterns) == text.encode()
    assert list(tmp_path.iterdir()) == [file]
    return file.read_bytes().decode()


@pytest.mark.parametrize(
    ("before", "patterns", "after"),
    [
        ("", ["a", "!b"], '      select: ["a", "!b"]\n'),
        ("      select: [a]  # why\n", ["a", "b"], '      select: [a, "b"]  # why\n'),
        ("      select: ['a', b]\n", ["b"], "      select: [b]\n"),
        ("      streams: [a]\n", ["b"], '      streams: ["b"]\n'),
        ("      select: []\n", ["b"], '      select: ["b"]\n'),
        ("      select:\n", ["b"], '      select: ["b"]\n'),
        ("      select: ~ # none\n", ["b"], '      select: ["b"] # none\n'),
        ("      select: [a, b]\n", [], "      select: []\n"),
        ("      select:\n        - a  # why\n", ["a", "b"], '      select:\n        - a  # why\n        - "b"\n'),
        (
            "      select:\n      # first\n      - a\n      - b # gone\n      # last\n\n",
            ["a", "c"],
            '      select:\n      # first\n      - a\n      - "c"\n      # last\n\n',
        ),
        ("      select:\n        - a\n        - b\n", ["b", "a"], '      select:\n        - b\n        - "a"\n'),
        ("      select: [a, b]\n", ["b", "a"], '      select: [b, "a"]\n'),
        ("      select:\n        - a\n", [], "      select: []\n"),
        ("      config:\n        text: |\n          one\n\n", ["b"], None),
        (
            "      config:\n        # host: x\n\n        # port: 1\n\n      # end\n",
            ["b"],
            '      config:\n        # host: x\n\n        # port: 1\n      select: ["b"]\n\n      # end\n',
        ),
        (
            "      env:\n        A: 1\n\n      # end\n",
            ["b"],
            '      env:\n        A: 1\n      select: ["b"]\n\n      # end\n',
        ),
    ],
)
def test_written(tmp_path: Path, before: str, patterns: list[str], after: str | None) -> None:
    """Items and keys come and go; comments, order, quotes and the other pipeline stay."""
    found = written(tmp_path, HEAD + before + TAIL, patterns)
    if after is None:
        assert found.replace('      select: ["b"]\n', "") == HEAD + before + TAIL
        assert '      select: ["b"]\n' in found
    else:
        assert found == HEAD + after + TAIL


def test_flow_and_line_ends(tmp_path: Path) -> None:
    """Braces, JSON, Windows' line ends, a byte order mark, a last line without an end: all stay as they are."""
    assert written(tmp_path, "pipelines: {shop: {source: {tap: x}}}", ["a"]) == (
        'pipelines: {shop: {source: {tap: x, select: ["a"]}}}'
    )
    assert json.loads(written(tmp_path, '{"pipelines": {"shop": {"source": {"tap": "x"}}}}', ["a"]))
    windows = "\ufeffpipelines:\r\n  shop:\r\n    source:\r\n      tap: x\r\n    destination: {bucket: l}\r\n"
    assert written(tmp_path, windows, ["a"]) == windows.replace("tap: x\r\n", 'tap: x\r\n      select: ["a"]\r\n')
    open_end = "pipelines:\n  shop:\n    source:\n      tap: x"
    assert written(tmp_path, open_end, ["a"]) == open_end + '\n      select: ["a"]\n'
    listed = "pipelines:\n  shop:\n    source:\n      tap: x\n      select:\n        - a"
    assert written(tmp_path, listed, ["a", "b"]) == listed + '\n        - "b"\n'
    assert written(tmp_path, listed, ["b"]) == listed.replace("- a", '- "b"') + "\n"


def test_a_long_list_stands_in_lines(tmp_path: Path) -> None:
    """What does not fit in a line gets one for each."""
    patterns = [f"public-table-{number}" for number in range(10)]
    found = written(tmp_path, HEAD + TAIL, patterns)
    assert '      select:\n        - "public-table-0"\n' in found


def test_merged_keys_stay_merged(tmp_path: Path) -> None:
    """A source that begins with an anchor's keys gets a list of its own; the anchor stays as it is."""
    text = "x-pg: &pg\n  tap: x\npipelines:\n  shop:\n    source:\n      <<: *pg\n    destination: {bucket: l}\n"
    assert written(tmp_path, text, ["a"]) == text.replace("<<: *pg\n", '<<: *pg\n      select: ["a"]\n')


@pytest.mark.parametrize(
    "text",
    [
        "x: &s {tap: x}\npipelines: {shop: {source: *s}, other: {source: *s}}\n",
        "x-l: &l [a]\npipelines:\n  shop:\n    source:\n      tap: x\n      select: *l\n",
        "pipelines: {other: {source: {tap: x}}}\n",
        "pipelines: {shop: {source: {tap: x, select: [\n  a, # one\n  b]}}}\n",
        "pipelines: {shop: {source: [}}\n",
    ],
)
def test_what_only_a_person_should_edit(tmp_path: Path, text: str) -> None:
    """The file stays as it is, and the lines to paste are in the hint."""
    file = tmp_path / "bridge.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match="cannot be edited") as caught:
        write_selection(file, KEY, ["a", "!c"])
    assert 'select: ["a", "!c"]' in caught.value.hint
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_rights_and_links_stay(tmp_path: Path) -> None:
    """The file behind a link is replaced, with the rights that it had."""
    (tmp_path / "real.yaml").write_text(HEAD + TAIL)
    (tmp_path / "real.yaml").chmod(0o640)
    (tmp_path / "bridge.yaml").symlink_to("real.yaml")
    write_selection(tmp_path / "bridge.yaml", KEY, ["a"])
    assert (tmp_path / "bridge.yaml").is_symlink()
    assert (tmp_path / "real.yaml").stat().st_mode & 0o777 == 0o640
    assert "select" in (tmp_path / "real.yaml").read_text()
