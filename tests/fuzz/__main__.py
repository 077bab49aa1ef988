"""python -m tests.fuzz --seed N"""
import sys, time, json
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from collections import Counter
from .draw import Draw
from .spaces import draw_configuration
from .checks import run

if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[2])
    library = sys.argv[3] if len(sys.argv) > 3 else None
    total = Counter()
    start = time.time()
    for seed in range(first, last):
        c = draw_configuration(Draw(seed), library)
        t = time.time()
        out = run(c)
        kinds = {f.kind for f in out.findings}
        for f in out.findings: total[f.kind, f.check] += 1
        for k, v in out.checks.items(): total["checked", k] += v
        if kinds - {"undecided"}:
            print(seed, f"{time.time()-t:.1f}s", json.dumps(c))
            for f in out.findings:
                if f.kind not in ("undecided",):
                    print("    ", f.kind, "|", f.check, "|", f.detail[:300])
            sys.stdout.flush()
    print(time.time() - start)
    for k, v in sorted(total.items()): print(k, v)
