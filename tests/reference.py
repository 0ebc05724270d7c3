"""Slow, obvious versions of everything fast, to compare with in float64."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from coin.batch import Batch


def diagonal_fisher(network: nn.Module, batches: Iterable) -> dict[str, Tensor]:
    """One sample, one output, one backward pass at a time."""
    params = {name: p for name, p in network.named_parameters() if p.requires_grad}
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    samples = 0
    for batch in batches:
        for sample in Batch.of(batch).parts(1):
            samples += 1
            for output in sample.ask(network).flatten():
                gradients = torch.autograd.grad(output, list(params.values()), retain_graph=True, allow_unused=True)
                for total, gradient in zip(sums.values(), gradients, strict=True):
                    if gradient is not None:
                        total += gradient**2
    return {name: total / samples for name, total in sums.items()}


def fisher_average(params, fishers, beta, damping) -> dict[str, Tensor]:
    """θ_c = (Σ β̄_i (F_i + λI))⁻¹ Σ β̄_i (F_i + λI) θ_i, with full diagonal matrices, one tensor at a time."""
    bars = [b * sum(beta) for b in beta]
    coded = {}
    for name in params[0]:
        total = sum(
            b * (torch.diag(f[name].flatten()) + damping * torch.eye(f[name].numel(), dtype=f[name].dtype))
            for b, f in zip(bars, fishers, strict=True)
        )
        right = sum(
            b
            * (torch.diag(f[name].flatten()) + damping * torch.eye(f[name].numel(), dtype=f[name].dtype))
            @ p[name].flatten()
            for b, f, p in zip(bars, fishers, params, strict=True)
        )
        coded[name] = torch.linalg.solve(total, right).view(params[0][name].shape)
    return coded


class Attention(nn.Module):
    """Self-attention with its projections as layers, by torch's kernel; looks at others by torch's own module."""

    def __init__(self, attention: nn.MultiheadAttention):
        super().__init__()
        width = attention.embed_dim
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), attention.out_proj
        self.in_proj.weight, self.in_proj.bias = attention.in_proj_weight, attention.in_proj_bias
        self.heads, self.batch_first, self.torchs = attention.num_heads, attention.batch_first, (attention,)

    def forward(self, query, key, value, **settings):
        if query is not key:
            return self.torchs[0](query, key, value, **settings)
        x = query if self.batch_first else query.transpose(0, 1)
        made = self.in_proj(query)
        made = made if self.batch_first else made.transpose(0, 1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in made.chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return self.out_proj(y if self.batch_first else y.transpose(0, 1)), None


def with_open_attention(network: nn.Module) -> nn.Module:
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(module, name, Attention(child))
    return network


@torch.no_grad()
def match_layers(network, inputs, wanted, strength, steps=None) -> None:
    """One layer a pass, each by least squares with a row more for every number that shall not move. With `steps`, of
    the first samples and chosen positions alone. Of a LayerNorm, one channel after the other; of a batch with an
    attention_mask, rows that are no padding."""
    modules = dict(network.named_modules())
    batch = Batch.of(inputs)
    for name, target in wanted.items():
        module, seen, samples = modules[name.removesuffix("weight").removesuffix(".")], [], len(batch)
        handle = module.register_forward_hook(lambda module, x, y, seen=seen: seen.append((x[0].clone(), y.clone())))
        batch.ask(network)
        handle.remove()
        x, y = seen[0]
        if batch.mask is not None and x.ndim == 3:
            x, y, target = x[batch.mask], y[batch.mask], target[batch.mask.flatten()]
        if isinstance(module, nn.LayerNorm):
            x = nn.functional.layer_norm(x, module.normalized_shape, eps=module.eps)
        if steps:
            samples = steps[name].samples
            x, y = x[:samples], y[:samples]
        if isinstance(module, nn.Conv2d):
            padding = module.padding
            if padding == "same":
                padding = [d * (k - 1) // 2 for d, k in zip(module.dilation, module.kernel_size, strict=True)]
            unfolded = nn.functional.unfold(x, module.kernel_size, module.dilation, padding, module.stride)
            x, y = unfolded.transpose(1, 2).flatten(0, 1), y.flatten(2).transpose(1, 2).flatten(0, 1)
        else:
            x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
        if steps and steps[name].chosen is not None:
            chosen = steps[name].chosen[:, :, None]
            x, y = (
                t.view(samples, -1, t.shape[-1]).gather(1, chosen.expand(-1, -1, t.shape[-1])).flatten(0, 1)
                for t in (x, y)
            )
        free = module.bias is not None
        if isinstance(module, nn.LayerNorm):
            for c in range(x.shape[1]):
                one, ridge = x[:, c], strength * (x[:, c] - x[:, c].mean()).square().sum() / samples
                left = torch.stack(
                    [torch.cat([one, ridge.sqrt()[None]]), torch.cat([torch.ones_like(one), one[:1] * 0])]
                )
                right = torch.cat([(target - y)[:, c], one[:1] * 0])
                move = torch.linalg.lstsq(left.T, right[:, None], driver="gelsd").solution
                module.weight[c] += move[0, 0]
                module.bias[c] += move[1, 0]
            continue
        centred = x - x.mean(0) if free else x
        ridge = strength * centred.square().sum() / samples
        stay = ridge.sqrt() * torch.eye(x.shape[1], dtype=x.dtype)
        ones, zeros = torch.ones(len(x), 1, dtype=x.dtype), torch.zeros(len(stay), 1, dtype=x.dtype)
        left = torch.cat([torch.cat([x, ones], 1), torch.cat([stay, zeros], 1)]) if free else torch.cat([x, stay])
        right = torch.cat([target - y, torch.zeros(len(stay), y.shape[1], dtype=x.dtype)])
        move = torch.linalg.lstsq(left, right, driver="gelsd").solution
        module.weight += move[: x.shape[1]].T.reshape(module.weight.shape)
        if free:
            module.bias += move[-1]


def relative_error(ours: dict[str, Tensor], truth: dict[str, Tensor]) -> float:
    """In the worst parameter. What cancels altogether, as attention's key biases do, leaves squares of rounding errors:
    these are measured by the largest parameter."""
    assert ours.keys() == truth.keys()
    noise = 1e-24 * max(float(value.norm()) for value in truth.values()) + 1e-300
    return max(float((ours[k] - truth[k]).norm() / (truth[k].norm() + noise)) for k in truth)
