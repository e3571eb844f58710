"""What `import mmdb` offers is a decision."""

from __future__ import annotations

from types import ModuleType

import mmdb


def test_all_is_sorted() -> None:
    assert list(mmdb.__all__) == sorted(mmdb.__all__)


def test_all_names_every_public_name() -> None:
    public = {
        name
        for name, value in vars(mmdb).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - {"annotations"} == {name for name in mmdb.__all__ if not name.startswith("_")}
