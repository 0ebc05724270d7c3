"""The ridge decoder: the paper's formula plus a linear correction that sees coded networks and all others."""

from dataclasses import dataclass

from coin.decoders.linear import Linear


@dataclass
class Ridge(Linear):
    """f̂_i = (f_c − Σ_{j≠i} β_j f_j) / β_i + W_i [f_c; f_j, j ≠ i; 1], and φ_c with `features`."""
