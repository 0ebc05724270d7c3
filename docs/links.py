"""A hook of MkDocs: the site holds docs/ alone, so links to other files of the project become their paths.

In the sources they are ordinary relative links, `[CONTRIBUTING](../CONTRIBUTING.md)`, which any Git viewer follows.
"""

import logging
import os
import re
from pathlib import Path

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)(#[^)]*)?\)")
log = logging.getLogger("mkdocs.hooks.links")  # its warnings are errors of a strict build


def on_page_markdown(markdown, page, config, files):
    folder = Path(page.file.abs_src_path).parent
    root = Path(config.config_file_path).parent

    def path_of(match):
        text, target = match[1], (folder / match[2]).resolve()
        if not target.exists():
            log.warning("%s links to %s, which is not there", page.file.src_uri, match[2])
        path = os.path.relpath(target, root)
        return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"

    return OUTSIDE.sub(path_of, markdown)
