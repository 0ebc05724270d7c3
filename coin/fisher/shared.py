"""Parameters that are worked on once for all samples before these meet them.

A position table is looked up once and added to every sample, a weight is normalised once and convolved with all of
them. Autograd adds up over the samples where what was made of the parameter meets them. So the gradients of single
samples are read off there, by the rules of `coin.fisher.rules`, and pulled back to the parameter, many samples at a
time, through the little that lies in between. Uses of several kinds, as of an embedding that is the last layer too,
are added up on the way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from coin.fisher.accumulators import Accumulator
from coin.fisher.graph import Node, Use
from coin.fisher.layout import Layout
from coin.fisher.products import BLOCK
from coin.fisher.rules import Elementwise, Product, Rule, rule_for

OfSamples = Callable[[slice | list[int]], Tensor]  # gradients of these samples, which come first


def shared_rules(uses: Sequence[Use]) -> list[Rule] | None:
    """The rules of uses of what is made of a parameter, of whatever kinds; None unless all are known."""
    rules = [rule_for(use, torch.empty(use.made_shape, device="meta")) for use in uses]
    known = [rule for rule in rules if rule is not None]
    return known if known and len(known) == len(rules) else None


@dataclass
class Rows:
    """A lookup that is all that first happens to a parameter: only the rows it read have gradients."""

    node: Node
    indices: Tensor
    padding: int = -1

    @classmethod
    def read_by(cls, node: Node) -> "Rows | None":
        if node.name() == "EmbeddingBackward0" and not (node._saved_scale_grad_by_freq or node._saved_sparse):
            return cls(node, node._saved_indices, node._saved_padding_idx)
        if node.name() == "IndexBackward0" and len(node._saved_indices) == 1:
            indices = node._saved_indices[0]
            if indices.dtype not in (torch.bool, torch.uint8) and bool((indices >= 0).all()):
                return cls(node, indices)
        return None

    def summed(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows were read, and their gradients, from those of what was read (samples, *indices, …)."""
        rows, places = torch.unique(self.indices, return_inverse=True)
        flat = gradients.flatten(1, self.indices.ndim)
        sums = flat.new_zeros(len(flat), len(rows), *flat.shape[2:]).index_add_(1, places.flatten(), flat)
        return rows, sums.mul_((rows != self.padding).view(-1, *[1] * (sums.ndim - 2)))


class Shared(Accumulator):
    """Adds up the gradients of all uses, sample by sample, before it squares them."""

    def __init__(self, uses: Sequence[Use], layouts: Sequence[Layout], samples: int, total: Tensor):
        rules = shared_rules(uses)
        assert rules is not None, "the plan is for this graph"
        super().__init__(rules, layouts, samples, total)
        self.uses = uses
        self.inputs: list[Tensor | None] = [None] * len(uses)  # of products
        self.table = Rows.read_by(uses[0].first) if len({use.first for use in uses}) == 1 else None
        self.root = self.table.node if self.table else uses[0].leaf
        self.squares: Tensor | None = None  # of the parameter, or of the rows that were read
        self.rows = torch.empty(0)

    def add(self, gradients: Sequence[Tensor], directions: int) -> None:
        made = [self.made(at, gradient.detach()) for at, gradient in enumerate(gradients)]
        step = max(1, BLOCK // self.total.numel())
        for start in range(0, self.samples, step):
            own = self.pulled([of(slice(start, start + step)) for of in made])
            squares = own.square_().sum(0)
            self.squares = squares if self.squares is None else self.squares.add_(squares)
        if self.watch is not None:
            # pulled back at once: when witnesses are compared, hooks lie in wait at the parameters
            self.keep(self.watch.weigh(self.pulled([of(self.watch.samples) for of in made])))

    def made(self, at: int, gradient: Tensor) -> OfSamples:
        """Gradients of what was made of the parameter, from that of the result of one use."""
        rule, split, shape = self.rules[at], self.split(self.layouts[at]), self.uses[at].made_shape
        dtype = self.total.dtype
        if isinstance(rule, Product):
            if self.inputs[at] is None:
                self.inputs[at] = rule.inputs(split).detach().to(dtype)
            inputs, signal = self.inputs[at], rule.signal(gradient, split).to(dtype)
            assert inputs is not None

            def products(chosen: slice | list[int]) -> Tensor:
                found = torch.einsum("ntgc,ntgo->ngco", inputs[chosen], signal[chosen])
                return torch.stack([rule.to_param(product) for product in found])

            return products
        if isinstance(rule, Elementwise):
            terms = rule.terms(gradient, split).to(dtype)
            sums = (terms.sum(rule.summed) if rule.summed else terms).reshape(-1, *shape)
            return lambda chosen: sums[chosen]
        indices, rows = split(rule.indices).flatten(1), split(gradient).flatten(1, -2).to(dtype)

        def lookups(chosen: slice | list[int]) -> Tensor:
            read, values = indices[chosen], rows[chosen]
            values = values.masked_fill((read == rule.padding).unsqueeze(2), 0)
            found = values.new_zeros(len(read), *shape)
            return found.scatter_add_(1, read.unsqueeze(2).expand_as(values), values)

        return lookups

    def pulled(self, made: Sequence[Tensor]) -> Tensor:
        """(samples, parameter or rows of it): the sum over the uses."""
        total = sum(self.pull(use, gradients) for use, gradients in zip(self.uses, made, strict=True))
        assert isinstance(total, Tensor)
        if self.table is not None:
            self.rows, total = self.table.summed(total)
        return total

    def pull(self, use: Use, gradients: Tensor) -> Tensor:
        assert use.made is not None
        if use.made.node is self.root:
            return gradients
        root, like = GradientEdge(self.root, 0), use.made.node._input_metadata[use.made.output_nr]
        rounded = gradients.to(like.dtype)
        try:
            (found,) = torch.autograd.grad([use.made], [root], [rounded], retain_graph=True, is_grads_batched=True)
        except RuntimeError:  # an operation that knows no batches of gradients
            one_by_one = [torch.autograd.grad([use.made], [root], [row], retain_graph=True)[0] for row in rounded]
            found = torch.stack(one_by_one)
        return found.to(gradients.dtype)

    def finish(self) -> None:
        assert self.squares is not None, "add() comes first"
        if self.table is not None:
            self.total.index_add_(0, self.rows, self.squares)
        else:
            self.total += self.squares

    def witnessed(self, witness: int) -> tuple[Tensor, float]:
        assert self.watched is not None, "add() comes first"
        gradient = self.watched[witness].clone()
        if self.table is not None:
            gradient = torch.zeros_like(self.total).index_add_(0, self.rows, gradient)
        return gradient, float(gradient.norm())
