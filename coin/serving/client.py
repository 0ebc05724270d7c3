"""A client of a service, in Python: `Client("http://127.0.0.1:8000").predict(images, "split1")`."""

import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Prediction:
    outputs: Any  # an array, a row an image; of all experts {name: array}
    source: Any  # exact or decoded; of all experts {name: …}
    servers: list[str]
    milliseconds: float


@dataclass
class Client:
    """Asks again, `retries` times, where nobody was there to answer: a query has no effects."""

    address: str = "http://127.0.0.1:8000"
    timeout: float = 30.0
    retries: int = 8

    def predict(self, images: Any, expert: str = "all") -> Prediction:
        """`images`: (n, height, width) or (n, channels, height, width), from 0 to 255."""
        body = io.BytesIO()
        np.save(body, np.asarray(images), allow_pickle=False)
        path = "/predict?" + urllib.parse.urlencode({"expert": expert})
        told = self.ask(path, body.getvalue(), {"Content-Type": "application/x-npy"})
        outputs = told["outputs"]
        rows = {name: np.array(part) for name, part in outputs.items()} if expert == "all" else np.array(outputs)
        return Prediction(rows, told["source"], told["servers"], told["milliseconds"])

    def health(self) -> dict[str, str]:
        servers: dict[str, str] = self.ask("/health")["servers"]
        return servers

    def ask(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(self.address + path, body, headers or {})
        for attempt in range(self.retries + 1):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise ValueError(json.loads(error.read())["error"]) from None
                problem: Exception = error
            except OSError as error:
                problem = error
            time.sleep(0.1 * 2 ** min(attempt, 4))
        raise ConnectionError(f"{self.address} does not answer ({problem})")
