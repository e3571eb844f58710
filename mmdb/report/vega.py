"""The edge to vl-convert, which brings Vega and Vega-Lite along and draws without a browser."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from mmdb.errors import EngineError
from mmdb.report.parts import Spec

#: Of Vega-Lite, so that a page and a picture are drawn by the same one.
VERSION = "6.4"
#: Pixels for each point of a picture: sharp on paper and on dense screens.
SCALE = 2
_LIBRARIES = "window.vegaEmbed = vegaEmbed;"
#: Characters that XML cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOTICE = (
    "/* Vega, Vega-Lite and Vega-Embed. Copyright (c) University of Washington Interactive Data "
    "Lab and contributors. BSD-3-Clause. */\n"
)


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise EngineError(
            "Charts are drawn by vl-convert, which is not installed.",
            hint="pip install 'mmdb-learn[report]'; a report as JSON needs none of it.",
        ) from error
    return vl_convert


def svg(spec: Spec, config: dict[str, Any]) -> bytes:
    """Return a chart as SVG.

    Raises:
        EngineError: vl-convert is not installed.
    """
    drawn: str = _converter().vegalite_to_svg(
        _full(spec), vl_version=VERSION, config=config, allowed_base_urls=[]
    )
    return drawn.encode()


def png(spec: Spec, config: dict[str, Any]) -> bytes:
    """Return a chart as PNG.

    Raises:
        EngineError: vl-convert is not installed.
    """
    drawn: bytes = _converter().vegalite_to_png(
        _full(spec), vl_version=VERSION, config=config, scale=SCALE, allowed_base_urls=[]
    )
    return drawn


def png_of(drawn: str) -> bytes:
    """Return an SVG as PNG; control characters in its texts become the sign for unknown ones.

    Raises:
        EngineError: vl-convert is not installed.
    """
    found: bytes = _converter().svg_to_png(_NOT_XML.sub("\ufffd", drawn), scale=SCALE)
    return found


@cache
def libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script for a page.

    Raises:
        EngineError: vl-convert is not installed.
    """
    bundle: str = _converter().javascript_bundle(_LIBRARIES, vl_version=VERSION)
    return _NOTICE + bundle


def _full(spec: Spec) -> Spec:
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", **spec}
