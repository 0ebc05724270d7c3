"""COIN: erasure coded neural network inference.

the paper        here              what it is
θ_0              base              the foundation model all experts were fine-tuned from
θ_i, f_i         experts, params   the N experts, and their trained parameters
β_i              beta              coding weights: positive, summing to one
θ_c, f_c         coded             the coded network, f_c ≈ Σ β_i f_i
x_1 … x_P        batches, samples  the P samples a code may look at
F_i              fishers           diagonal of (1/P) Σ_l J_i(x_l)ᵀ J_i(x_l), J_i the Jacobian of the K outputs
λ                damping           added to the Fishers
f̂_i              decoded           expert i's outputs, decoded from f_c and the others
L̂                coding_loss       how far f_c is from Σ β_i f_i on the samples
NDA              nda               accuracy of f̂_i over accuracy of f_i, in percent
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from coin import parameters
from coin.codes import Code, Coin
from coin.decoders import Analytic, Decoder, Fitted
from coin.decoding import decode
from coin.generator import check_beta
from coin.problem.coding import Coding, as_batches
from coin.problem.features import WithFeatures
from coin.problem.statistics import Statistics
from coin.problem.tuning import Tuner

__all__ = ["WithFeatures", "decode", "encode", "fit_decoder", "load"]

if TYPE_CHECKING:
    from coin.lab.coded import Coded

DAMPING = 1e-2  # asked for by identity: whoever gives a damping, this one or another, has said something


def encode(
    experts: Sequence[nn.Module],
    batches: Iterable[Any],
    beta: Sequence[float] | None = None,
    damping: float = DAMPING,
    code: Code | None = None,
    base: nn.Module | None = None,
    decoder: Decoder | None = None,
    batch_statistics: Statistics = "equal",
) -> nn.Module:
    """The coded network of any experts of one architecture, from an iterable of input batches: tensors, tuples that
    begin with one, or mappings that are passed as keywords.

    β defaults to equal weights and the code to COIN with this damping. Another `code` brings its own hyperparameters
    and has the open ones chosen on the batches, for this `decoder` (by default the paper's formula), by how little the
    decoded class probabilities differ from the experts'. Codes that scale or train need `base`.
    Experts that trained BatchNorm's statistics differ in them: `batch_statistics="average"` weighs them by β, "samples"
    estimates those of the coded network on the batches.
    """
    experts = [parameters.copy_of(expert) for expert in experts]
    if not experts:
        raise ValueError("there are no experts to code; pass at least one network")
    if code is not None and damping is not DAMPING:
        raise ValueError(
            f"damping={damping} belongs to the default code, and code={type(code).__name__} brings its own "
            f"hyperparameters: give one of the two, such as code=Coin({damping})"
        )
    settings: dict[str, Any] = {"base": base, "decoder": decoder or Analytic(), "batch_statistics": batch_statistics}
    coding = Coding(experts, check_beta(beta, len(experts)), as_batches(batches), **settings)
    code, tuner = code or Coin(damping), Tuner("divergence")
    return coding.network(tuner.tune(code, coding).params[0])


def fit_decoder(
    decoder: Decoder,
    coded: nn.Module,
    experts: Sequence[nn.Module],
    batches: Iterable[Any],
    beta: Sequence[float] | None = None,
) -> Fitted:
    """A decoder fitted, without labels, on what the coded network and the experts answer to these batches.

    One that wants features takes the answers of `coin.WithFeatures(coded)` for those of the coded network.
    """
    experts = [parameters.copy_of(expert) for expert in experts]
    coding = Coding(experts, beta, as_batches(batches), decoder=decoder)  # type: ignore[arg-type]
    return coding.fitted([parameters.copy_of(coded)])


def load(folder: str | Path) -> "Coded":
    """What an encode run left in its folder: the coded network, its decoder, the experts' names and β."""
    from coin.lab.coded import load  # Lightning and all: not for those who only encode

    return load(folder)
