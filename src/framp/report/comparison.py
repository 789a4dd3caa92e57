"""Several methods on the same seeds: what each reaches, and how they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from framp.report.record import Record
from framp.report.statistics import Difference, Estimate, estimate, paired_difference

METRIC_TEXTS = {
    "final": "Accuracy after the last round",
    "last10": "Mean accuracy of the last ten evaluations",
    "best": "Accuracy at the best evaluation",
}


@dataclass(frozen=True)
class Comparison:
    """The finished runs of some recipes, each on every seed; the first recipe is what the others are held against."""

    name: str
    recipes: Sequence[str]
    seeds: Sequence[int]
    records: dict[tuple[str, int], Record]
    metric: str = "final"

    @property
    def metric_text(self) -> str:
        """What the numbers are."""
        return METRIC_TEXTS[self.metric]

    @property
    def measures(self) -> list[str]:
        """The keys of all accuracies that every run has."""
        found = [record.measures(self.metric) for record in self.records.values()]
        return [key for key in found[0] if all(key in values for values in found)]

    def values(self, recipe: str, measure: str) -> list[float]:
        """Return one accuracy for each seed, in the order of the seeds."""
        return [self.records[recipe, seed].measures(self.metric)[measure] for seed in self.seeds]

    @property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """For each recipe and measure, the mean over the seeds."""
        return {
            recipe: {measure: estimate(self.values(recipe, measure)) for measure in self.measures}
            for recipe in self.recipes
        }

    @property
    def differences(self) -> dict[str, dict[str, Difference]]:
        """For each recipe but the first and each measure, the difference from the first, paired by seed."""
        first = self.recipes[0]
        return {
            recipe: {
                measure: paired_difference(self.values(recipe, measure), self.values(first, measure))
                for measure in self.measures
            }
            for recipe in self.recipes[1:]
        }

    @property
    def seeds_text(self) -> str:
        """Say which seeds stand behind the numbers."""
        if len(self.seeds) == 1:
            return f"one seed ({self.seeds[0]}): no confidence interval"
        return f"mean ± 95 % confidence interval (Student's t) over {len(self.seeds)} seeds"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `summary.json`."""
        some = next(iter(self.records.values()))
        return {
            "schema": 1,
            "name": self.name,
            "metric": self.metric,
            "reference": self.recipes[0],
            "seeds": list(self.seeds),
            "confidence": 0.95,
            "partition_sha256": some.results["partition_sha256"],
            "recipes": {
                recipe: {measure: one.to_dict() for measure, one in found.items()}
                for recipe, found in self.estimates.items()
            },
            "differences": {
                recipe: {measure: one.to_dict() for measure, one in found.items()}
                for recipe, found in self.differences.items()
            },
            "runs": [
                {"recipe": recipe, "seed": seed, "folder": record.folder.name}
                for (recipe, seed), record in self.records.items()
            ],
        }
