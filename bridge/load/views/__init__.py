"""Views: tables that are kept as the GROUP BY of a stream, by the commit that changes the stream's rows.

Enters: a view of the settings (`bridge/settings/sql/view.py` reads it), and the columns of its stream's table. Leaves:
SQL for Spark, which adds and takes away rows, or computes a group of all its rows. Nothing here has a state: what a
view knows of its groups is in its table, in the visible columns and in hidden ones (`_view_...`), and so in the commit
log like any other table.

`algebra.py`: the hidden columns, and the SQL; read it first. `spark/view_types.py` lets Spark say what types the
columns have; `fit.py` says what of that is certain without Spark.
"""
