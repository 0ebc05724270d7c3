"""The store: named, hashed folders of tensors that are made once and never half-written.

    store/experts/cifar10-0-4-resnet50-1f2e3d4c5b/tensors.safetensors    what it is
                                                 /record.json             what made it, and its facts

An artifact's folder is named for people and ends in a hash of its *recipe*: all that determines it. A changed recipe
is another folder, so nothing stale is ever reused. A folder appears by one rename, complete. Two processes that want
the same thing make it once: the second waits on a lock, which the kernel frees when its owner dies.
"""

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import lightning
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from coin.lab.presence import Presence
from coin.problem.recipes import Recipe
from coin.training.ranks import is_distributed, is_first, run_name

Facts = dict[str, Any]
Made = tuple[Mapping[str, Tensor], Facts]  # tensors, and facts about them such as an accuracy


@dataclass
class Artifact:
    """One folder of the store. `key` stands for it in the recipes of what is derived from it."""

    path: Path
    record: dict[str, Any]

    @property
    def key(self) -> str:
        return self.path.name

    @property
    def facts(self) -> Facts:
        facts: Facts = self.record["facts"]
        return facts

    @property
    def recipe(self) -> Recipe:
        recipe: Recipe = self.record["recipe"]
        return recipe

    def tensors(self) -> dict[str, Tensor]:
        return load_file(self.path / "tensors.safetensors")


class Damaged(ValueError):
    """An artifact that is not what was written."""


class Store:
    def __init__(self, root: str | Path):
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"store={root}: is a file; give a folder")

    def locate(self, kind: str, name: str, recipe: Recipe) -> Path:
        for part in (kind, name):
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) or ".." in part:
                raise ValueError(f"{part!r} cannot name an artifact; allowed are letters, digits and _ . -")
        canonical = json.dumps({"kind": kind, **recipe}, sort_keys=True)
        return self.root / kind / f"{shortened(name)}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"

    def obtain(
        self,
        kind: str,
        name: str,
        recipe: Recipe,
        make: Callable[[Path], Made],
        derived: bool = False,
        alone: bool = False,
    ) -> Artifact:
        """The artifact of this recipe: read if it is there, made (once, whoever asks) if it is not.

        `make` gets a scratch folder that survives a crash, for checkpoints, and returns tensors and facts. A damaged
        artifact is refused, since making an expert again is the user's to decide, but made again where it is `derived`.
        All ranks of a distributed run make it together, unless it is made by the first `alone`.
        """
        path = self.locate(kind, name, recipe)
        found = self.find(kind, name, recipe, derived)
        if found:
            return found
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.parent / f".{path.name}.unfinished"
        making = scratch / f"making-{run_name()}"  # tells the other ranks of this run to take part
        presence = Presence(self.root)
        if not is_first():
            if (
                not alone
                and presence.wait_for(lambda: making.exists() or self.find(kind, name, recipe, derived)) is True
            ):
                make(scratch)
            return presence.wait_for(lambda: self.find(kind, name, recipe, derived))  # type: ignore[return-value]
        if is_distributed():
            presence.show()
        lock = filelock.FileLock(path.parent / f".{path.name}.lock")
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            print(f"waiting: another process is making {path}", flush=True)
            lock.acquire()
        with lock:
            found = self.find(kind, name, recipe, derived)
            if found:  # made while we waited
                return found
            if path.is_dir():
                print(f"warning: {path} is damaged; it is computed again", flush=True)
                shutil.rmtree(path)
            scratch.mkdir(exist_ok=True)
            making.touch()
            tensors, facts = make(scratch)
            self.write(path, tensors, {"kind": kind, "name": name, "recipe": recipe, "facts": facts})
            shutil.rmtree(scratch, ignore_errors=True)
        return self.read(path)

    def find(self, kind: str, name: str, recipe: Recipe, derived: bool = False) -> Artifact | None:
        """The artifact if it is there; a damaged one that can be derived again counts as not there."""
        path = self.locate(kind, name, recipe)
        if not path.is_dir():
            return None
        try:
            found = self.read(path)
            if found.record.get("kind") != kind or found.recipe != json.loads(json.dumps(recipe)):
                raise Damaged(f"{path}/record.json is that of something else; move {path} away to have it made again")
            return found
        except Damaged:
            if not derived:
                raise
            return None

    def write(self, path: Path, tensors: Mapping[str, Tensor], record: dict[str, Any]) -> None:
        fresh = path.parent / f".{path.name}.new"  # what a killed process left there goes first
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            digest = save_tensors(fresh / "tensors.safetensors", tensors)
            record = {**record, "sha256": digest, "versions": versions()}
            (fresh / "record.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
            os.replace(fresh, path)
        except Exception as error:
            shutil.rmtree(fresh, ignore_errors=True)
            if not (isinstance(error, OSError) and path.is_dir()):
                raise  # else another process was first, on a file system whose locks do not hold, and made the same

    @staticmethod
    def read(path: Path) -> Artifact:
        try:
            record = json.loads((path / "record.json").read_text())
            digest, facts, recipe = record["sha256"], record["facts"], record["recipe"]
            if not isinstance(facts, dict) or not isinstance(recipe, dict):
                raise ValueError("record.json does not say facts and recipe")
            actual = digest_of_file(path / "tensors.safetensors")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{path} is damaged ({error}); move it away to have it made again") from error
        if digest != actual:
            raise Damaged(
                f"{path}/tensors.safetensors is damaged: its contents do not match record.json's sha256; "
                f"restore it, or move {path} away to have it made again"
            )
        return Artifact(path, record)


LONGEST = 232  # bytes: `.NAME-0123456789.unfinished` is a file name, of at most 255


def shortened(name: str) -> str:
    """The name, or one that is short enough for a file: its beginning, a hash of all of it, and its end."""
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[:150].rstrip('.-')}_etc_{digest}_{name[-50:].lstrip('.-')}"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """Writes contiguous CPU tensors and returns the file's sha256; the file appears complete or not at all."""
    plain: dict[str, Tensor] = {}
    for name, value in tensors.items():
        value = value.detach().to("cpu", memory_format=torch.contiguous_format).contiguous()
        shared = value.data_ptr() in {other.data_ptr() for other in plain.values()}  # tied weights
        plain[name] = value.clone() if shared else value
    fresh = path.with_name(f".{path.name}.new")
    save_file(plain, fresh, metadata)
    with open(fresh, "rb") as file:
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return digest_of_file(path)


def digest_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "safetensors": safetensors.__version__,
    }
