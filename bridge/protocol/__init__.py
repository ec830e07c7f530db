"""The wire and its types: messages of a tap, JSON Schema as columns, RECORD lines as Arrow.

Enters: bytes of a tap, a catalog, a SCHEMA. Leaves: messages, columns, Arrow tables. No file and no connection is
opened here.

```
singer/   messages, catalog, selection, what a STATE says; read messages.py first
schema/   JSON Schema to columns, and how columns change
decode/   JSON lines to Arrow: one row or one reject for each line
mask/     RECORD lines and SCHEMAs with values masked
```
"""

DOORS = """
decode.casting decode.changed decode.coerce decode.decoder decode.exact decode.instants
decode.arrow.pieces decode.key_values decode.native decode.validate mask.masks schema.declared schema.json_schema
schema.merging schema.table_schema schema.valid schema.widening singer.catalog singer.catalog_merge singer.messages
singer.moves singer.order singer.replication singer.selection singer.state singer.state_edits
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
