"""Decoding: experts that do not answer, from coded networks and the others."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from coin.generator import LIMIT, amplification, named, recovery


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


def recover(
    coded: Mapping[int, Tensor], others: Mapping[int, Tensor], generator: Sequence[Sequence[float]], missing: int
) -> Tensor:
    """f̂ of expert `missing` from whatever has arrived: outputs of coded networks and of experts, by number.

    Least squares over all experts that are missing; for one coded network and one missing expert, `decode`.
    """
    return weighed(coded, others, weights_for(generator, sorted(coded), sorted(others), missing))


Weights = tuple[dict[int, float], dict[int, float]]  # of coded networks' and of experts' outputs


def weights_for(
    generator: Sequence[Sequence[float]], coded: Sequence[int], others: Sequence[int], missing: int
) -> Weights:
    """What `recover` multiplies each answer with, by who answered; refuses what cannot be recovered."""
    absent = [i for i in range(len(generator[0])) if i not in others]
    if missing not in absent:
        raise ValueError(
            f"missing={missing}: it must be one of the experts 0 to {len(generator[0]) - 1} that did not answer"
        )
    if len(coded) < len(absent):
        raise ValueError(
            f"{len(absent)} experts are missing and {len(coded)} coded networks answered: no more can be recovered; "
            f"decoding expert {missing} needs the outputs of {len(absent) - len(coded)} more"
        )
    grown = amplification(generator, coded, absent)
    if not grown <= LIMIT:
        raise ValueError(
            f"coded networks {named(coded)} do not tell the missing experts {named(absent)} apart: an error would grow "
            f"{grown:.3g} times"
        )
    row = recovery(generator, coded, absent)[absent.index(missing)]
    parts = dict(zip(coded, row, strict=True))
    return parts, {j: -sum(part * generator[r][j] for r, part in parts.items()) for j in others}


def weighed(coded: Mapping[int, Tensor], others: Mapping[int, Tensor], weights: Weights) -> Tensor:
    """Σ of answers times weights, in single precision or better, rounded once."""
    first = next(iter(coded.values()))
    total = torch.zeros_like(first, dtype=torch.promote_types(first.dtype, torch.float32))
    for answers, factors in zip((coded, others), weights, strict=True):
        for number, factor in factors.items():
            if answers[number].shape != first.shape:
                raise ValueError(
                    f"expert {number} answered with {tuple(answers[number].shape)}, a coded network with "
                    f"{tuple(first.shape)}; all must answer the same samples with the same outputs"
                )
            total.add_(answers[number].to(total.dtype), alpha=factor)
    return total.to(first.dtype)
