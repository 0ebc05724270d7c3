"""What callers may send, and one sentence for all else."""

import io
import json

import numpy as np
import pytest
import torch

from coin.serving.requests import LIMIT, SAMPLES, Refused, query_of
from coin.serving.settings import Serving
from coin.training.data.images import prepared

NAMES = ("split1", "split2")
IMAGES = np.arange(2 * 8 * 8).reshape(2, 8, 8) % 256


def told(**parts):
    return json.dumps({"inputs": IMAGES.tolist(), "expert": "split1", **parts}).encode()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_json_and_npy_say_the_same():
    first = query_of(told(labels=[1, 2]), "application/json; charset=utf-8", {}, NAMES)
    second = query_of(npy(IMAGES.astype(np.uint8)), "application/x-npy", {"expert": "split1"}, NAMES)
    assert first.inputs.shape == (2, 1, 8, 8) and np.array_equal(first.inputs, second.inputs)
    assert first.wanted == second.wanted == ("split1",) and first.labels.tolist() == [1, 2]
    everybody = query_of(told(expert="all"), "application/json", {}, NAMES)
    assert everybody.wanted == NAMES and everybody.ensemble


@pytest.mark.parametrize(
    "body, said",
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1, 2]", "a list"),
        (b"{}", "inputs are missing"),
        (told(temperature=1), "temperature is not known"),
        (told(expert="split9"), "split9: must be one of split1, split2, or all"),
        (told(expert=None), "must be one of"),
        (told(expert=["split1"]), "must be one of"),
        (told(inputs=[[1, 2], [3]]), "no array"),
        (told(inputs="cat"), "type"),
        (told(inputs=None), "type"),
        (told(inputs=[[["a"]]]), "type"),
        (told(inputs=[[[True]]]), "type bool"),
        (told(inputs=[1, 2, 3]), r"shape \(3,\)"),
        (told(inputs=[]), "shape"),
        (told(inputs=np.zeros((0, 8, 8)).tolist()), "shape|0 images"),
        (told(inputs=np.zeros((1, 2, 8, 8)).tolist()), "channels being 1 or 3"),
        (told(inputs=[[[float("nan")]]]), "NaN"),
        (told(inputs=[[[1e999]]]), "NaN or infinite"),
        (told(inputs=[[[10**30]]]), "type object|lie between"),
        (told(inputs=[[[256]]]), "send numbers from 0 to 255"),
        (told(inputs=[[[-1]]]), "send numbers from 0 to 255"),
        (told(inputs=[[[0] * 600]]), "sides from 1 to 512"),
        (told(labels=[1]), "2 whole numbers"),
        (told(labels=[0.5, 1]), "2 whole numbers"),
    ],
)
def test_bad_json_is_refused_in_one_sentence(body, said):
    with pytest.raises(Refused, match=said) as caught:
        query_of(body, "application/json", {}, NAMES)
    assert 400 <= caught.value.status < 500 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body, said",
    [
        (b"", "no .npy"),
        (b"\x93NUMPY", "no .npy"),
        (npy(IMAGES)[:-9], "no .npy"),
        (npy(np.array([{"a": 1}], dtype=object)), "no .npy"),
        (npy(IMAGES.astype(complex)), "type complex128"),
        (npy(np.array([["text"]])), "type"),
        (npy(np.full((1, 8, 8), np.nan)), "NaN"),
        (npy(np.zeros((SAMPLES + 1, 8, 8))), "from 1 to 256"),
    ],
)
def test_bad_npy_is_refused_and_never_unpickled(body, said):
    with pytest.raises(Refused, match=said) as caught:
        query_of(body, "application/x-npy", {"expert": "split1"}, NAMES)
    assert 400 <= caught.value.status < 500


def test_an_npy_header_that_promises_too_much_is_refused():
    header = npy(np.zeros((1, 1, 1))).replace(b"(1, 1, 1)", b"(9999999, 9999, 99)"[: len(b"(1, 1, 1)")])
    with pytest.raises(Refused):
        query_of(header, "application/x-npy", {"expert": "split1"}, NAMES)
    assert LIMIT == 4 << 20


def test_other_types_are_refused():
    with pytest.raises(Refused, match="send application/json") as caught:
        query_of(told(), "text/plain", {}, NAMES)
    assert caught.value.status == 415


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"port": 70000}, "serve.port=70000"),
        ({"port": True}, "serve.port=True"),
        ({"percentile": 100}, "serve.percentile=100"),
        ({"patience": 0}, "serve.patience=0"),
        ({"seconds": -1}, "serve.seconds=-1"),
        ({"learning": 2}, "serve.learning=2"),
        ({"admin": "yes"}, "serve.admin=yes"),
        ({"admin": True, "host": "0.0.0.0"}, "from this machine only"),
        ({"port": -1, "percentile": 0}, "serve.port=-1.*serve.percentile=0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Serving(**settings)


def test_preparing_what_was_sent_leaves_it_as_it_was():
    sent = torch.full((1, 1, 8, 8), 255.0)
    ready = prepared(sent, image_size=8, padding=0, mean=(0.5,) * 3, std=(0.5,) * 3)
    assert torch.equal(sent, torch.full((1, 1, 8, 8), 255.0)) and torch.equal(ready, torch.ones(1, 3, 8, 8))
