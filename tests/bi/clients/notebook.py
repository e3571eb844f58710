"""Executes a notebook whose kernel is another Python: `notebook.py PYTHON FOLDER CELLS`.

CELLS is a JSON list of sources. What is printed is the outputs of each cell, a list by MIME type.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

#: The kernel comes last on the path of a Python that has packages of its own.
START = (
    "import sys; sys.path.append({site!r}); "
    "from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
)


class OnePython(KernelSpecManager):  # type: ignore[misc]
    """Knows the one kernel."""

    python = ""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return it, whatever its name."""
        start = START.format(site=sysconfig.get_path("purelib"))
        return KernelSpec(
            argv=[self.python, "-c", start, "-f", "{connection_file}"],
            display_name="mmdb",
            language="python",
        )


def main(python: str, folder: str, cells: str) -> None:
    """Print the outputs of the cells."""
    OnePython.python = python
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in json.loads(cells)]
    )
    manager = AsyncKernelManager(kernel_spec_manager=OnePython())
    NotebookClient(
        notebook, km=manager, timeout=120, resources={"metadata": {"path": folder}}
    ).execute()
    nbformat.write(notebook, Path(folder) / "done.ipynb")
    print(json.dumps([[_shown(output) for output in cell.outputs] for cell in notebook.cells]))


def _shown(output: Any) -> dict[str, str]:
    return dict(output.get("data", {output.output_type: output.get("text", "")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
