"""Decoding: an expert that does not answer, from the coded network and the others."""

from collections.abc import Mapping, Sequence

from torch import Tensor


def decode(coded: Tensor, others: Mapping[int, Tensor], beta: Sequence[float], missing: int) -> Tensor:
    """f̂_i(x) = (f_c(x) − Σ_{j≠i} β_j f_j(x)) / β_i for i = `missing`, from the outputs of the other experts."""
    if not 0 <= missing < len(beta):
        raise ValueError(f"missing={missing}: there are experts 0 to {len(beta) - 1}")
    wanted = set(range(len(beta))) - {missing}
    if set(others) != wanted:
        raise ValueError(f"decoding expert {missing} needs the outputs of {sorted(wanted)}, got {sorted(others)}")
    rest = coded
    for j in sorted(others):
        rest = rest - beta[j] * others[j]
    return rest / beta[missing]
