"""Pictures: JPEG or PNG files of any size, decoded to rows of bytes of one size.

Files come from tables, so from anybody: no other format is opened, and none that holds more pixels
than `MOST_PIXELS`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from mmdb.data.options import Options
from mmdb.data.transform.transform import FittedTransform
from mmdb.db.connection import ColumnType, Connection
from mmdb.db.queries import quote_name

#: How files begin that are taken for pictures unless they are told otherwise.
_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
#: Of one file: more takes more memory than a row may.
MOST_PIXELS = 50_000_000
#: By the number of channels, what Pillow calls the mode.
_MODES = {1: "L", 3: "RGB"}


def decode(given: FittedTransform, file: bytes) -> np.ndarray:
    """Return a picture as its transform says, uint8 (channels * height * width,).

    It is made smaller or larger by Pillow's bilinear filter, whatever its proportions were; a JPEG
    that is twice as large in both directions, or more, is first halved as it is decoded.

    Raises:
        ValueError: the bytes are no such file, damaged, or of too many pixels.
    """
    channels, height, width = given.statistics["shape"]
    try:
        with Image.open(io.BytesIO(file), formats=("JPEG", "PNG")) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError(f"{picture.width} x {picture.height} pixels are too many")
            picture.draft(_MODES[channels], (width, height))
            picture.load()
            found: Image.Image = picture
            if picture.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
                whole = np.asarray(picture, np.uint32)
                found = Image.fromarray(((whole + 128) // 257).astype(np.uint8))
            if found.mode != _MODES[channels]:
                found = found.convert(_MODES[channels])
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # Pillow's decoders raise whatever a damaged file makes them
        raise ValueError(f"no JPEG or PNG that can be read ({type(error).__name__})") from error
    if found.size != (width, height):
        found = found.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(found).reshape(height, width, channels).transpose(2, 0, 1).reshape(-1)


def decode_all(
    given: FittedTransform, files: Sequence[bytes | None]
) -> tuple[np.ndarray, dict[int, str]]:
    """Return pictures, uint8 (n, pixels), and why some could not be decoded, by their place."""
    pixels = np.zeros((len(files), len(given.names)), np.uint8)
    failed = {}
    for place, file in enumerate(files):
        try:
            if file is None:
                raise ValueError("it is NULL")
            pixels[place] = decode(given, file)
        except ValueError as error:
            failed[place] = str(error)
    return pixels, failed


def picture_transform(asked: Mapping[str, Any]) -> FittedTransform:
    """Return the transform of a column of pictures: nothing is fitted but their size."""
    height, width = asked.get("size", (32, 32))
    shape = [asked.get("channels", 3), height, width]
    parameters = {key: value for key, value in asked.items() if key != "kind"}
    return FittedTransform(
        kind="picture", source="picture", parameters=parameters, statistics={"shape": shape}
    )


def with_pictures(
    connection: Connection,
    select: str,
    columns: Iterable[tuple[str, ColumnType]],
    options: Options,
) -> Options:
    """Return options in which byte strings that begin as JPEG or PNG files are pictures.

    Args:
        select: the query, ready to be put in parentheses.
    """
    found = {
        name: "picture"
        for name, kind in columns
        if kind == "bytes"
        and name not in options.roles
        and options.transforms.get(name, "auto") == "auto"
        and _first(connection, select, name).startswith(_BEGINNINGS)
    }
    return replace(options, transforms={**options.transforms, **found})


def _first(connection: Connection, select: str, name: str) -> bytes:
    """Return a value of a column; empty where there is none."""
    column = quote_name(name)
    one = f"SELECT {column} AS found FROM ({select}\n) AS q WHERE {column} IS NOT NULL LIMIT 1"
    with connection.snapshot():
        for batch in connection.scan(one, [("found", "files")]):
            return bytes(batch["found"][0])
    return b""
