"""How far credit is from the truth: pure functions of two arrays of the same steps.

Every one returns None where it is undefined (no step with truth, nothing to rank), never NaN.
A credit that is constant where the truth is not carries no rank: it counts as 0, it is not skipped.
"""

from accredit.metrics.bias import Moments, moments
from accredit.metrics.calibration import EDGES, Bin, calibration
from accredit.metrics.contrasts import (
    ContrastLaw,
    OutcomeInformation,
    context_variances,
    contrast_law,
    fidelity,
    outcome_information,
)
from accredit.metrics.gradients import GradientQuality, gradient_quality, softmax_gradient
from accredit.metrics.influence import context_variance, mutual_information, plug_in_information
from accredit.metrics.learning import reached, regret
from accredit.metrics.measures import CRITICAL, MEASURES, Facts, Measure, measure
from accredit.metrics.places import auroc, first_error, pivot_distance, top_hit
from accredit.metrics.ranks import (
    across_alternatives,
    kendall_by_unit,
    kendall_within,
    pearson_within,
    spearman_within,
)
from accredit.metrics.sizes import affine_nmse, mse, nmse, scale_of, sign_accuracy
from accredit.metrics.structure import (
    core_gap,
    efficiency_residual,
    largest_excess,
    signal_coverage,
    telescoping_residual,
)

__all__ = [
    "CRITICAL",
    "EDGES",
    "MEASURES",
    "Bin",
    "ContrastLaw",
    "Facts",
    "GradientQuality",
    "Measure",
    "Moments",
    "OutcomeInformation",
    "across_alternatives",
    "affine_nmse",
    "auroc",
    "calibration",
    "context_variance",
    "context_variances",
    "contrast_law",
    "core_gap",
    "efficiency_residual",
    "fidelity",
    "first_error",
    "gradient_quality",
    "kendall_by_unit",
    "kendall_within",
    "largest_excess",
    "measure",
    "moments",
    "mse",
    "mutual_information",
    "nmse",
    "outcome_information",
    "pearson_within",
    "pivot_distance",
    "plug_in_information",
    "reached",
    "regret",
    "scale_of",
    "sign_accuracy",
    "signal_coverage",
    "softmax_gradient",
    "spearman_within",
    "telescoping_residual",
    "top_hit",
]
