import sys, time
from pathlib import Path
from .schedule import drawn, play
first, count = int(sys.argv[1]), int(sys.argv[2])
home = Path("/dev/shm/sched-%d" % first)
began = time.time()
bad = {}
for seed in range(first, first + count):
    out = play(drawn(seed), home)
    if out.broken:
        bad.setdefault(out.broken[:90], []).append(seed)
        if count == 1: print(out)
print(count / (time.time() - began), "a second")
for k, v in sorted(bad.items(), key=lambda kv: -len(kv[1])): print(len(v), v[:5], k)
