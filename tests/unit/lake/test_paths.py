"""Folders of streams: safe for filesystems and engines, no two alike, and reversible."""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.lake.paths import folder_name


@pytest.mark.parametrize(
    ("stream", "folder"),
    [
        ("flights", "flights"),
        ("public-orders", "public-orders"),
        ("public.orders", "public.orders"),
        ("Überweisung", "Überweisung"),
        ("e\u0301t\u00e9", "\u00e9t\u00e9"),
        ("a=b", "a~3Db"),
        ("a/b\\c", "a~2Fb~5Cc"),
        ("a#b?c", "a~23b~3Fc"),
        ("..", "~2E~2E"),
        (".hidden", "~2Ehidden"),
        ("_delta_log", "~5Fdelta_log"),
        ("name.", "name~2E"),
        ("name ", "name~20"),
        ("50%~", "50~25~7E"),
        ("con", "~63on"),
        ("NUL.txt", "~4EUL.txt"),
        ("console", "console"),
        ("a\nb\x7f", "a~0Ab~7F"),
        ("", "~"),
        ("\ud800", "~ED~A0~80"),
    ],
)
def test_names(stream: str, folder: str) -> None:
    """What a filesystem, Hive, a glob or Windows would read otherwise is encoded, and nothing else."""
    assert folder_name(stream, []) == folder


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300), st.lists(st.text(max_size=30), max_size=5))
def test_any_name_makes_a_folder(stream: str, others: list[str]) -> None:
    """Any stream at all gets a folder that can be made, that engines read, and that differs from the others'."""
    taken: list[str] = []
    for name in [*others, stream]:
        taken.append(folder_name(name, taken))
    folder = taken[-1]
    assert not re.search(r'[/\\%=:?#*"<>|\x00-\x1f\x7f]|^[._]|[. ]$', folder)
    assert len({name.casefold() for name in taken}) == len(taken)
    assert len(folder.encode()) < 255
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / folder).mkdir()
        assert os.listdir(root) == [folder]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_two_streams_never_share_a_folder_by_encoding(one: str, two: str) -> None:
    """Different streams have different folders even before suffixes, but for the two spellings of one letter."""
    if unicodedata.normalize("NFC", one) != unicodedata.normalize("NFC", two):
        assert folder_name(one, []) != folder_name(two, [])


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=40))
def test_the_name_can_be_read_back(stream: str) -> None:
    """A folder's name, decoded, is the stream's."""
    folder = folder_name(stream, [])
    raw = re.sub(rb"~([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), folder.encode())
    assert raw.decode("utf-8", "surrogatepass") == unicodedata.normalize("NFC", stream)


def test_twins_get_a_number() -> None:
    """Names that differ only in case, or in how a letter is composed, are told apart, as is a name that was taken."""
    taken: list[str] = []
    for stream in ("Users", "users", "USERS", "users_2", "\u00e9", "e\u0301", "stra\u00dfe", "STRASSE"):
        taken.append(folder_name(stream, taken))
    assert taken == ["Users", "users_2", "USERS_3", "users_2_2", "\u00e9", "\u00e9_2", "stra\u00dfe", "STRASSE_2"]


def test_long_names_are_cut_and_stay_different() -> None:
    """A name too long for a filesystem is cut at a letter and told from others by a digest of the whole."""
    one, two = folder_name("ä" * 200 + "1", []), folder_name("ä" * 200 + "2", [])
    assert one != two
    assert one.startswith("ä" * 90 + "~")
    assert len(one.encode()) < 255
