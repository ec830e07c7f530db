"""Is the lake what the source is? The source is extracted once more, into a lake of its own, and compared by key.

```
sweep.py ─ a run of the tap, whole, into a lake that is deleted afterwards ─┐
                                                                            ├─ compare.py ─▶ a proof for each table
the lake at the commit from before ─────────────────────────────────────────┘
```
Enters: a pipeline. Leaves: proofs, in `.bridge/<pipeline>/reconciled.json`. Tables and STATE stay as they are, and no
lease is taken; but for `--apply`, which holds the pipeline, has `load/maintain/corrections.py` make one commit, and
compares once more. A kill leaves what that of a run leaves. Read `reconcile.py` first.
"""
