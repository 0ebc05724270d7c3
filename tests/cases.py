"""Networks with every kind of parameter the Fisher treats: name -> function of a seed to (network, inputs); and below,
networks that are meant to mislead it about which rows belong to which sample."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Residual(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return x + self.body(x)


class Head(nn.Module):
    """Mean over positions, then a Linear: turns any feature map into three outputs."""

    def __init__(self, channels, outputs=3):
        super().__init__()
        self.fc = nn.Linear(channels, outputs)

    def forward(self, x):
        return self.fc(x.flatten(2).mean(2))


class Tokens(nn.Module):
    """Embedding, class token, positions, attention (batch first or not), LayerNorm, a scale."""

    def __init__(self, batch_first=True, tokens=4, cross=False):
        super().__init__()
        self.embed = nn.Embedding(7, 6, padding_idx=0)
        self.cls = nn.Parameter(torch.randn(1, 1, 6))
        self.positions = nn.Parameter(torch.randn(1, tokens + 1, 6))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first)
        self.norm, self.scale = nn.LayerNorm(6), nn.Parameter(torch.rand(6))
        self.mlp, self.fc = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)), nn.Linear(6, 3)
        self.batch_first, self.cross = batch_first, cross

    def forward(self, indices):
        x = torch.cat([self.cls.expand(len(indices), -1, -1), self.embed(indices)], 1) + self.positions
        y = x if self.batch_first else x.transpose(0, 1)
        memory = torch.tanh(y) if self.cross else y
        y = self.attention(y, memory, memory, need_weights=False)[0]
        x = x + self.scale * (y if self.batch_first else y.transpose(0, 1))
        return self.fc((x + self.mlp(self.norm(x)))[:, 0])


class Tied(nn.Module):
    """An embedding whose weight is the output layer's too."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(6, 5), nn.Linear(5, 6, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, indices):
        return self.out(torch.tanh(self.embed(indices).mean(1)))


class Twice(nn.Module):
    """Modules called twice, and a weight used functionally beside its module."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 3, 3, padding=1), nn.GroupNorm(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv(x)))
        x = torch.tanh(self.norm(self.conv(x))).mean((2, 3))
        return F.linear(torch.tanh(self.fc(x)), self.fc.weight) + self.fc(x)


class Odd(nn.Module):
    """Parameters that no rule knows: a transposed convolution, a bilinear form, a matrix power."""

    def __init__(self):
        super().__init__()
        self.up, self.bilinear = nn.ConvTranspose2d(2, 3, 2, stride=2), nn.Bilinear(3, 3, 3)
        self.matrix = nn.Parameter(torch.randn(3, 3) / 3)
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x):
        x = torch.tanh(self.up(x)).mean((2, 3))
        return self.bilinear(x, x) @ torch.linalg.matrix_exp(self.matrix)


class FoldedFrames(nn.Module):
    """Video: frames folded into the batch, frame by frame or sample by sample."""

    def __init__(self, sample_major):
        super().__init__()
        self.conv, self.fc, self.sample_major = nn.Conv2d(2, 4, 3), nn.Linear(4, 3), sample_major

    def forward(self, x):  # (samples, frames, channels, h, w)
        n, t = x.shape[:2]
        rows = x.flatten(0, 1) if self.sample_major else x.transpose(0, 1).flatten(0, 1)
        y = torch.relu(self.conv(rows)).mean((2, 3))
        y = y.unflatten(0, (n, t)).mean(1) if self.sample_major else y.unflatten(0, (t, n)).mean(0)
        return self.fc(y)


class Positions(nn.Module):
    """A table looked up once for all samples, another whose rows are read several times, one of them padding."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(7, 6), nn.Embedding(9, 6)
        self.kinds, self.fc = nn.Embedding(3, 6, padding_idx=1), nn.Linear(6, 3)

    def forward(self, indices):
        tokens = indices.shape[1]
        kinds = self.kinds(torch.arange(tokens) % 3)
        return self.fc(torch.tanh(self.words(indices) + self.places(torch.arange(tokens)[None]) + kinds).mean(1))


class RelativePositions(nn.Module):
    """Swin's: windows are folded into the batch, and a table is indexed, viewed and permuted for all of them."""

    def __init__(self):
        super().__init__()
        self.qkv, self.table, self.fc = nn.Linear(6, 18), nn.Parameter(torch.randn(7, 2)), nn.Linear(6, 3)

    def forward(self, x):  # (samples, 8 tokens, 6), in windows of 4
        windows = x.reshape(-1, 4, 6)
        q, k, v = self.qkv(windows).view(-1, 4, 3, 2, 3).permute(2, 0, 3, 1, 4)
        offsets = (torch.arange(4)[:, None] - torch.arange(4)[None] + 3).view(-1)
        bias = self.table[offsets].view(4, 4, 2).permute(2, 0, 1).contiguous().unsqueeze(0)
        y = ((q @ k.mT + bias).softmax(3) @ v).transpose(1, 2).reshape(len(x), 8, 6)
        return self.fc(torch.tanh(y).mean(1))


class TokenMixing(nn.Module):
    """MLP-Mixer's: Linear layers over the tokens."""

    def __init__(self):
        super().__init__()
        self.mlp, self.fc = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 4)), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(torch.tanh(x + self.mlp(x.transpose(1, 2)).transpose(1, 2)).mean(1))


class ResponseNorm(nn.Module):
    """ConvNeXt V2's: a scale and a shift, viewed first, inside addcmul."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 2), Head(4)
        self.weight, self.bias = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

    def forward(self, x):
        x = self.conv(x)
        size = x.norm(dim=(2, 3), keepdim=True)
        scaled = x * (size / (size.mean(1, keepdim=True) + 1e-6))
        shift, scale = self.bias.view(1, -1, 1, 1), self.weight.view(1, -1, 1, 1)
        return self.head(torch.tanh(x + torch.addcmul(shift, scale, scaled, value=0.5)))


class SplitBiases(nn.Module):
    """EVA's: a bias put together from two and zeros; and a weight that is the sum of two."""

    def __init__(self):
        super().__init__()
        self.qkv, self.fc = nn.Linear(6, 18, bias=False), nn.Linear(6, 3)
        self.q, self.v = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))
        self.low, self.high = nn.Parameter(torch.randn(6, 1)), nn.Parameter(torch.randn(1, 18))
        self.register_buffer("k", torch.zeros(6))

    def forward(self, x):
        weight = self.qkv.weight + (self.low @ self.high).T
        q, k, v = F.linear(x, weight, torch.cat([self.q, self.k, self.v])).chunk(3, 2)
        return self.fc(F.scaled_dot_product_attention(q, k, v).mean(1))


class Repeated(nn.Module):
    """DeBERTa's: keys of relative positions, projected once and repeated for every sample's heads."""

    def __init__(self):
        super().__init__()
        self.table, self.norm, self.fc = nn.Embedding(5, 6), nn.LayerNorm(6), nn.Linear(6, 3)
        self.project = nn.Linear(6, 6)

    def forward(self, x):
        keys = self.project(self.norm(self.table.weight)).view(5, 2, 3).transpose(0, 1).repeat(len(x), 1, 1)
        queries = x.view(-1, 4, 2, 3).transpose(1, 2).reshape(-1, 4, 3)
        y = torch.bmm(torch.bmm(queries, keys.mT).softmax(2), keys).view(-1, 2, 4, 3).transpose(1, 2)
        return self.fc(torch.tanh(y.flatten(2)).mean(1))


def weight_norm(seed):
    normed = nn.utils.parametrizations.weight_norm
    layers = [normed(nn.Conv1d(4, 6, 3, groups=2)), nn.Tanh(), normed(nn.Conv1d(6, 4, 2), dim=2), nn.Tanh()]
    return nn.Sequential(*layers, Head(4)), torch.randn(5, 4, 9)


def conv(dims, seed):
    g = torch.Generator().manual_seed(seed)

    def pick(*options):
        return options[int(torch.randint(len(options), (), generator=g))]

    groups = pick(1, 2, 4)
    layer = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1](
        4, 4 * pick(1, 2), pick(1, 2, 3), stride=pick(1, 2), padding=pick(0, 1, 2), dilation=pick(1, 2), groups=groups,
        bias=pick(True, False), padding_mode=pick("zeros", "circular", "replicate", "reflect"),
    )  # fmt: skip
    size = [pick(6, 7, 8) for _ in range(dims)]
    return nn.Sequential(layer, nn.Tanh(), Head(layer.out_channels)), torch.randn(5, 4, *size)


def same_padding(seed):
    layers = [nn.Conv1d(3, 4, 4, padding="same"), nn.Tanh(), nn.Conv1d(4, 4, 3, padding="same", dilation=2)]
    return nn.Sequential(*layers, Head(4)), torch.randn(4, 3, 9)


def norms(seed):
    layers = [
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.GroupNorm(2, 4),
        Residual(nn.Conv2d(4, 4, 1)),
    ]
    network = nn.Sequential(*layers, nn.Flatten(2), nn.LayerNorm([4, 16]), Head(4))
    network[1].running_mean.normal_()
    network[1].running_var.uniform_(0.5, 2)
    return network, torch.randn(6, 3, 6, 6)


def resnet(seed):
    network = torchvision.models.resnet18(num_classes=3, norm_layer=lambda c: nn.BatchNorm2d(c))
    return network, torch.randn(3, 3, 32, 32).to(memory_format=torch.channels_last)


def vit(seed):
    network = torchvision.models.VisionTransformer(16, 4, 2, 2, 8, 12, num_classes=3)
    nn.init.normal_(network.heads.head.weight)  # torchvision's zeros would make every gradient zero
    return network, torch.randn(3, 3, 16, 16)


def indices(samples, tokens, seed, rows=6):
    return torch.randint(0, rows, (samples, tokens), generator=torch.Generator().manual_seed(seed))


CASES = {
    "linear": lambda s: (nn.Linear(5, 3), torch.randn(7, 5)),
    "mlp": lambda s: (
        nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 3, bias=False)), torch.randn(4, 5)
    ),
    "tokens_linear": lambda s: (
        nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6, bias=False), nn.Flatten(1), nn.Linear(24, 3)),
        torch.randn(4, 4, 5),
    ),
    "many_leading_dims": lambda s: (
        nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Flatten(1), nn.Linear(36, 3)), torch.randn(4, 2, 3, 5)
    ),
    "transposed_tokens": lambda s: (
        nn.Sequential(nn.Unflatten(1, (4, 5)), nn.Linear(5, 2), nn.Flatten(1), nn.Linear(8, 3)), torch.randn(4, 20)
    ),
    "conv1d": lambda s: conv(1, s),
    "conv2d": lambda s: conv(2, s),
    "conv3d": lambda s: conv(3, s),
    "depthwise": lambda s: (nn.Sequential(nn.Conv2d(6, 12, 3, groups=6), nn.Tanh(), Head(12)), torch.randn(4, 6, 5, 5)),
    "many_positions": lambda s: (
        nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), Head(3)), torch.randn(3, 2, 16, 16)
    ),
    "same_padding": same_padding,
    "norms": norms,
    "attention": lambda s: (Tokens(), indices(5, 4, s)),
    "attention_seq_first": lambda s: (Tokens(batch_first=False), indices(5, 4, s)),
    "cross_attention": lambda s: (Tokens(cross=True), indices(5, 4, s)),
    "six_tokens": lambda s: (Tokens(tokens=5), indices(4, 5, s)),
    "tied": lambda s: (Tied(), indices(5, 4, s)),
    "twice": lambda s: (Twice(), torch.randn(4, 3, 6, 6)),
    "odd": lambda s: (Odd(), torch.randn(4, 2, 3, 3)),
    "frames_by_sample": lambda s: (FoldedFrames(True), torch.randn(4, 3, 2, 5, 5)),
    "frames_by_frame": lambda s: (FoldedFrames(False), torch.randn(4, 3, 2, 5, 5)),
    "positions": lambda s: (Positions(), indices(5, 6, s)),
    "relative_positions": lambda s: (RelativePositions(), torch.randn(5, 8, 6)),
    "token_mixing": lambda s: (TokenMixing(), torch.randn(5, 4, 6)),
    "response_norm": lambda s: (ResponseNorm(), torch.randn(5, 2, 4, 4)),
    "split_biases": lambda s: (SplitBiases(), torch.randn(5, 4, 6)),
    "weight_norm": weight_norm,
    "repeated": lambda s: (Repeated(), torch.randn(5, 4, 6)),
    "resnet18": resnet,
    "vit": vit,
}  # fmt: skip


def make(name, seed=0, dtype=torch.float64):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, inputs = CASES[name](seed)
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return network.to(dtype).eval(), inputs


class Rearranged(nn.Module):
    """Lays its inputs (samples, 3 frames, 4 tokens, 5) out in another way, treats them row by row, and comes `back` to
    (samples, 6)."""

    def __init__(self, there, back):
        super().__init__()
        self.there, self.back = there, back
        self.first, self.norm, self.second = nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 6, bias=False)
        self.scale, self.head = nn.Parameter(torch.rand(6)), nn.Linear(6, 3)

    def forward(self, x):
        y = self.second(torch.tanh(self.norm(self.first(self.there(x))))) * self.scale
        return self.head(self.back(y, x))


def frame_per_output(y, x):
    return torch.cat([y[frame, ..., 2 * frame : 2 * frame + 2].mean(1) for frame in range(3)], -1)


def shuffled_frames(y, undo):
    """Each frame's samples in another order."""
    return torch.stack([y[:, 0], y[:, 1].roll(-1 if undo else 1, 0), y[:, 2].flip(0)], 1)


def ranks(x):
    """An order of the samples that their contents decide."""
    return x[:, 0, 0, 0].argsort()


def mask(x):
    return x.flatten(1, 2)[..., 0] > 0


def unpack(y, x):
    out = y.new_zeros(len(x), 12, 6)
    out[mask(x)] = y
    return out.sum(1)


def dispatch(x):
    """A matrix that puts tokens of a positive gate first, as mixtures of experts fill their slots."""
    return torch.eye(12 * len(x), dtype=x.dtype)[(~mask(x)).flatten().int().argsort(stable=True)]


def put(y, x):
    out = torch.zeros_like(y)
    return out.index_copy(0, ranks(x), y).mean((1, 2))


def table(y, x):
    return F.embedding(ranks(x).argsort(), y.flatten(1)).view_as(y)


ROWS = {
    # (there, back)
    "frames first, reads the first": (lambda x: x.permute(1, 0, 2, 3), lambda y, x: y[0].mean(1)),
    "frames first, reads the last": (lambda x: x.permute(1, 0, 2, 3), lambda y, x: y[-1].mean(1)),
    "frames first, reads one token": (lambda x: x.permute(1, 0, 2, 3), lambda y, x: y[0, :, 0]),
    "frames first, reads all": (lambda x: x.permute(1, 0, 2, 3), lambda y, x: y.mean((0, 2))),
    "frames first, reads the largest": (lambda x: x.permute(1, 0, 2, 3), lambda y, x: y.amax((0, 2))),
    "frames first, a frame an output": (lambda x: x.permute(1, 0, 2, 3), frame_per_output),
    "frames first, one dimension": (
        lambda x: x.permute(1, 0, 2, 3).reshape(-1, 5), lambda y, x: y.view(3, len(x), 4, 6)[0].mean(1)
    ),
    "frames first, gated": (
        lambda x: x.permute(1, 0, 2, 3), lambda y, x: (y * (x.permute(1, 0, 2, 3)[..., :1] > 1)).sum((0, 2))
    ),
    "samples in the middle of five": (
        lambda x: x.permute(2, 0, 1, 3).reshape(2, 2, len(x), 3, 5).transpose(0, 1), lambda y, x: y[0, 1].mean(1)
    ),
    "tokens first, reads the last": (lambda x: x.permute(2, 0, 1, 3), lambda y, x: y[-1].mean(1)),
    "samples last, reads the first": (lambda x: x.permute(1, 2, 0, 3), lambda y, x: y[0, 0]),
    "samples last, rows of one": (lambda x: x.permute(1, 2, 0, 3).reshape(-1, 5), lambda y, x: y[: len(x)]),
    "samples first, reads one": (lambda x: x, lambda y, x: y[:, 1, 2]),
    "flipped": (lambda x: x.flip(0), lambda y, x: y.flip(0).mean((1, 2))),
    "rolled": (lambda x: x.roll(1, 0), lambda y, x: y.roll(-1, 0).mean((1, 2))),
    "frames shuffled apart": (lambda x: shuffled_frames(x, False), lambda y, x: shuffled_frames(y, True).mean((1, 2))),
    "another way for large batches": (
        lambda x: x.permute(1, 0, 2, 3) if len(x) > 4 else x.transpose(0, 1).transpose(0, 1),
        lambda y, x: y[0].mean(1) if len(x) > 4 else y[:, 0].mean(1),
    ),
    "another way for odd batches": (
        lambda x: (x if len(x) % 2 else x.transpose(0, 1)).reshape(-1, 4, 5),
        lambda y, x: (y.view(len(x), 3, 4, 6) if len(x) % 2 else y.view(3, len(x), 4, 6).transpose(0, 1)).mean((1, 2)),
    ),
    "another way for other data": (
        lambda x: (x if x.sum() > 0 else x.transpose(0, 1)).reshape(-1, 4, 5),
        lambda y, x: y.view(len(x), 12, 6).mean(1) if x.sum() > 0 else y.view(3, len(x), 4, 6).mean((0, 2)),
    ),
    "sorted by contents": (lambda x: x[ranks(x)], lambda y, x: y[ranks(x).argsort()].mean((1, 2))),
    "sorted, put back": (lambda x: x.index_select(0, ranks(x)), put),
    "sorted by a matrix": (
        lambda x: (torch.eye(len(x), dtype=x.dtype)[ranks(x)] @ x.flatten(1)).view_as(x),
        lambda y, x: (torch.eye(len(x), dtype=x.dtype)[ranks(x)].T @ y.flatten(1)).view_as(y).mean((1, 2)),
    ),
    "packed by a mask": (lambda x: x.flatten(1, 2)[mask(x)], unpack),
    "dispatched to slots": (
        lambda x: dispatch(x) @ x.flatten(0, 2), lambda y, x: (dispatch(x).T @ y).view(len(x), 12, 6).mean(1)
    ),
    "gathers a frame": (
        lambda x: x, lambda y, x: y[torch.arange(len(x)), x[:, :, 0, 0].argmax(1)].mean(1)
    ),
    "the largest tokens": (lambda x: x, lambda y, x: y.flatten(1, 2).topk(2, 1).values.mean(1)),
    "activations as a table": (
        lambda x: F.embedding(ranks(x), x.flatten(1)).view_as(x), lambda y, x: table(y, x).mean((1, 2))
    ),
}  # fmt: skip


class Crops(nn.Module):
    """Convolutions of crops folded into the batch before and after the samples."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 2, bias=True), nn.Linear(4, 3)

    def forward(self, x):  # (samples, 3, 4, 5) as (rows of crops, samples, columns of crops, 1, 3, 2)
        n = len(x)
        crops = x[..., :4].unflatten(3, (2, 2)).permute(2, 0, 3, 1, 4).unsqueeze(3)
        y = torch.relu(self.conv(crops.flatten(0, 2))).mean((2, 3)).view(4, n, 2, 4)
        return self.fc(y[1, :, 0])


class Recurrent(nn.Module):
    """Sequence first; packed, samples are sorted by their lengths."""

    def __init__(self, packed=False, **settings):
        super().__init__()
        self.rnn, self.packed = nn.GRU(5, 4, **settings), packed
        self.fc = nn.Linear(4 * (1 + self.rnn.bidirectional), 3)

    def forward(self, x):
        steps = x.flatten(1, 2).transpose(0, 1)
        if not self.packed:
            return self.fc(self.rnn(steps)[0][-1])
        lengths = (x[:, 0, 0, 0] > 0).long() * 2 + 2
        packed = nn.utils.rnn.pack_padded_sequence(steps, lengths, enforce_sorted=False)
        return self.fc(self.rnn(packed)[1][-1])


class Trims(nn.Module):
    """Leaves out what is padding in all samples, or pads to the number of them, sequence first."""

    def __init__(self, pads=False):
        super().__init__()
        self.first, self.fc, self.pads = nn.Linear(5, 6), nn.Linear(6, 3), pads

    def forward(self, x):
        tokens = x.flatten(1, 2) * (torch.arange(12)[None] < (x[:, 0, 0, :1] > 0) * 3 + 3).unsqueeze(2)
        longest = max([1, *(1 + i for i in range(12) if tokens[:, i].any())])
        steps = F.pad(tokens, (0, 0, 0, len(x))) if self.pads else tokens[:, :longest]
        y = torch.tanh(self.first(steps.transpose(0, 1)))
        return self.fc((y * (steps.transpose(0, 1).abs().sum(2, keepdim=True) > 0)).sum(0))


class TiedApart(nn.Module):
    """One weight used twice, for the samples in two orders."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(60, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.head(torch.tanh(self.fc(x)) * self.fc(x.flip(0).cos()).flip(0))


class Experts(nn.Module):
    """Whole tokens go to one of two experts."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        tokens, chosen = x.flatten(1, 2), mask(x)
        y = tokens.new_zeros(*tokens.shape[:2], 6)
        y[chosen] = self.a(tokens[chosen])
        y[~chosen] = self.b(tokens[~chosen])
        return self.fc(torch.tanh(y).mean(1))


class Dead(nn.Module):
    """No gradient at all for inputs below zero, sequence first."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.fc = nn.Linear(5, 6, bias=False), nn.Linear(6, 6), nn.Linear(6, 3)
        with torch.no_grad():
            self.first.weight.abs_()

    def forward(self, x):
        y = torch.relu(self.first(x.permute(1, 0, 2, 3)))
        return self.fc(torch.relu(self.second(y) * y).sum((0, 2)))


MISLEADING = {name: lambda pair=pair: Rearranged(*pair) for name, pair in ROWS.items()} | {
    "crops": Crops,
    "recurrent": Recurrent,
    "recurrent, both ways": lambda: Recurrent(bidirectional=True),
    "recurrent, packed": lambda: Recurrent(packed=True),
    "trims": Trims,
    "pads": lambda: Trims(pads=True),
    "tied apart": TiedApart,
    "experts": Experts,
    "dead": Dead,
}


def misleading(name, sizes, seed=0):
    """A network and batches of these sizes, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = MISLEADING[name]()
        batches = [torch.randn(size, 3, 4, 5, dtype=torch.float64) for size in sizes]
    return network.double().eval(), batches
