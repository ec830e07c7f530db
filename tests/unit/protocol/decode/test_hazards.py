"""What taps write, file by file: what each comes to, as tests/data/README.md says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import singer_sdk.testing

from tests.support.hazards import DATA, FILES, outcome, said

SDK = Path(singer_sdk.testing.__file__).parent / "target_test_streams"
EXPECTED = json.loads((DATA / "singer_sdk_streams.json").read_text())
DOC = (DATA / "README.md").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_hazard_has_the_outcome_beside_it(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and values, rejects, warnings, error and STATE are those of NAME.json."""
    monkeypatch.chdir(DATA)  # manifests of BATCHes name their files from here
    told = said(file)
    assert outcome(file, tmp_path, **told.get("settings", {})) == told["outcome"]


def test_the_doc_lists_each_hazard_with_its_result() -> None:
    """tests/data/README.md has a row for each file, in its words, and none for a file that is not there."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", DOC, re.MULTILINE)
    beside = {file.stem: (said(file)["hazard"], said(file)["result"]) for file in FILES}
    assert {name: (hazard.replace("\\|", "|"), result) for name, hazard, result in rows} == beside
    assert len(rows) == len(beside)


@pytest.mark.parametrize("file", sorted(SDK.glob("*.singer")), ids=lambda file: file.stem)
def test_what_singer_sdk_tests_targets_with(file: Path, tmp_path: Path) -> None:
    """Each stream that the SDK ships loads with all of its rows and values, and rejects only what has no key.

    Of rows with one key, of which nobody says how they are replicated, the last one is there.
    """
    assert outcome(file, tmp_path) == EXPECTED[file.stem]


def test_the_sdk_ships_no_stream_that_is_not_expected() -> None:
    """A newer SDK with more of them is noticed."""
    assert {file.stem for file in SDK.glob("*.singer")} == set(EXPECTED)
