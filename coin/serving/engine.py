"""Starts a service on Ray Serve, each server a process of its own, and ends all that it started. Imports Ray lazily."""

import logging
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coin.lab.coded import Coded, load, load_expert
from coin.serving.loopback import ADDRESS, forbid_clusters
from coin.serving.policies import CODED, Policy
from coin.serving.policies import Coded as CodedPolicy
from coin.serving.settings import Serving
from coin.serving.workers import Network, Worker

APP = "coin"
SERVER: dict[str, Any] = {
    "num_replicas": 1,
    "ray_actor_options": {"num_cpus": 0.1},
    "max_ongoing_requests": 10_000,  # they queue in the server itself
    "health_check_period_s": 1,  # a dead one is started again after that
    "health_check_timeout_s": 10,
    "graceful_shutdown_timeout_s": 1,
}


@dataclass
class Service:
    address: str  # http://…
    metrics: str  # the address of Ray's Prometheus metrics
    token: str | None
    handle: Any = None  # of the router, for calls from Python


def policy_of(coded: Coded) -> CodedPolicy:
    """What a run's decoder needs: the coded answer alone, or the others' too."""
    if len(coded.networks) != 1:
        raise ValueError(
            f"the run has {len(coded.networks)} coded networks; one is served, so run encode.py with coded=1"
        )
    strangers = [e["name"] for e in coded.facts["experts"] if "image_size" not in (e.get("preparation") or {})]
    if strangers:
        raise ValueError(f"expert {strangers[0]} reads no images, and images are all that is served so far")
    return CodedPolicy(coded.experts, alone=getattr(coded.decoder, "alone", False))


def networks(folder: Path, policy: Policy) -> dict[str, Worker]:
    """A worker for each of the policy's servers; what cannot be served is said before anything is started."""
    for name in policy.experts:
        load_expert(folder, name)
    return {name: Network(folder, name) for name in (*policy.experts, CODED)}


@contextmanager
def cluster(serving: Serving) -> Iterator[None]:
    """Ray: joined where there is one, otherwise started here on loopback, and ended."""
    try:
        forbid_clusters()
        import ray
        from ray import serve
    except ImportError as error:
        raise ValueError("serving needs Ray: pip install -e '.[serve]'") from error
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    told: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}
    if serving.address is not None:
        try:
            ray.init(address=serving.address, **told)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(f"serve.address={serving.address}: no Ray cluster answers there ({error})") from error
    else:
        told["_metrics_export_port"] = serving.metrics_port
        ray.init(_node_ip_address=ADDRESS, num_cpus=16, include_dashboard=False, **told)
    try:
        yield
    finally:
        if serving.address is not None:
            serve.delete(APP)
        ray.shutdown()


@contextmanager
def service(
    folder: Path,
    serving: Serving,
    policy: Policy | None = None,
    workers: Mapping[str, Worker] | None = None,
    **front: Any,
) -> Iterator[Service]:
    """Serves an encode run's networks, or other `workers` in their places, until the block ends."""
    policy = policy or policy_of(load(folder))
    workers = workers or networks(folder, policy)
    serving = replace(
        serving, port=free_port(serving.host, serving.port), metrics_port=free_port(ADDRESS, serving.metrics_port)
    )
    with cluster(serving):
        from ray import serve

        from coin.serving.ingress import Front, Ingress
        from coin.serving.replicas import Replica

        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": serving.host, "port": serving.port},
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
        token = secrets.token_urlsafe(24) if serving.admin else None
        names = [f"{host}:{serving.port}" for host in dict.fromkeys([serving.host, ADDRESS, "localhost"])]
        local = serving.address is None
        kind = serve.deployment(**SERVER)
        servers = {name: kind(Replica).options(name=name).bind(worker, local) for name, worker in workers.items()}
        made = Front(folder, policy, serving, names, token, **front)
        handle = serve.run(kind(Ingress).options(name="router").bind(made, servers), name=APP, route_prefix="/")
        metrics = f"http://{ADDRESS}:{serving.metrics_port}/metrics" if local else "the cluster's own"
        yield Service(f"http://{names[0]}", metrics, token, handle)


def free_port(host: str, port: int) -> int:
    """The port, or any that is free for 0; one that is taken is said before anything is started."""
    try:
        with socket.create_server((host, port)) as tried:
            return int(tried.getsockname()[1])
    except OSError as error:
        raise ValueError(
            f"serve.host={host} serve.port={port}: {error.strerror}; give another, or 0 for any that is free"
        ) from error
