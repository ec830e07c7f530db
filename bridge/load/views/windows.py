"""Of a view with `keep` or `lateness`: which of its groups go by a commit, and which close.

A window closes once a row has come whose time is `lateness` behind the window's end; its groups go once one is `keep`
behind it. The greatest time of a row that ever came is in the log, with the view's table. It never falls: whatever is
deleted later, a window closes once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from bridge.lake.records import Watermark
from bridge.load.views.algebra import CAME, LATEST, TypedView
from bridge.settings.sql.transform import quoted

_AHEAD = 86400
"""Seconds: a time that is further ahead of this machine's clock counts as this. It may be wrong, or of a plan."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The moments up to which windows have ended that are closed, or expired: microseconds since 1970, None for none.

    All are None of a view whose groups stay for ever.
    """

    typed: TypedView
    watermark: Watermark | None = None
    """After the commit."""
    closed_before: int | None = None
    expired_before: int | None = None
    """Also None if the view is filled anew, from all rows."""
    expired: int | None = None

    @classmethod
    def of(cls, typed: TypedView, before: Watermark | None, latest: int | None, *, anew: bool = False) -> Windows:
        """`before`: the watermark before the commit; `latest`: the greatest time among the rows that come."""
        window, most = typed.view.window, int((time.time() + _AHEAD) * 1e6)
        latest = None if latest is None else min(latest, most)
        latest = max((one for one in (latest, before.latest if before else None) if one is not None), default=None)
        if window is None or latest is None:
            return cls(typed, before)
        closed_before = before.closed if before else None
        ends = [one for one in (window.closed(latest), closed_before) if one is not None]
        expired_before = window.expired(before.latest) if before and not anew else None
        return cls(
            typed, Watermark(latest, max(ends, default=None)), closed_before, expired_before, window.expired(latest)
        )

    @property
    def closed(self) -> int | None:
        return self.watermark.closed if self.watermark and self.typed.view.closes else None

    @property
    def late(self) -> int | None:
        """The moment up to which windows have ended for which a row comes too late."""
        return self.closed_before if self.typed.view.closes else self.expired_before

    def ended(self, until: int | None) -> str:
        """The condition, for Spark, of groups whose window has ended by then."""
        window = self.typed.view.window
        if window is None or until is None:
            return "false"
        return f"unix_micros({quoted(window.key)}) <= {until - window.to_end}"

    def split(self, groups: pa.Table, until: int | None) -> tuple[pa.Table, pa.Table]:
        """The groups whose window has ended by then, and the others."""
        window = self.typed.view.window
        if window is None or until is None:
            return groups.slice(0, 0), groups
        ended = pc.less_equal(groups.column(window.key).cast(pa.int64()), until - window.to_end)
        return groups.filter(ended), groups.filter(pc.invert(ended))

    def range_of(self, moment: Literal["expired", "closed"]) -> tuple[int | None, int | None]:
        """The keys of groups that go, or close, by the commit: after the first of two moments, up to the second."""
        before, until = (
            (self.expired_before, self.expired) if moment == "expired" else (self.closed_before, self.closed)
        )
        to_end = self.typed.view.window.to_end if self.typed.view.window else 0
        return before if before is None else before - to_end, until if until is None else until - to_end

    def closing(self, groups: pa.Table) -> pa.Table:
        """The groups that close by the commit."""
        return self.split(self.split(groups, self.closed)[0], self.closed_before)[1]


def latest_of(typed: TypedView, partials: pa.Table) -> int | None:
    """The greatest time of a row that these partial groups count."""
    return pc.max(partials.column(LATEST)).as_py() if typed.view.window else None


def came(partials: pa.Table) -> int:
    """How many rows that came these partial groups count."""
    return pc.sum(partials.column(CAME)).as_py() or 0
