"""The generator: a row of coding weights β for each of the N_c coded networks.

Every row is positive and sums to one, so that each coded network is one of the paper's; any N of the N + N_c answers
recover the rest as long as the rows tell the missing experts apart. How well they do is the noise amplification of a
pattern, those experts missing and these coded networks answering: by how much the error of a coded network grows in the
worst of the recovered answers (for one coded network 1/β_i).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

Generator = tuple[tuple[float, ...], ...]
Pattern = tuple[tuple[int, ...], tuple[int, ...]]  # coded networks that answer, experts that are missing

LIMIT = 1e4  # of the amplification: logits are not known to more digits
MOST_PATTERNS = 20_000  # more are not looked at one by one


def check_beta(beta: Sequence[float] | None, experts: int) -> tuple[float, ...]:
    """β, equal weights by default; positive, finite, summing to one."""
    if beta is None:
        return (1 / experts,) * experts
    return checked_row("beta", beta, experts)


def check_generator(
    generator: Sequence[Sequence[float]] | None, coded: int | None, beta: Sequence[float] | None, experts: int
) -> Generator:
    """The rows that are meant: those given, or β for one coded network, or the best there is for several."""
    if coded is not None and (not isinstance(coded, int) or isinstance(coded, bool) or coded < 1):
        raise ValueError(f"coded={coded}: must be the number of coded networks, at least 1")
    if generator is None:
        count = coded or 1
        check_count(count, experts)
        if count == 1:
            return (check_beta(beta, experts),)
        if beta is not None:
            raise ValueError(f"beta is the row of one coded network, and coded={coded}: give generator=[[…],…] instead")
        return best_generator(count, experts)
    if beta is not None:
        raise ValueError("beta and generator are both given: beta is the one row of the generator; give one of the two")
    if isinstance(generator, str) or not isinstance(generator, Iterable) or not len(generator):
        raise ValueError(
            f"generator={generator}: must be a list of rows, one a coded network, of {experts} weights each"
        )
    rows = tuple(checked_row(f"generator[{r}]", row, experts) for r, row in enumerate(generator))
    if coded is not None and coded != len(rows):
        raise ValueError(f"coded={coded}, but generator has {len(rows)} rows; give one row a coded network")
    check_count(len(rows), experts)
    check_patterns(rows)
    return rows


def check_count(coded: int, experts: int) -> None:
    if coded > 1 and coded >= experts:
        raise ValueError(f"coded={coded}: must be less than the {experts} experts; as many copies would do better")


def checked_row(name: str, row: Sequence[float], experts: int) -> tuple[float, ...]:
    equal = [round(1 / experts, 6)] * experts
    if isinstance(row, str) or not isinstance(row, Iterable):
        raise ValueError(f"{name}={row}: must be a list, one weight an expert; equal weights are {equal}")
    values = tuple(float(b) for b in row)
    if len(values) != experts:
        raise ValueError(
            f"{name}={list(values)}: {len(values)} weights for {experts} experts; give one weight an expert"
        )
    if not all(b > 0 and math.isfinite(b) for b in values):
        raise ValueError(f"{name}={list(values)}: every weight must be positive; equal weights are {equal}")
    if abs(sum(values) - 1) > 1e-6:
        raise ValueError(f"{name}={list(values)}: the weights sum to {sum(values):g}, they must sum to 1")
    return values


def patterns(coded: int, experts: int) -> Iterator[Pattern]:
    """All that can be recovered: no more experts missing than coded networks answer."""
    for answering in range(1, coded + 1):
        for rows in itertools.combinations(range(coded), answering):
            for missing in range(1, min(answering, experts) + 1):
                for columns in itertools.combinations(range(experts), missing):
                    yield rows, columns


def recovery(generator: Sequence[Sequence[float]], coded: Sequence[int], missing: Sequence[int]) -> list[list[float]]:
    """(missing, coded): what makes the missing answers of what the coded networks say beside the experts that answered.

    Least squares; as many equations as unknowns, or more.
    """
    found: list[list[float]] = np.linalg.pinv(part_of(generator, coded, missing)).tolist()
    return found


def amplification(generator: Sequence[Sequence[float]], coded: Sequence[int], missing: Sequence[int]) -> float:
    """By how much the coded networks' error grows in the worst of the missing answers; infinite if that is none."""
    if len(coded) < len(missing) or np.linalg.matrix_rank(part_of(generator, coded, missing)) < len(missing):
        return math.inf
    return max(math.hypot(*row) for row in recovery(generator, coded, missing))


def part_of(generator: Sequence[Sequence[float]], coded: Sequence[int], missing: Sequence[int]) -> np.ndarray:
    return np.array([[generator[r][i] for i in missing] for r in coded])


def check_patterns(generator: Generator) -> None:
    """Refuses a generator that some pattern cannot be recovered with, naming it."""
    for rows, columns in itertools.islice(patterns(len(generator), len(generator[0])), MOST_PATTERNS):
        found = amplification(generator, rows, columns)
        if not found <= LIMIT:
            raise ValueError(
                f"generator: with experts {named(columns)} missing, coded networks {named(rows)} do not tell them "
                f"apart: an error grows {found:.3g} times, at most {LIMIT:g} are allowed; make the rows less alike, or "
                "leave generator out for the best there is"
            )


def named(numbers: Sequence[int]) -> str:
    """From 1, as people count."""
    return ", ".join(str(number + 1) for number in numbers)


def worst(generator: Sequence[Sequence[float]]) -> float:
    """The largest amplification of any pattern. No row has all its weights above 1/N, so it is never below N."""
    found = itertools.islice(patterns(len(generator), len(generator[0])), MOST_PATTERNS)
    return max(amplification(generator, rows, columns) for rows, columns in found)


@lru_cache
def best_generator(coded: int, experts: int, starts: int = 6, steps: int = 600) -> Generator:
    """The generator with the least worst amplification that a descent finds, from seeded starts; to four digits.

    Descends on a soft maximum over all patterns, ever harder, in the logarithms of the weights. Columns are in order,
    so that what is found does not depend on the start's numbering.
    """
    chosen = list(itertools.islice(patterns(coded, experts), MOST_PATTERNS))
    found = [descended(torch.Generator().manual_seed(start), coded, experts, chosen, steps) for start in range(starts)]
    return min(found, key=worst)


def descended(random: torch.Generator, coded: int, experts: int, chosen: list[Pattern], steps: int) -> Generator:
    free = torch.randn(coded, experts, generator=random, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.Adam([free], lr=0.1)
    sizes: dict[tuple[int, int], list[Pattern]] = {}
    for rows, columns in chosen:
        sizes.setdefault((len(rows), len(columns)), []).append((rows, columns))
    index = [tuple(torch.tensor(part) for part in zip(*group, strict=True)) for group in sizes.values()]
    for step in range(steps):
        optimiser.zero_grad()
        weights = free.softmax(1)
        parts = [weights[rows[:, :, None], columns[:, None, :]] for rows, columns in index]
        logs = torch.cat([log_amplifications(part) for part in parts])
        hardness = 5 + 45 * step / steps
        optimiser.param_groups[0]["lr"] = 0.1 * (1 - step / steps)
        (torch.logsumexp(hardness * logs, 0) / hardness).backward()
        optimiser.step()
    ordered = sorted(zip(*free.detach().softmax(1).tolist(), strict=True), reverse=True)  # by columns
    rounded = [[round(float(b), 4) for b in row] for row in zip(*ordered, strict=True)]
    return tuple(tuple(b / sum(row) for b in row) for row in sorted(rounded, reverse=True))


def log_amplifications(parts: Tensor) -> Tensor:
    """Of patterns (many, coded, missing), each recovered answer's, through the inverse of the small Gram matrix."""
    gram = parts.transpose(1, 2) @ parts
    gram = gram + 1e-9 * torch.eye(gram.shape[1], dtype=gram.dtype)
    inverse: Tensor = torch.linalg.inv(gram)
    return inverse.diagonal(dim1=1, dim2=2).log().flatten() / 2
