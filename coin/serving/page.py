"""The page at /: servers to slow and to kill, and what becomes of the answers meanwhile."""

from importlib.resources import files
from string import Template

from coin.report.page import digest

WEB = files("coin.serving") / "web"


def page(token: str | None) -> str:
    """With the token of the admin calls, if there are any; its own policy names the one script that may run."""
    script = "\n".join(["'use strict';", *((WEB / name).read_text() for name in ("charts.js", "service.js"))])
    return Template((WEB / "service.html").read_text()).substitute(
        allowed=f"'sha256-{digest(script)}'",
        token=f'<meta name="token" content="{token}">' if token else "",
        style=(WEB / "service.css").read_text(),
        script=script,
    )
