"""What a configuration showed: findings, and counts of the checks that were decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

# Findings of these kinds make a run fail; false refusals do so if there are many.
FAILURES = ("wrong", "raw exception", "warning", "death", "hang")
FALSE_REFUSAL = "false refusal"


@dataclass(frozen=True)
class Finding:
    """Something that a configuration showed.

    ``kind``    one of FAILURES, FALSE_REFUSAL, "refusal", "undecided" (the oracle is not certain enough), "oracle" (it
                cannot repeat this model), "untrainable" (the library refuses)
    ``check``   the question that was asked
    ``detail``  numbers, or the message
    """

    kind: str
    check: str
    detail: str = ""

    @property
    def is_failure(self):
        return self.kind in (*FAILURES, FALSE_REFUSAL)

    def __str__(self):
        return f"{self.kind}: {self.check}: {self.detail}"


@dataclass
class Outcome:
    """All findings of a configuration, and how many checks were decided."""

    configuration: dict
    findings: list[Finding] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)

    def note(self, kind, check, detail=""):
        self.findings.append(Finding(kind, check, " ".join(str(detail).split())))

    @property
    def failures(self):
        return [finding for finding in self.findings if finding.is_failure]

    def to_json(self):
        findings = [asdict(finding) for finding in self.findings]
        return {
            "configuration": self.configuration,
            "findings": findings,
            "checks": dict(self.checks),
        }


def outcome_from(document):
    """Return the outcome that `Outcome.to_json` described."""
    findings = [Finding(**finding) for finding in document["findings"]]
    return Outcome(document["configuration"], findings, Counter(document["checks"]))
