"""The decoder that asks nobody but the coded network: one call, whatever number of experts is missing."""

from dataclasses import dataclass

from coin.decoders.linear import Linear


@dataclass
class Alone(Linear):
    """f̂_i = f_c + W_i [f_c; φ_c; 1]."""

    features: bool = True
    alone = True
