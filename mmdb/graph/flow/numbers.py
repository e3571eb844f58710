"""What a flow says of the numbers of a tensor that no weight gives."""

from __future__ import annotations

from math import isfinite

import torch
from blake3 import blake3
from torch import Tensor

_MOST_ELEMENTS = 1 << 24


def numbers_of(values: Tensor | None) -> dict[str, object]:
    """Return arguments for a CONSTANT or BUFFER with these values.

    {"uniform": number} if all elements are one finite number; {"digest": text} of dtype, order and
    elements otherwise; {} if they are not known, or more than 2^24.
    """
    if values is None or values.is_meta or not 0 < values.numel() <= _MOST_ELEMENTS:
        return {}
    with torch._C.DisableTorchFunction():
        flat = values.detach().cpu().reshape(-1)
        if bool((flat == flat[0]).all()):
            number = flat[0].item()
            if not isinstance(number, complex) and isfinite(number):
                return {"uniform": number}
        data = flat.contiguous().view(torch.uint8).numpy().tobytes()
        return {"digest": blake3(str(values.dtype).encode() + data).hexdigest()}
