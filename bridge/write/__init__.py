"""How files make a table, one file a format."""
