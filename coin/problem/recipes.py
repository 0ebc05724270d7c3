"""Recipes: what determines a thing, as plain data, for the keys of all that is kept.

A dataclass is its class and its fields; those with `compare=False` or `init=False` are said to change nothing. Whatever
cannot be told by fields is refused: a key that two different things share would serve one for the other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from coin.problem.digests import digest_of

Recipe = dict[str, Any]

LOCAL: dict[type, int] = {}  # classes that are made inside functions, numbered: two of them may have one name


def recipe_of(value: Any) -> Any:
    """Plain data that is equal only for what is equal."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Tensor):
        return {"tensor": digest_of(value)}
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise ValueError(f"{odd[0]!r} cannot be part of a cache key: the keys of a mapping must be strings")
        return {key: recipe_of(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [recipe_of(item) for item in value]
    told = value.recipe() if hasattr(value, "recipe") and not isinstance(value, type) else fields_of(value)
    return {"class": class_name(type(value)), **told}


def fields_of(value: Any) -> Recipe:
    """The declared fields of a dataclass; of another object of a Python class, that there is nothing to declare."""
    name = type(value).__name__
    declared = fields(value) if is_dataclass(value) else ()
    known = {field.name for field in declared}
    hidden = [key for key in getattr(value, "__dict__", {}) if key not in known]
    hidden += [key for kind in type(value).__mro__ for key in slots_of(kind) if key not in known]
    silent = not declared and (callable(value) or not hasattr(value, "__dict__"))  # a function, a set, an array
    if hidden or silent:
        why = f"{', '.join(sorted(hidden)[:3])} of it is no field" if hidden else "it has none"
        raise ValueError(
            f"{name} cannot be told from another {name} by declared fields ({why}), so nothing computed with it can "
            "be kept; make it a dataclass whose fields say all that determines it"
        )
    told = {f.name: recipe_of(getattr(value, f.name)) for f in declared if f.init and f.compare}
    version = getattr(type(value), "version", None)  # a class whose results change says so by another version
    return told if version is None else {**told, "version": recipe_of(version)}


def slots_of(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else [slot for slot in slots if slot not in ("__dict__", "__weakref__")]


def class_name(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}#{LOCAL.setdefault(kind, len(LOCAL))}" if "<locals>" in name else name


def lasts(recipe: Any) -> bool:
    """Whether another process would mean the same by it: not so where a class has no name of its own."""
    text = json.dumps(recipe, sort_keys=True)
    return "<locals>" not in text and '"__main__.' not in text
