"""How a service is run; all that is wrong with it is said at once."""

import ipaddress
import math
from dataclasses import dataclass
from typing import TypeGuard

from coin.lab.console import Problems, check_switches


@dataclass(frozen=True, kw_only=True)
class Serving:
    """`address` is that of a running Ray cluster to join, None for one of its own on this machine's loopback."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    admin: bool | None = None  # whether servers can be slowed and killed; None: in the demonstration only
    address: str | None = None
    percentile: float = 95.0  # of an expert's own latency: the deadline after which the coded network is asked
    patience: float = 10.0  # seconds after which a query is given up
    learning: float = 0.1  # share of the answered queries that the coded network is shown too, for the decoder to learn
    metrics_port: int = 0  # of Ray's Prometheus metrics; 0: any that is free
    seconds: float | None = None  # after which it ends by itself

    def __post_init__(self) -> None:
        problems = Problems()
        if self.admin is not None:
            problems.attempt(check_switches, {"serve.admin": self.admin}, ("serve.admin",))
        for name in ("port", "metrics_port"):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 65536):
                problems.add(f"serve.{name}={value}: must be a number from 1 to 65535, or 0 for any that is free")
        if not is_number(self.percentile) or not 0 < self.percentile < 100:
            problems.add(f"serve.percentile={self.percentile}: must lie between 0 and 100")
        if not is_number(self.learning) or not 0 <= self.learning <= 1:
            problems.add(f"serve.learning={self.learning}: must be a share from 0 to 1")
        for name in ("patience", "seconds"):
            value = getattr(self, name)
            if not (name == "seconds" and value is None) and not (is_number(value) and 0 < value < math.inf):
                problems.add(f"serve.{name}={value}: must be a positive number of seconds")
        if self.admin and not self.is_local:
            problems.add(f"serve.admin=true with serve.host={self.host}: servers are killed from this machine only")
        problems.check()

    @property
    def is_local(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
