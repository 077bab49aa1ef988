"""The summary of a run: configurations, checks, failures with their seeds, refusals by reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from threading import Lock

from .outcome import FAILURES, FALSE_REFUSAL

MAX_FALSE_REFUSALS = 0.005  # of all configurations whose training the oracle can repeat


class Summary:
    """Counts outcomes and prints failures as they come."""

    def __init__(self):
        self.lock = Lock()
        self.configurations = Counter()
        self.checks = Counter()
        self.kinds = Counter()
        self.seeds = defaultdict(list)
        self.reasons = Counter()

    def add(self, task, seed, outcome):
        with self.lock:
            self.configurations[task] += 1
            self.checks += outcome.checks
            self.kinds += Counter({finding.kind for finding in outcome.findings})
            for finding in outcome.findings:
                if finding.kind in ("refusal", FALSE_REFUSAL):
                    self.reasons[finding.kind, reason(finding.detail)] += 1
                if finding.is_failure:
                    self.seeds[finding.kind].append(seed)
                    print(f"{finding}\n    {command(task, seed)}", flush=True)

    @property
    def failed(self):
        false = self.kinds[FALSE_REFUSAL] > MAX_FALSE_REFUSALS * max(1, self.checks["fidelity"])
        return false or any(self.kinds[kind] for kind in FAILURES)

    def show(self):
        count = ", ".join(f"{n} of {task}" for task, n in sorted(self.configurations.items()))
        print(f"\nconfigurations: {count or 'none'}; checks: {sum(self.checks.values())}")
        for check, n in sorted(self.checks.items()):
            print(f"    {n:7d}  {check}")
        for kind in (*FAILURES, FALSE_REFUSAL):
            seeds = " ".join(map(str, sorted(set(self.seeds[kind]))))
            print(f"{kind}: {self.kinds[kind]} configurations {seeds and '(seeds ' + seeds + ')'}")
        for kind in ("undecided", "oracle", "untrainable"):
            print(f"{kind}: {self.kinds[kind]} configurations")
        print("refusals by reason:")
        for (kind, text), n in self.reasons.most_common():
            print(f"    {n:7d}  {kind}: {text}")
        print("FAILED" if self.failed else "passed")


def command(task, seed, library=None):
    """Return the command that repeats a seed, of all libraries or of one."""
    more = "" if task == "models" else f" --{task}"
    if library is not None:
        more += f" --library {library}"
    return f"python -m tests.fuzz{more} --seed {seed}"


def reason(text):
    """Return a message without its numbers and names, to count it with others like it."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", text)
    text = re.sub(r"[-+]?\d[\d.,e+-]*", "#", text)
    return text[:160]
