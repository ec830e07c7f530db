"""The proof: one source, one harness, and every system that loads it, killed in the same way; then rows are counted.

```
source.py    the tap of all, and how it grows        faults.py     what strikes, and when
system.py    what the harness asks of a system       ours.py       singer-bridge, as a run and as a target
harness.py   start, strike, start again, count       pipes.py      targets behind a pipe, and Meltano
counting.py  rows lost, rows doubled                 others.py     DataSpoc Pipe and dlt; faucet.py faucet
measuring.py processor time and memory of a run      databases.py  those that read PostgreSQL
page.py      the table in docs/proof.md              programs/     what dlt and the SDK have their users write
```
`make proof` runs it; README.md says with which settings.
"""
