"""Serves the page of a folder on this machine alone, while its runs come in."""

import hashlib
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rich.console import Console

from coin.report.jobs import LOCK, is_running
from coin.report.page import as_json, content, page

ADDRESS = "127.0.0.1"
NAMES = ("results.json", "runs.jsonl", "error.txt", LOCK, "hydra.yaml")


class Watch:
    """What is to be said of a folder; it is read again only when something in it has changed."""

    def __init__(self, folder: Path):
        self.folder, self.lock = folder, threading.Lock()
        self.stamp = ""
        self.data: dict[str, Any] = {"title": str(folder), "axes": {}, "cells": [], "runs": []}

    def renew(self) -> None:
        with self.lock:
            seen = sorted(path for name in NAMES for path in self.folder.rglob(name))
            facts = [(str(p), is_running(p.parent) if p.name == LOCK else modified(p)) for p in seen]
            stamp = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
            if stamp == self.stamp:
                return
            try:
                self.data = {**content(self.folder), "stamp": stamp, "problem": None}
            except ValueError as error:  # a damaged file: the rest stays as it was
                self.data = {**self.data, "stamp": stamp, "problem": str(error)}
            self.stamp = stamp


def modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None  # gone in the meantime


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Not serving yet; port 0 is any that is free."""
    watch = Watch(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            names = (f"{ADDRESS}:{self.server.server_port}", f"localhost:{self.server.server_port}")  # type: ignore[attr-defined]
            if self.headers.get("Host") not in names:  # another site's name that leads here
                return self.send_error(403)
            if asked.path not in ("/", "/data.json"):
                return self.send_error(404)
            watch.renew()
            if asked.path == "/":
                return self.answer("text/html", page(watch.data, live=True))
            if parse_qs(asked.query).get("since") == [watch.stamp]:
                return self.answer("application/json", "null")
            return self.answer("application/json", as_json(watch.data))

        def answer(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            with suppress(ConnectionError):  # a reader may leave at any time
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nobody wants a line every two seconds."""

    if not 0 <= port < 65536:
        raise ValueError(f"--port {port}: must be between 1 and 65535, or 0 for any that is free")
    try:
        return ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise ValueError(f"--port {port}: {error.strerror}; give another, or 0 for any that is free") from error


def watch(folder: Path, console: Console, port: int = 0, seconds: float | None = None) -> None:
    """Serves until Ctrl-C, or for some seconds."""
    if seconds is not None and not seconds > 0:
        raise ValueError(f"--for {seconds:g}: must be a positive number of seconds")
    with server(folder, port) as serving:
        console.print(f"watching {folder} at http://{ADDRESS}:{serving.server_port}/ (Ctrl-C ends it)")
        if seconds:
            ending = threading.Timer(seconds, serving.shutdown)
            ending.daemon = True
            ending.start()
        try:
            serving.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            console.print("the watch has ended")
