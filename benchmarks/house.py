"""The house in numbers, of one revision beside another.

python -m benchmarks.house [REVISION …]    writes results/house.md
"""

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PAGE = """# The house in numbers

bfc6e2b is before the house was built, 42f0b11 when it had been, HEAD the commit before this file's last: `python -m
benchmarks.house`.

The code has not become shorter. What grew between the first two is what it does: checks of the Fisher's plans,
ranks told from tasks, matched layers in bounded memory, recipes instead of `repr`, experts by a list, `coin.load`;
after that, dashboards (journals, a page, a W&B workspace). What the house itself made unnecessary is gone: 907
files of results, 16 sweeps kept twice, near-copies of experiments, four of six caches.

"""


def numbers(root: Path) -> dict[str, int | str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    python = {path: path.read_text().count("\n") for path in files if path.suffix == ".py"}
    outside = {path: lines for path, lines in python.items() if "tests" not in path.relative_to(root).parts}
    coin = {path: lines for path, lines in outside.items() if path.is_relative_to(root / "coin")}
    longest = max(coin, key=lambda path: coin[path])
    yaml = [p for p in files if p.suffix == ".yaml" and p.relative_to(root).parts[0] in ("conf", "sweeps")]
    calls = {path: worst_call(path) for path in outside}
    worst = max(calls, key=lambda path: calls[path])
    return {
        "modules at the top of coin/": len([p for p in coin if p.parent == root / "coin"]) - 1,
        "Python files in coin/": len(coin),
        "lines of coin/ and the scripts": sum(coin.values()) + sum(outside[p] for p in outside if p.parent == root),
        "lines of all Python but tests": sum(outside.values()),
        "longest file of coin/": f"{longest.relative_to(root)}, {coin[longest]}",
        "lines of YAML": sum(path.read_text().count("\n") for path in yaml),
        "YAML files": len(yaml),
        "lines of README": (root / "README.md").read_text().count("\n"),
        "files in results/": len([p for p in files if p.relative_to(root).parts[0] == "results"]),
        "files in all": len(files),
        "positional arguments of the worst call": f"{calls[worst]}, {worst.relative_to(root)}",
    }


def worst_call(path: Path) -> int:
    """Of functions and classes by name: a torch operator or a list's append has as many as it has."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return max(
        (len(c.args) for c in calls if isinstance(c.func, ast.Name) and c.func.id not in ("max", "zip")), default=0
    )


def main() -> None:
    revisions = sys.argv[1:] or ["bfc6e2b", "42f0b11", "HEAD"]
    told = []
    for revision in revisions:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(["git", "archive", revision], cwd=HERE, stdout=subprocess.PIPE, check=True)
            subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
            told.append(numbers(Path(folder)))
    lines = [f"| | {' | '.join(revisions)} |", "|---|" + "---:|" * len(revisions)]
    lines += [f"| {key} | {' | '.join(str(side[key]) for side in told)} |" for key in told[0]]
    print("\n".join(lines))
    (HERE / "results" / "house.md").write_text(PAGE + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
