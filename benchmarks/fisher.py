"""The exact diagonal Fisher: ours against every peer that runs, and against the floor.

    pip install -e '.[bench]'
    python -m benchmarks.fisher [--quick] [--out results/fisher]

First every contestant is checked in float64 against the loop of one backward pass a sample and output. Then each is
timed in a process of its own, so that its peak memory can be read: at 32 px, at 224 px, and transformers. The
floor is one forward and K backward passes to activations only, with the same batch and memory format. Seconds are of
the fastest round; slow peers treat fewer samples, and all ratios are of seconds a sample. Writes fisher.json, fisher.md
and fisher.png.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
import torchvision
from torch import Tensor, nn

from coin.fisher import DiagonalFisher, Probes, diagonal_fisher

matplotlib.use("agg")
import matplotlib.pyplot as plt


class Logits(nn.Module):
    """A Hugging Face network as the peers want one: token ids in, a tensor out."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, ids: Tensor) -> Tensor:
        return self.body(input_ids=ids).logits


def network_for(name: str, outputs: int, pixels: int) -> nn.Module:
    """In eval mode, with BatchNorm frozen, as COIN's experts have it. `minilm` is all-MiniLM-L6-v2 of COIN_DATA,
    with tokens for `pixels`, and `vit_small` a ViT-S/14; either with `_eager` or `_sdpa` attention."""
    torch.manual_seed(0)
    if name.startswith("minilm"):
        from transformers import AutoModelForSequenceClassification as Classifier

        folder, attention = Path(os.environ["COIN_DATA"]) / "weights/all-MiniLM-L6-v2", name.removeprefix("minilm_")
        return Logits(Classifier.from_pretrained(folder, num_labels=outputs, attn_implementation=attention)).eval()
    if name.startswith("vit_small"):
        import timm

        timm.layers.set_fused_attn(name.endswith("sdpa"))
        return timm.create_model("vit_small_patch14_dinov2", img_size=pixels, num_classes=outputs).eval()
    if name == "resnet50":
        network = torchvision.models.resnet50(num_classes=outputs)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                # untouched statistics explode in eval mode; these keep the activations' scale, as trained ones do
                module.running_var.fill_(2.0)
                module.requires_grad_(False)
            if isinstance(module, nn.ReLU):
                module.inplace = False  # BackPACK needs it
    elif name == "vit_b_16":
        network = torchvision.models.VisionTransformer(pixels, 16, 12, 12, 768, 3072, num_classes=outputs)
    else:
        network = torchvision.models.VisionTransformer(
            pixels, max(4, pixels // 14), 6, 3, 192, 768, num_classes=outputs
        )
    if "vit" in name:
        nn.init.normal_(network.heads.head.weight, std=0.02)  # torchvision's zeros would make all gradients zero
    return network.eval().to(memory_format=torch.channels_last)


def inputs_for(samples: int, pixels: int, network: str = "resnet50") -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if network.startswith("minilm"):
        return torch.randint(1000, 20000, (samples, pixels), generator=generator)
    return torch.randn(samples, 3, pixels, pixels, generator=generator).contiguous(memory_format=torch.channels_last)


def trained(network: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in network.named_parameters() if p.requires_grad}


PLANNING: list[float] = []  # seconds that plans and their checks took, of each round of ours


def ours(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    fisher = DiagonalFisher(network)
    fisher.update(inputs)
    PLANNING.append(fisher.planning)
    return fisher.compute()


def probes(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    return diagonal_fisher(network, [inputs], Probes(10))


def autograd_loop(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    params = trained(network)
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    for x in inputs.split(1):
        for output in network(x).flatten():
            gradients = torch.autograd.grad(output, list(params.values()), retain_graph=True)
            for total, gradient in zip(sums.values(), gradients, strict=True):
                total.addcmul_(gradient, gradient)
    return {name: total / len(inputs) for name, total in sums.items()}


def torch_func(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    params = {name: p.detach() for name, p in trained(network).items()}

    def outputs(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(network, p, (x.unsqueeze(0),)).squeeze(0)

    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    for x in inputs.split(2):
        jacobians = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, 0))(params, x)
        for name, jacobian in jacobians.items():
            sums[name] += jacobian.square().sum((0, 1))
    return {name: total / len(inputs) for name, total in sums.items()}


def backpack(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    from backpack import backpack as extensions
    from backpack import extend
    from backpack.extensions import DiagGGNExact

    names = {id(p): name for name, p in trained(network).items()}
    extended = extend(network, use_converter=True).eval()
    loss = extend(nn.MSELoss(reduction="sum"))
    sums: dict[str, Tensor] = {}
    for x in inputs.split(8):
        outputs = extended(x)
        with extensions(DiagGGNExact()):
            loss(outputs, torch.zeros_like(outputs)).backward()
        for p in extended.parameters():
            if id(p) in names:
                found = p.diag_ggn_exact / (2 * len(inputs))
                sums[names[id(p)]] = sums.get(names[id(p)], 0) + found
                p.grad = None
    return sums


def nngeometry(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    from nngeometry.layercollection import LayerCollection
    from nngeometry.metrics import FIM
    from nngeometry.object import PMatDiag
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(inputs, torch.zeros(len(inputs))), batch_size=8)
    collection = LayerCollection.from_model(network, ignore_unsupported_layers=True)
    found = FIM(model=network, loader=loader, representation=PMatDiag, variant="regression", device="cpu",
                layer_collection=collection, function=lambda *batch: network(batch[0]))  # fmt: skip
    diagonal, at, result = found.get_diag(), 0, {}
    modules = dict(network.named_modules())
    for key in collection.layers:
        module = modules[key]
        for part in ("weight", "bias"):
            p = getattr(module, part, None)
            if p is not None and at < len(diagonal):
                result[f"{key}.{part}"] = diagonal[at : at + p.numel()].view(p.shape)
                at += p.numel()
    return {name: value for name, value in result.items() if name in trained(network)}


def floor(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """One forward and K backward passes to the activations: those of the first layer's result."""
    params = list(trained(network).values())
    leaves: list[Tensor] = []

    def begin_here(module: nn.Module, args: tuple, result: Tensor) -> Tensor:
        leaves.append(result.detach().requires_grad_())
        return leaves[-1]

    first = {"Logits": "body.bert.embeddings", "ResNet": "conv1"}.get(type(network).__name__)
    first = first or ("conv_proj" if hasattr(network, "conv_proj") else "patch_embed")
    handle = network.get_submodule(first).register_forward_hook(begin_here)
    for p in params:
        p.requires_grad_(False)
    for part in inputs.chunk(-(-len(inputs) // FLOOR_BATCH.get(inputs.shape[-1], 100))):
        outputs = network(part)
        for k in range(outputs.shape[1]):
            direction = torch.zeros_like(outputs)
            direction[:, k] = 1
            torch.autograd.grad(outputs, leaves[-1], direction, retain_graph=k + 1 < outputs.shape[1])
        leaves.clear()
    handle.remove()
    for p in params:
        p.requires_grad_(True)
    return {}


FLOOR_BATCH = {32: 100, 64: 50, 96: 25, 128: 12, 224: 4}  # what ours cuts its batches to, about
CONTESTANTS: dict[str, Callable[[nn.Module, Tensor], dict[str, Tensor]]] = {
    "ours": ours, "probes": probes, "autograd loop": autograd_loop, "backpack": backpack, "nngeometry": nngeometry,
    "torch.func": torch_func, "floor": floor,
}  # fmt: skip
PEERS = ("autograd loop", "backpack", "nngeometry", "torch.func")


def peak() -> float:
    """Peak resident memory of this process, in MiB. (getrusage would count the parent's, from before exec.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure(name: str, network: str, pixels: int, samples: int, outputs: int, rounds: int) -> dict:
    """In this process: seconds of the fastest round and the peak memory beyond the network and its inputs."""
    made, inputs = network_for(network, outputs, pixels), inputs_for(samples, pixels, network)
    before, times = peak(), []
    for _ in range(rounds):
        start = time.perf_counter()
        CONTESTANTS[name](made, inputs)
        times.append(time.perf_counter() - start)
    fastest = times.index(min(times))
    return {"contestant": name, "network": network, "pixels": pixels, "samples": samples, "outputs": outputs,
            "seconds": min(times), "rounds": times, "peak_mib": peak() - before,
            **({"plan_seconds": PLANNING[fastest]} if PLANNING else {}),
            "fisher_mib": sum(p.numel() * 4 for p in trained(made).values()) / 2**20}  # fmt: skip


def apart(name: str, network: str, pixels: int, samples: int, outputs: int = 10, rounds: int = 2) -> dict:
    """The same in a process of its own."""
    call = [name, network, str(pixels), str(samples), str(outputs), str(rounds)]
    done = subprocess.run([sys.executable, "-m", "benchmarks.fisher", "--one", *call], capture_output=True, text=True)
    found = {"contestant": name, "network": network, "pixels": pixels, "samples": samples, "outputs": outputs}
    if done.returncode:
        found["error"] = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:200]
    else:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in found.items() if k != "rounds"}),
        flush=True,
    )
    return found


def check(network: str, pixels: int, samples: int = 2) -> dict[str, float | str]:
    """Every contestant's relative error in float64, in the worst parameter; what it leaves out counts as wrong."""
    torch.set_default_dtype(torch.float64)  # BackPACK makes tensors of its own
    inputs, outputs = inputs_for(samples, pixels, network), outputs_for(network)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    truth = autograd_loop(network_for(network, outputs, pixels).double(), inputs)
    errors: dict[str, float | str] = {}
    for name in ("ours", *PEERS[1:]):
        try:
            found = CONTESTANTS[name](network_for(network, outputs, pixels).double(), inputs)
            missing = [key for key in truth if key not in found]
            noise = 1e-24 * max(float(v.norm()) for v in truth.values())  # what cancels is nothing but rounding
            distances = [
                float((found[k].detach() - v).norm() / (v.norm() + noise)) for k, v in truth.items() if k in found
            ]
            worst = max(distances)
            errors[name] = f"lacks {len(missing)} of {len(truth)} parameters" if missing else worst
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        print(f"check {network} {pixels} px {name}: {errors[name]}", flush=True)
    torch.set_default_dtype(torch.float32)
    return errors


def outputs_for(network: str) -> int:
    return 6 if network.startswith("minilm") else 10


def is_exact(error: float | str | None) -> bool:
    return isinstance(error, float) and error < 1e-6


def run(quick: bool) -> dict:
    rounds = 1 if quick else 2
    result: dict = {"checks": {}, "runs": [], "linear": []}
    result["machine"] = {
        "cores": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": platform.processor(),
    }
    scenes = [("resnet50", 32, 200, 8), ("resnet50", 224, 8, 2), ("vit_tiny", 224, 32, 2), *TRANSFORMERS]
    if quick:
        scenes = [("resnet50", 32, 20, 2)]
    compare(result, scenes, rounds)
    if not quick:
        result["linear"] = linear()
    return result


TRANSFORMERS = [(f"{name}_{attention}", size, 200, 8) for name, size in (("minilm", 40), ("vit_small", 56))
                for attention in ("eager", "sdpa")]  # fmt: skip


def compare(result: dict, scenes: list[tuple[str, int, int, int]], rounds: int) -> None:
    """Adds the checks and runs of these networks, in the place of what was there of them."""
    for network, pixels, samples, few in scenes:
        result["runs"] = [run for run in result["runs"] if (run["network"], run["pixels"]) != (network, pixels)]
        errors = check(network, min(pixels, 64) if network == "resnet50" else pixels)
        result["checks"][f"{network} {pixels}"] = errors
        outputs = outputs_for(network)
        for name in ("floor", "ours", "probes", "floor", "ours"):
            result["runs"].append(apart(name, network, pixels, samples, outputs, rounds))
        for name in PEERS:
            if name == "autograd loop" or is_exact(errors[name]):
                result["runs"].append(apart(name, network, pixels, few, outputs, 1))


def linear() -> list[dict]:
    """Cost against P, K and the image size."""
    runs = [apart("ours", "resnet50", 32, p, rounds=2) for p in (25, 50, 100, 200, 400, 800)]
    runs += [apart("ours", "resnet50", 32, 100, k, 2) for k in (1, 2, 5, 20, 40)]
    return runs + [apart("ours", "resnet50", px, 16, rounds=2) for px in (32, 64, 96, 128)]


def best(result: dict, name: str, network: str, pixels: int) -> dict | None:
    found = [r for r in result["runs"] if (r["contestant"], r["network"], r["pixels"]) == (name, network, pixels)]
    found = [r for r in found if "seconds" in r]
    return min(found, key=lambda r: r["seconds"]) if found else None


def table(result: dict) -> str:
    lines = ["| network | px | contestant | exact to | P | s | of it plan | ms a sample | peak MiB | slower than ours "
             "| × floor |", "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for scene, errors in result["checks"].items():
        network, pixels = scene.split()[0], int(scene.split()[1])
        mine, base = best(result, "ours", network, pixels), best(result, "floor", network, pixels)
        for name in CONTESTANTS:
            row, error = best(result, name, network, pixels), errors.get(name)
            if row is None:
                if isinstance(error, str) or error is not None:
                    text = f"{error:.1e}" if isinstance(error, float) else error
                    lines.append(f"| {network} | {pixels} | {name} | {text} | | | | | | | |")
                continue
            each = row["seconds"] / row["samples"]
            ratios = [each / (other["seconds"] / other["samples"]) if other else float("nan") for other in (mine, base)]
            exact = {"autograd loop": "the reference", "floor": "", "probes": "an estimate"}.get(name) or (
                f"{error:.1e}" if isinstance(error, float) else "" if error is None else error
            )
            plan = f"{100 * row['plan_seconds'] / row['seconds']:.1f} %" if "plan_seconds" in row else ""
            numbers = (
                f"{row['seconds']:.2f} | {plan} | {1000 * each:.1f} | {row['peak_mib']:.0f} | {ratios[0]:.2f} "
                f"| {ratios[1]:.2f}"
            )
            lines.append(f"| {network} | {pixels} | {name} | {exact} | {row['samples']} | {numbers} |")
    return "\n".join(lines) + "\n"


def figure(result: dict, path: Path) -> None:
    runs = [r for r in result["linear"] if "seconds" in r]
    panels = [("samples", lambda r: r["outputs"] == 10 and r["pixels"] == 32, "samples P (K = 10, 32 px)"),
              ("outputs", lambda r: r["samples"] == 100 and r["pixels"] == 32, "outputs K (P = 100, 32 px)"),
              ("pixels", lambda r: r["samples"] == 16, "image size, px (P = 16, K = 10)")]  # fmt: skip
    drawn, axes = plt.subplots(1, 3, figsize=(12, 3.6))
    for axis, (key, chosen, label) in zip(axes, panels, strict=True):
        points = sorted((r[key], r["seconds"], r["peak_mib"] - r["fisher_mib"]) for r in runs if chosen(r))
        x, seconds, memory = zip(*points, strict=True)
        axis.plot(x, seconds, "o-", color="C0")
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(label)
        axis.set_ylabel("seconds", color="C0")
        other = axis.twinx()
        other.plot(x, memory, "s--", color="C1", alpha=0.6)
        other.set_ylim(bottom=0, top=1.3 * max(memory))
        other.set_ylabel("peak MiB beyond network and Fisher", color="C1")
    drawn.suptitle("The exact diagonal Fisher of a ResNet-50 on two cores")
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute instead of half an hour; no figure")
    parser.add_argument("--out", type=Path, default=Path("results/fisher"))
    parser.add_argument("--one", nargs=6, metavar=("NAME", "NETWORK", "PX", "P", "K", "ROUNDS"), help=argparse.SUPPRESS)
    parser.add_argument("--linear", action="store_true", help="measure only the cost against P, K and the image size")
    parser.add_argument(
        "--transformers", action="store_true", help="measure only MiniLM and ViT-S/14, beside what is there"
    )
    parser.add_argument("--redraw", action="store_true", help="tables and figure from the fisher.json that is there")
    arguments = parser.parse_args()
    if arguments.one:
        name, network, *numbers = arguments.one
        print(json.dumps(measure(name, network, *map(int, numbers))))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    stored = arguments.out / "fisher.json"
    partial = arguments.redraw or arguments.linear or arguments.transformers
    result = json.loads(stored.read_text()) if partial else run(arguments.quick)
    if arguments.linear:
        result["linear"] = linear()
    if arguments.transformers:
        compare(result, TRANSFORMERS, rounds=2)
    stored.write_text(json.dumps(result, indent=1) + "\n")
    (arguments.out / "fisher.md").write_text(table(result))
    if result["linear"]:
        figure(result, arguments.out / "fisher.png")
    print(table(result))


if __name__ == "__main__":
    main()
