"""Labelled images that the page of a service may send: of the experts' own test sets, where these are at hand."""

from collections.abc import Mapping
from typing import Any

from coin.training.data.images import ImageData


def samples_of(facts: Mapping[str, Any], root: str, count: int = 200) -> dict[str, Any]:
    """{expert: {"inputs": raw images, "labels": …}} of the first test images; nothing where some are not there."""
    known = {
        kind.name: kind
        for kind in ImageData.__subclasses__()
        for kind in (kind, *kind.__subclasses__())
        if hasattr(kind, "name")
    }
    found = {}
    for expert in facts["experts"]:
        if expert["data"] not in known:
            return {}
        try:
            data = known[expert["data"]](root, labels=expert["labels"])
            data.setup()
        except (ValueError, TypeError, OSError):
            return {}
        assert data.test_set is not None
        images, labels = data.test_set[list(range(min(count, len(data.test_set))))]
        found[expert["name"]] = {"inputs": images.tolist(), "labels": labels.tolist()}
    return found
