"""The aggregates that a view may have, and the words for those that it may not have."""

AGGREGATES = {"count": 1, "count_if": 1, "sum": 1, "avg": 1, "min": 1, "max": 1, "min_by": 2, "max_by": 2}
AGGREGATES |= {"bool_and": 1, "bool_or": 1, "percentile": 2, "median": 1}
"""The aggregates that can be kept, with their number of arguments. A median is a percentile."""
OF_ALL_ROWS = frozenset({"count_distinct", "percentile"})
"""Those from which a row cannot be taken away: they are computed of all rows of a group. As `Aggregate.function`."""

AVAILABLE = "there are: " + ", ".join(sorted(AGGREGATES))
_SPREAD = "keep sum(x), sum(x * x) and count(x) of integers or decimals, and compute it in a query of the view"
INSTEAD = dict.fromkeys(("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"), _SPREAD)
INSTEAD |= {"approx_count_distinct": "count(DISTINCT x) is exact", "any_value": "write min(x), or max(x)"}
INSTEAD |= dict.fromkeys(("percentile_approx", "percentile_cont", "percentile_disc"), "write percentile(x, 0.5)")
INSTEAD |= dict.fromkeys(("collect_list", "collect_set", "array_agg"), "a list has no limit: ask the table by SQL")
INSTEAD |= dict.fromkeys(("first", "last"), "write min_by(x, at), or max_by(x, at)")
INSTEAD |= {"mode": "count(*) in a view GROUP BY k, x, and max_by(x, n) in a view of it"}
"""By aggregates whose result depends on the order of rows, or is not exact: how to write it instead."""
