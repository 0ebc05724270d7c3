"""What a caller sends, read and checked: bad input is refused with a status and one sentence, and harms nobody."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LIMIT = 4 << 20  # bytes of a body
SAMPLES, PIXELS = 256, 512  # of one query, and of an image's side
NPY = ("application/x-npy", "application/octet-stream")


class Refused(ValueError):
    """A 4xx."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


@dataclass
class Query:
    inputs: np.ndarray  # (samples, channels, height, width), float32 from 0 to 255
    wanted: tuple[str, ...]
    labels: np.ndarray | None = None  # where known, to count how many answers are right

    @property
    def ensemble(self) -> bool:
        return len(self.wanted) > 1


def query_of(body: bytes, kind: str, named: Mapping[str, str], experts: Sequence[str]) -> Query:
    """From JSON, or from npy with the rest in the address: ?expert=NAME."""
    kind = kind.split(";")[0].strip().lower()
    if kind == "application/json":
        told = json_of(body)
        if "inputs" not in told:
            raise Refused(400, 'inputs are missing; send {"inputs": images, "expert": NAME or "all"}')
        unknown = told.keys() - {"inputs", "expert", "labels"}
        if unknown:
            raise Refused(400, f"{min(unknown)} is not known; the keys are inputs, expert and labels")
        inputs = array_of(told["inputs"], "inputs")
    elif kind in NPY:
        told, inputs = dict(named), npy_of(body)
    else:
        raise Refused(415, f"Content-Type {kind or 'none'}: send application/json or application/x-npy")
    inputs = images_of(inputs)
    labels = told.get("labels") if kind == "application/json" else None
    return Query(inputs, wanted_of(told.get("expert"), experts), labels_of(labels, len(inputs)))


def json_of(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON ({type(error).__name__})") from None
    if not isinstance(told, dict):
        raise Refused(400, f"the body is a {type(told).__name__}; send an object with inputs and expert")
    return told


def npy_of(body: bytes) -> np.ndarray:
    try:
        found: np.ndarray = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except Exception as error:  # it raises all kinds, depending on where the damage is
        raise Refused(400, f"the body is no .npy file of numbers ({type(error).__name__})") from None
    return found


def array_of(values: Any, what: str) -> np.ndarray:
    try:
        return np.array(values)
    except (ValueError, OverflowError, RecursionError, MemoryError):
        raise Refused(400, f"{what} are no array: rows must be of one length, and all of them numbers") from None


def images_of(inputs: np.ndarray) -> np.ndarray:
    if inputs.dtype.kind not in "iuf":
        raise Refused(400, f"inputs are of type {inputs.dtype}; send numbers from 0 to 255")
    if inputs.ndim == 3:
        inputs = inputs[:, None]
    if inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        raise Refused(
            400,
            f"inputs have the shape {inputs.shape}; send images as (n, height, width) or (n, channels, height, width), "
            "channels being 1 or 3",
        )
    count, _, *sides = inputs.shape
    if not 1 <= count <= SAMPLES:
        raise Refused(413 if count else 400, f"{count} images; send from 1 to {SAMPLES} at a time")
    if not all(1 <= side <= PIXELS for side in sides):
        raise Refused(400, f"images of {sides[0]} × {sides[1]} pixels; sides from 1 to {PIXELS} are allowed")
    with np.errstate(all="ignore"):
        inputs = inputs.astype(np.float32)
    if not np.isfinite(inputs).all():
        raise Refused(400, "inputs hold NaN or infinite numbers; send numbers from 0 to 255")
    if inputs.min() < 0 or inputs.max() > 255:
        raise Refused(400, f"inputs lie between {inputs.min():g} and {inputs.max():g}; send numbers from 0 to 255")
    return inputs


def wanted_of(expert: Any, experts: Sequence[str]) -> tuple[str, ...]:
    if expert == "all":
        return tuple(experts)
    if not isinstance(expert, str) or expert not in experts:
        raise Refused(400, f"expert={str(expert)[:60]}: must be one of {', '.join(experts)}, or all")
    return (expert,)


def labels_of(labels: Any, count: int) -> np.ndarray | None:
    if labels is None:
        return None
    found = array_of(labels, "labels")
    if found.dtype.kind not in "iu" or found.shape != (count,):
        raise Refused(400, f"labels must be {count} whole numbers, one for each image")
    return found
