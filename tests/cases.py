"""Networks with every kind of parameter the Fisher treats: name -> function of a seed to (network, inputs)."""

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
    "resnet18": resnet,
    "vit": vit,
}  # fmt: skip


def make(name, seed=0, dtype=torch.float64):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, inputs = CASES[name](seed)
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return network.to(dtype).eval(), inputs
