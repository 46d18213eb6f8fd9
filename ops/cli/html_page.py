"""Reports as one HTML file that loads nothing: the frame, the styles and the script that all of them share."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npu_sim.errors import MissingExtraError
from ops.cli.usage import UsageError

SUFFIXES = (".html", ".htm")
_TEMPLATES = Path(__file__).parent / "templates"


def require_jinja() -> None:
    """Refuse early if no HTML can be made.

    Raises
    ------
    MissingExtraError
        jinja2 cannot be imported.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "An HTML report must have jinja2, which is not installed; run: pip install jinja2 (the extra report)"
        ) from error


def html_path(text: str | None) -> Path | None:
    """Return where the option ``--html`` puts the page; None for nowhere.

    Raises
    ------
    UsageError
        The name is not one of such a file.
    MissingExtraError
        jinja2 cannot be imported.
    """
    if text is None:
        return None
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"HTML report must be a {', '.join(SUFFIXES)} file, not {text}")
    require_jinja()
    return path


def render_page(name: str, contents: Mapping[str, Any], document: Any) -> bytes:
    """Return the page of a report.

    Parameters
    ----------
    name : str
        Of the report: ``templates/<name>.html.j2`` extends the frame, ``templates/<name>.css`` the common styles.
    contents : mapping of str to object
        What the template is given; "title" is the page's.
    document : object
        Plain data, the report's JSON.

    Returns
    -------
    bytes
        HTML 5 in UTF-8, with styles, script and the JSON (the element ``report``) inside.

    Raises
    ------
    MissingExtraError
        jinja2 is not installed.
    """
    require_jinja()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = "".join((_TEMPLATES / file).read_text(encoding="utf-8") for file in ("page.css", f"{name}.css"))
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    # Raw text ends at the first "</", whatever it is in; inside of JSON's strings the escape is the same character.
    data = json.dumps(document, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    page = environment.get_template(f"{name}.html.j2").render(
        **contents,
        name=name,
        style=style,
        script=script,
        data=data,
        policy=f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; img-src data:",
    )
    return page.encode()


def _source(text: str) -> str:
    """Return how a content security policy allows this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
