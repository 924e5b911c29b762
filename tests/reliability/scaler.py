"""What KEDA and Kubernetes make of a ScaledObject: how many flushers there should be. Pure."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

FILE: Final = Path(__file__).parents[2] / "deploy" / "kubernetes" / "overlays" / "gke" / "autoscaling.yaml"
TOLERANCE: Final = 0.1
"""Kubernetes leaves the number as it is if the metric is so near to its target."""
STEP: Final = 4
"""At one look, it doubles the number or adds so many, whichever is more."""


@dataclass(frozen=True)
class Rule:
    """Times in seconds."""

    query: str
    threshold: float
    """Of each flusher, on average."""
    least: int
    most: int
    every: float
    failures: int
    """Queries in a row without an answer; after one more, there are `fallback` flushers."""
    fallback: int
    patience: float
    """For so long all looks must have asked for fewer, before there are fewer."""


def rule(text: str) -> Rule:
    """Of the ScaledObject of the flushers. A query without an answer must be a failure."""
    (spec,) = [one["spec"] for one in yaml.safe_load_all(text) if one["kind"] == "ScaledObject"]
    (trigger,) = spec["triggers"]
    assert (trigger["metricType"], trigger["metadata"]["ignoreNullValues"]) == ("AverageValue", "false")
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    return Rule(
        query=trigger["metadata"]["query"],
        threshold=float(trigger["metadata"]["threshold"]),
        least=spec["minReplicaCount"],
        most=spec["maxReplicaCount"],
        every=spec["pollingInterval"],
        failures=spec["fallback"]["failureThreshold"],
        fallback=spec["fallback"]["replicas"],
        patience=down["stabilizationWindowSeconds"],
    )


@dataclass
class Scaler:
    """Remembers what it wanted before."""

    rule: Rule
    _failed: int = 0
    _wanted: list[tuple[float, int]] = field(default_factory=list)

    def wants(self, value: float | None, running: int, now: float) -> int:
        """`value` is what the query answered, None for no answer."""
        rule = self.rule
        self._failed = self._failed + 1 if value is None else 0
        if value is None:
            if self._failed <= rule.failures:
                return running
            value = math.floor(rule.threshold) * rule.fallback  # some versions of KEDA cut off the decimals
        if running == 0:  # Kubernetes does not scale from 0; KEDA itself does
            return rule.fallback if self._failed else rule.least
        near = abs(value / (rule.threshold * running) - 1) <= TOLERANCE
        wanted = running if near else math.ceil(value / rule.threshold)
        wanted = max(rule.least, min(wanted, rule.most, max(2 * running, running + STEP)))
        self._wanted = [one for one in self._wanted if one[0] > now - rule.patience] + [(now, wanted)]
        return max(wanted, min(running, max(number for _, number in self._wanted)))
