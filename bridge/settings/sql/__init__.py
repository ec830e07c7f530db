"""The statements in the settings: how their form is checked, and taken apart, without Spark.

```
tokens.py     the words of a statement, in their places
transform.py  `transform`: a row becomes a row; and what is checked of every statement
lookup.py     its JOINs, by which rows are looked up in other tables
view.py       `views`: keys and aggregates
```
"""
