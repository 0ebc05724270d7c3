"""Malformed configs and files, generated: each must end in one clear line and exit code 2, with no results written.

python -m benchmarks.bad_inputs
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.conftest import run_script

Case = tuple[str, list[str]]  # a script and its arguments

NOT_POSITIVE = ("0", "-1", "nan", "much", "[]")
NUMBERS = {
    "code.damping": ("0", "-1", "nan", "inf", "much", "[1]"),
    "code.grid": ("[]", "[0]", "[-1,1]", "much"),
    "samples": ("0", "1", "-5", "1.5", "many", "10000000"),
    "beta": ("[]", "[1]", "[0.5,0.6]", "[0,1]", "[-1,2]", "[nan,1]", "half", "[a,b]", "0.5"),
    "seed": ("a", "1.5", "[0]"),
    "data.image_size": ("0", "-3", "99999", "big"),
    "experts.split1.finetune.epochs": ("0", "-1", "few"),
    "experts.split1.finetune.learning_rate": NOT_POSITIVE,
    "experts.split1.data.labels": ("[10]", "[-1]", "[]", "five"),
    "experts.split1.data.batch_size": ("0", "-8", "some"),
    "tuning.folds": ("1", "-2", "1.5", "two", "150"),
    "tuning.criterion": ("luck", "[nda]"),
    "code.balance": ("half", "1"),
    "trainer.precision": ("64-true", "bf16-true", "7"),
    "checkpoint_minutes": ("0", "-1", "soon"),
    "pretraining.epochs": ("0", "-1", "few"),
    "train_missing": ("no", "1"),
    "model.head_scale": ("0", "-1", "large"),
}
UNKNOWN = ("code", "decoder", "tuning", "model", "experiment", "trainer", "logger", "fisher", "sweeps", "pretraining")
KEYS = (
    "code.dampening=1",
    "samplez=10",
    "+trainer.gpus=2",
    "+trainer.max_epochs=1",
    "decoder.strength=1",
    "experts.split9.path=x",
    "beta.x=1",
)


def configs() -> dict[str, list[Case]]:
    return {
        "a value out of range or of the wrong kind": [
            ("encode.py", [f"{key}={value}"]) for key, values in NUMBERS.items() for value in values
        ],
        "a choice that does not exist": [("encode.py", [f"{group}=nonsense"]) for group in UNKNOWN],
        "a key that does not exist": [("encode.py", [key]) for key in KEYS],
        "a line that does not parse": [
            ("encode.py", [text]) for text in ("code=", "=", "beta=[0.5", "{", "a b", "code")
        ],
        "train.py": [
            ("train.py", [text])
            for text in (
                "data=nonsense",
                "data.labels=[12]",
                "finetune.epochs=0",
                "model.weights=/none.pth",
                "nonsense=1",
            )
        ],
    }


def files(folder: Path) -> Iterator[tuple[str, list[Case]]]:
    """Experts, weights, data sets and stores that are damaged in many ways."""
    folder.mkdir(parents=True, exist_ok=True)
    good = run_script("encode.py", "logger=csv", f"hydra.run.dir={folder / 'good'}")
    assert good.code == 0, good.err
    expert = Path(good.out.split("expert split1: ")[1].split()[0])
    raw, tensors = (expert / "tensors.safetensors").read_bytes(), load_file(expert / "tensors.safetensors")
    bad: dict[str, bytes | dict] = {
        "empty.safetensors": b"",
        "text.safetensors": b"hello",
        "half.safetensors": raw[: len(raw) // 2],
        "header.safetensors": b"\xff" * 8 + raw[8:],
        "text.pth": b"hello",
        "empty.pth": b"",
        "other.txt": raw,
        "nan.safetensors": {**tensors, "fc.bias": tensors["fc.bias"] * float("nan")},
        "shape.safetensors": {**tensors, "fc.weight": torch.zeros(2, 2)},
        "lacking.safetensors": {k: v for k, v in tensors.items() if k != "fc.weight"},
        "frozen.safetensors": {**tensors, "stem.1.running_mean": tensors["stem.1.running_mean"] + 1},
    }
    for name, content in bad.items():
        if isinstance(content, dict):
            save_file(content, folder / name)
        else:
            (folder / name).write_bytes(content)
    (folder / "nothing").mkdir()
    yield (
        "an expert's file",
        [("encode.py", [f"experts.split1.path={folder / name}"]) for name in [*bad, "nothing", "missing.safetensors"]],
    )
    body = next(name for name in tensors if name.endswith("weight") and not name.startswith("fc"))
    save_file({**tensors, body: torch.zeros(2, 2)}, folder / "body_shape.safetensors")
    save_file({k: v for k, v in tensors.items() if k != body}, folder / "body_lacking.safetensors")
    weights = ["empty.pth", "text.pth", "half.safetensors", "body_shape.safetensors", "body_lacking.safetensors"]
    yield "weights of θ_0", [("train.py", [f"model.weights={folder / name}"]) for name in weights]

    data = folder / "cifar" / "cifar-10-batches-bin"
    data.mkdir(parents=True)
    cases = [("train.py", ["data=cifar10", f"data.root={folder / 'cifar'}"])]  # empty
    for name, content in {"short": b"1234", "label": b"\x63" * 30_730_000}.items():
        other = folder / name / "cifar-10-batches-bin"
        shutil.copytree(data, other)
        for i in range(1, 6):
            (other / f"data_batch_{i}.bin").write_bytes(content)
        cases.append(("train.py", ["data=cifar10", f"data.root={folder / name}"]))
    for name in ("mnist", "fashion_mnist"):
        raw_folder = folder / name / {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}[name] / "raw"
        raw_folder.mkdir(parents=True)
        for part in ("train", "t10k"):
            (raw_folder / f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03garbage")
            (raw_folder / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01garbage")
        cases.append(("train.py", [f"data={name}", f"data.root={folder / name}"]))
    images = folder / "images"
    for name in ("a", "b"):
        (images / name).mkdir(parents=True)
        (images / name / "1.png").write_bytes(b"no image")
    cases += [
        ("train.py", ["data=image_folder", f"data.root={images}"]),
        ("train.py", ["data=image_folder", f"data.root={folder / 'nowhere'}"]),
        ("train.py", ["data=image_folder", f"data.root={images / 'a'}"]),
    ]
    yield "a data set's files", cases
    yield "a store that is a file", [("encode.py", [f"store={folder / 'other.txt'}"])]


def judged(case: Case, folder: Path) -> tuple[str, bool, str]:
    script, args = case
    folder = Path(tempfile.mkdtemp(dir=folder))
    try:
        finished = run_script(script, "logger=csv", *args, f"hydra.run.dir={folder / 'run'}")
    except Exception as error:
        return f"{script} {' '.join(args)}", False, f"a traceback: {error!r}"
    lines = [line for line in finished.err.splitlines() if line.strip()]
    clear = finished.code == 2 and len(lines) == 1 and lines[0].startswith("error: ") and len(lines[0]) > 20
    nothing = not (folder / "run" / "results.json").exists()
    return f"{script} {' '.join(args)}", clear and nothing, (lines or ["nothing was said"])[-1]


def run_all(folder: Path) -> dict[str, list[tuple[str, bool, str]]]:
    found = {}
    for kind, cases in [*configs().items(), *files(folder)]:
        found[kind] = [judged(case, folder) for case in cases]
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = run_all(Path(folder))
    for kind, cases in found.items():
        print(f"{kind}: {sum(ok for _, ok, _ in cases)} of {len(cases)}")
        for command, ok, line in cases:
            if not ok:
                print(f"    {command}\n        {line[:300]}")


if __name__ == "__main__":
    main()
