"""Keeps Ray on this machine's loopback, which takes more than telling it an address (Ray 2.60).

- `_node_ip_address="127.0.0.1"` is resolved to an address that others can reach, unless the variable below is 0; then
  every port of Ray's own processes is bound to loopback.
- A replica of Ray Serve opens one more port, for calls between deployments, on all interfaces ("[::]:0" in its source).
  Whoever reaches it can have code run, so it is bound to loopback too.
"""

import functools
import os

ADDRESS = "127.0.0.1"
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def forbid_clusters() -> None:
    """Before Ray is imported for the first time."""
    os.environ[CLUSTERS] = "0"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers


def stay_on_loopback() -> None:
    """In a replica's constructor, which runs before that port is opened."""
    from ray.serve._private import replica

    bind = getattr(replica, "add_port_to_grpc_server", None)
    if bind is None:
        raise RuntimeError(
            "this version of Ray Serve opens its ports elsewhere: coin.serving.loopback has to be adapted"
        )
    if isinstance(bind, functools.partial):
        return  # done before

    def bound(server: object, address: str) -> int:
        return int(bind(server, address.replace("[::]", ADDRESS)))

    setattr(replica, "add_port_to_grpc_server", functools.partial(bound))  # noqa: B010 (a name that is not theirs to give)
