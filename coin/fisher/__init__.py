"""The diagonal Fisher of a network's outputs: exact, fast, in memory that does not grow with the samples."""

from coin.fisher.diagonal import DiagonalFisher, diagonal_fisher
from coin.fisher.directions import Directions, Exact, Likelihood, Probes

__all__ = ["DiagonalFisher", "Directions", "Exact", "Likelihood", "Probes", "diagonal_fisher"]
