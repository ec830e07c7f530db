"""How other engines read our tables: the statement, or the Python, for each engine and table format."""
