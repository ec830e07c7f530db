"""Which files of a Delta table have statistics that mislead readers: filters skip such a file with its rows.

Earlier versions of ours wrote such entries: bounds for some columns, but none for booleans, texts beyond 4 KiB and
infinite numbers; no null count for a column that is newer than the file; and -0.0 as the maximum of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any


def misleading(table: Any) -> list[str]:
    """The paths of the files, as the log of this `DeltaTable` has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    adds = pa.table(table.get_add_actions(flatten=False))
    if not {"null_count", "min", "max"} <= set(adds.schema.names) or not adds.num_rows:
        return []
    counted, wrong = dict(_leaves((), adds["null_count"])), []
    for side in ("min", "max"):
        bounded = pc.is_valid(adds[side])
        for path, values in _leaves((), adds[side]):
            nulls = counted[path]
            empty = pc.fill_null(pc.equal(nulls, adds["num_records"]), False)
            wrong.append(pc.and_(bounded, pc.and_not(pc.is_null(values), empty)))
            wrong.append(pc.and_(pc.is_valid(adds["null_count"]), pc.is_null(nulls)))
            if side == "max" and pa.types.is_floating(values.type):
                negative = pc.less(pc.divide(1.0, values), 0.0)
                wrong.append(pc.fill_null(pc.and_(pc.equal(values, 0.0), negative), False))
    names: list[str] = adds["path"].filter(reduce(pc.or_, wrong)).to_pylist() if wrong else []
    return names


def _leaves(path: tuple[str, ...], values: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the columns inside of structs, as the table has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_struct(values.type):
        yield path, values
        return
    for at, field in enumerate(values.type):
        yield from _leaves((*path, field.name), pc.struct_field(values, [at]))
