"""Decoding: an expert that does not answer, from the coded network and the others."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def decode(coded: Tensor, others: Mapping[int, Tensor], beta: Sequence[float], missing: int) -> Tensor:
    """f̂_i(x) = (f_c(x) − Σ_{j≠i} β_j f_j(x)) / β_i for i = `missing`, from the outputs of the other experts.

    In single precision or better, rounded once to that of the outputs: what is left of a difference is divided by β_i.
    """
    if not 0 <= missing < len(beta):
        raise ValueError(f"missing={missing}: there are experts 0 to {len(beta) - 1}")
    wanted = set(range(len(beta))) - {missing}
    if set(others) != wanted:
        raise ValueError(f"decoding expert {missing} needs the outputs of {sorted(wanted)}, got {sorted(others)}")
    misfits = [j for j in sorted(others) if others[j].shape != coded.shape]
    if misfits:
        raise ValueError(
            f"expert {misfits[0]} answered with {tuple(others[misfits[0]].shape)}, the coded network with "
            f"{tuple(coded.shape)}; all must answer the same samples with the same outputs"
        )
    rest = coded.to(torch.promote_types(coded.dtype, torch.float32))
    for j in sorted(others):
        rest = rest - beta[j] * others[j].to(rest.dtype)
    return (rest / beta[missing]).to(coded.dtype)
