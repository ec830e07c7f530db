"""The pages on real sources are true: what they tell to type is typed here, on real servers, with taps from PyPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import ROOT, type_page

from .postgresql import postgresql

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
DOCS = ROOT / "docs"


def test_postgres(tmp_path: Path) -> None:
    """docs/postgres.md, from the first command to the last."""
    with postgresql() as server:
        type_page(DOCS / "postgres.md", tmp_path, server.environ)
