"""One type at a time: JSON Schema to Arrow, JSON values to columns. `bridge.schema` and `bridge.decode` stand on it."""
