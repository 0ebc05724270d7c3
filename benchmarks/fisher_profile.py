"""Where the Fisher's time goes, phase by phase.

    python -m benchmarks.fisher_profile [--pixels 32] [--samples 200]

Seconds of a ResNet-50's phases and the arithmetic behind them. Writes results/fisher/profile_PIXELS.md.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from benchmarks.fisher import inputs_for, network_for
from coin.fisher import diagonal
from coin.fisher.products import Direct, Pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--samples", type=int, default=200)
    arguments = parser.parse_args()
    seconds: dict[str, float] = defaultdict(float)
    flops: dict[str, float] = defaultdict(float)

    def watch(owner, name: str, label: Callable[..., str], work: Callable[..., float] = lambda *args: 0.0) -> None:
        plain = getattr(owner, name)

        def watched(*args, **settings):
            start = time.perf_counter()
            result = plain(*args, **settings)
            key = label(*args)
            seconds[key] += time.perf_counter() - start
            flops[key] += work(*args)
            return result

        setattr(owner, name, watched)

    def direct_work(squares: Direct, gradient) -> float:
        n, t, g, o = gradient.shape
        return 2.0 * n * t * g * o * squares.total.shape[1]

    def pairs_work(squares: Pairs) -> float:
        count, n, g, o = squares.signal.shape
        return 2.0 * count * n * g * o * squares.make_inputs().shape[3]

    watch(diagonal, "measure_growth", lambda *a: "plan: how tensors grow with the samples")
    watch(diagonal, "read_graph", lambda *a: "plan: read the graph")
    watch(diagonal.Planner, "plan", lambda *a: "plan: layouts")
    watch(diagonal.Witnesses, "compare", lambda *a: "plan: the witnesses, compared with autograd")
    watch(diagonal, "outputs_of", lambda *a: "forward")
    watch(diagonal.Signals, "run", lambda *a: "backward passes, with all that is done as gradients arrive")
    watch(Direct, "add", lambda s, g: f"- direct, {g.shape[1]} positions", direct_work)
    watch(Pairs, "add", lambda s, g: f"- pairs, sums over directions, {g.shape[1]} positions")
    watch(Pairs, "result", lambda s: f"pairs, products of {len(s.signal)} pairs", pairs_work)
    network, inputs = network_for("resnet50", 10, arguments.pixels), inputs_for(arguments.samples, arguments.pixels)
    best, table = float("inf"), ""
    for _ in range(3):
        seconds.clear(), flops.clear()
        fisher = diagonal.DiagonalFisher(network)
        start = time.perf_counter()
        fisher.update(inputs)
        total = time.perf_counter() - start
        if total < best:
            rows = [f"| {k} | {v:.2f} | {flops[k] / v / 1e9:.0f} |" if flops[k] else f"| {k} | {v:.2f} | |"
                    for k, v in seconds.items()]  # fmt: skip
            head = f"| ResNet-50, {arguments.pixels} px, P = {arguments.samples} | s | GFLOP/s |\n|---|---:|---:|\n"
            best, table = total, head + "\n".join([*rows, f"| all | {total:.2f} | |"]) + "\n"
    Path("results/fisher").mkdir(parents=True, exist_ok=True)
    Path(f"results/fisher/profile_{arguments.pixels}.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
