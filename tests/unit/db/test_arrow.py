"""Values between numpy and pyarrow: as pyarrow itself does it, numbers without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from mmdb.db.arrow import to_arrow, to_nullable_numpy, to_numpy

DTYPES = ("int8", "uint8", "int32", "int64", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 100])
def test_numbers_come_and_go_as_in_pyarrow(dtype: str, count: int) -> None:
    generator = np.random.default_rng(count)
    values = generator.integers(0, 100, 2 * count).astype(dtype)[::2]  # not one after the other
    missing = generator.random(count) < 0.3
    assert to_arrow(values).equals(pa.array(values))
    assert to_arrow(values, missing).equals(pa.array(values, mask=missing))
    found = to_numpy(pa.array(values)[count // 2 :])
    assert found.dtype == dtype
    assert found.tolist() == values[count // 2 :].tolist()
    there, gone = to_nullable_numpy(pa.array(values, mask=missing)[count // 3 :])
    assert gone.tolist() == missing[count // 3 :].tolist()
    assert there[~gone].tolist() == values[count // 3 :][~gone].tolist()


@pytest.mark.parametrize("values", [[1, None], ["a"], [True], [None]])
def test_what_is_no_number_is_refused(values: list[object]) -> None:
    with pytest.raises(pa.ArrowException):
        to_numpy(pa.array(values))


def test_no_pandas_is_loaded() -> None:
    code = (
        "import sys, numpy as np; from mmdb.db.arrow import to_arrow, to_numpy\n"
        "assert to_numpy(to_arrow(np.arange(3))).sum() == 3 and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


_INTERRUPTED = """
import signal, sys
import pyarrow as pa
from mmdb.db.arrow import to_array

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas._libs.tslibs.dtypes":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    to_array([1, None], pa.int64())
except KeyboardInterrupt:
    assert to_array([1, None], pa.int64()).null_count == 1
    import pandas
    print(len(pandas.Series([1])), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a_ctrl_c_waits_until_pandas_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True)
    assert done.stdout == "1 True\n", done.stderr
