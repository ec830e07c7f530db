"""How a stream is loaded: as the settings say, or for `auto` by what is known of its replication.

`auto` never deletes on a guess, and never adds the same rows twice in silence. If nobody says how a stream is
replicated, each run may extract all of it again, so its rows are merged by their key. Without a key they are added
once, and the next run is refused until somebody decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bridge.settings.destination import APPEND_ONLY, HISTORY, OVERWRITE, UPSERT, LoadMethod


def load_method(
    setting: Literal["auto", LoadMethod],
    method: str | None,
    bookmarks: Sequence[str] | None,
    keys: Sequence[str] = (),
    *,
    shared: bool = False,
    is_part: bool = False,
) -> tuple[LoadMethod, str]:
    """How to load a stream and why; `method` is the catalog's replication method. Never deletes on a guess.

    To a `shared` table rows are only added, as nobody knows which pipeline's rows it holds. `is_part`: the tap calls it
    FULL_TABLE, and sends a part of its rows.
    """
    by_key = f"by key {', '.join(keys)}"
    if setting != "auto":
        return UPSERT if setting == HISTORY else setting, "as set"
    unknown = "no replication method is known"
    if is_part:
        method, unknown = None, "a child comes as far as its parent changed"
    if method == "FULL_TABLE":
        return OVERWRITE, "the catalog says FULL_TABLE"
    if method == "LOG_BASED" and keys and not shared:
        return UPSERT, f"the catalog says LOG_BASED: {by_key}"
    if method:
        return APPEND_ONLY, f"the catalog says {method}"
    if bookmarks:
        return APPEND_ONLY, f"incremental: bookmark {', '.join(bookmarks)}"
    if keys and not shared:
        return UPSERT, f"{unknown}: {by_key}"
    why = "a shared table is only added to" if shared else "no key"
    return APPEND_ONLY, f"{unknown}, and {why}"
