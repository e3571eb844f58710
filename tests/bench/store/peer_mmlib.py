"""MMLib's three approaches, run as they are, on files in place of MongoDB.

MMLib is no package of an index: it is imported from a folder that holds a checkout of it. It was
written for PyTorch 1.7 and Python 3.8; one name that PyTorch has renamed since is given back to
it, and its documents go to one BSON file each, by the encoding that MongoDB itself uses. Nothing
of it is synchronised to the disk, as it does not ask for that.

Not run: bfloat16. MMLib hashes tensors through numpy, which has no such type.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

Approach = Literal["baseline", "update", "provenance"]
SERVICES: dict[Approach, str] = {
    "baseline": "BaselineSaveService",
    "update": "WeightUpdateSaveService",
    "provenance": "ProvenanceSaveService",
}


class MMLib:
    """One store of MMLib's, in a folder of its own.

    Args:
        source: the folder that holds the package `mmlib`.
        folder: an empty one.
    """

    def __init__(self, source: Path, folder: Path, approach: Approach) -> None:
        _import_from(source)
        self.folder = folder
        for name in ("files", "documents"):
            (folder / name).mkdir(parents=True)
        files = _mmlib("persistence").FileSystemPersistenceService(str(folder / "files"))
        documents = _document_files(folder / "documents")
        self._service = getattr(_mmlib("save"), SERVICES[approach])(files, documents)
        with quiet():
            self._environment = _mmlib("track_env").track_current_environment()

    def save(self, module: nn.Module, parent: str | None = None) -> str:
        """Save a module of one of `mmlib_networks`' classes; return its id."""
        builder = _mmlib("schema.save_info_builder").ModelSaveInfoBuilder()
        builder.add_model_info(model=module, env=self._environment, base_model_id=parent)
        return self._save(builder)

    def train(self, parent: str, training: Training, module: nn.Module) -> tuple[str, nn.Module]:
        """Save the recipe of a training, train the parent's module; return id and module.

        MMLib wants the recipe saved first, as the optimizer's state belongs to it, and adds the
        hash of the weights to it afterwards.
        """
        builder = _mmlib("schema.save_info_builder").ModelSaveInfoBuilder()
        builder.add_model_info(base_model_id=parent, env=self._environment)
        builder.add_prov_data(
            raw_data_path=str(training.data),
            train_kwargs={"lr": training.lr},
            train_service_wrapper=training.wrapper,
        )
        saved = self._save(builder)
        with deterministic(), torch.enable_grad():
            training.service.train(module, lr=training.lr)
        self._service.add_weights_hash_info(saved, module)
        return saved, module

    def recover(self, model_id: str) -> nn.Module:
        """Return a saved module, checked as MMLib does by default."""
        with quiet(), deterministic():
            module: nn.Module = self._service.recover_model(model_id).model
        return module

    def stored_bytes(self) -> int:
        """Return the bytes of everything stored so far."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _save(self, builder: Any) -> str:
        with quiet():
            saved: str = self._service.save_model(builder.build())
        return saved


@dataclass(frozen=True, slots=True)
class Training:
    """A training over the pictures x.npy and y.npy of a folder."""

    data: Path
    wrapper: Any
    service: Any
    lr: float


def training(module: nn.Module, data: Path, scratch: Path, *, lr: float = 0.01) -> Training:
    """Return a training of a module that MMLib can store; import mmlib first, by `MMLib`.

    Args:
        scratch: a folder for MMLib's settings and for the data of a training that it repeats.
    """
    own = _own("mmlib_training")
    settings = scratch / "mmlib.ini"
    settings.write_text(f"[VALUES]\ncurrent_data_root = {scratch / 'current'}\n")
    os.environ["MMLIB_CONFIG"] = str(settings)  # MMLib reads it when it repeats a training
    wrap = _mmlib("schema.restorable_object")
    pictures = _own("mmlib_pictures").PictureFolder(str(data))
    loading: dict[str, Any] = {"batch_size": 16, "shuffle": True}
    loader = torch.utils.data.DataLoader(pictures, **loading)
    service = own.OneEpoch()
    service.state_objs = {
        "data": wrap.RestorableObjectWrapper(
            config_args={"root": "current_data_root"}, instance=pictures
        ),
        "loader": wrap.RestorableObjectWrapper(
            import_cmd="from torch.utils.data import DataLoader",
            init_args=loading,
            init_ref_type_args=["dataset"],
            instance=loader,
        ),
        "optimizer": wrap.StateFileRestorableObjectWrapper(
            init_args={"lr": lr, "momentum": 0.9},
            init_ref_type_args=["params"],
            instance=_own("mmlib_optimizer").StoredSGD(module.parameters(), lr=lr, momentum=0.9),
        ),
    }
    return Training(data, own.OneEpochWrapper(instance=service), service, lr)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Take back the switch that MMLib turns on for good when it trains."""
    before = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what MMLib prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _import_from(source: Path) -> None:
    if not (source / "mmlib" / "save.py").is_file():
        raise FileNotFoundError(f"{source} holds no package mmlib")
    if str(source) not in sys.path:
        sys.path.append(str(source))
    if not hasattr(torch, "set_deterministic"):  # its name before PyTorch 1.8
        renamed: Callable[[bool], None] = torch.use_deterministic_algorithms
        torch.set_deterministic = renamed  # type: ignore[attr-defined]


def _mmlib(name: str) -> ModuleType:
    return importlib.import_module(f"mmlib.{name}")


def _own(name: str) -> ModuleType:
    """Import a file of this folder by its bare name: MMLib stores the file and imports that."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def network(name: str, module: nn.Module) -> nn.Module:
    """Return a module's weights in the class that MMLib can build again."""
    classes: dict[str, type[nn.Module]] = _own("mmlib_networks").CLASSES
    with torch.device("meta"):
        built = classes[name]()
    built.load_state_dict(module.state_dict(), assign=True)
    return built.eval()


def _document_files(folder: Path) -> Any:
    """Return MMLib's dictionary service over one BSON file for each document."""
    bson = importlib.import_module("bson")
    base = _mmlib("persistence").DictPersistenceService

    def path(key: str, kind: str) -> Path:
        return folder / kind / key.removeprefix("dict-")

    class DocumentFiles(base):  # type: ignore[misc, valid-type]
        def generate_id(self) -> str:
            return uuid.uuid4().hex

        def save_dict(self, insert_dict: dict[str, Any], represent_type: str) -> str:
            key = str(insert_dict.get("id") or self.generate_id())
            (folder / represent_type).mkdir(exist_ok=True)
            path(key, represent_type).write_bytes(bson.encode(insert_dict))
            return key

        def recover_dict(self, dict_id: str, represent_type: str) -> dict[str, Any]:
            found: dict[str, Any] = bson.decode(path(dict_id, represent_type).read_bytes())
            return found

        def dict_size(self, dict_id: str, represent_type: str) -> int:
            return path(dict_id, represent_type).stat().st_size

        def id_exists(self, dict_id: str, represent_type: str) -> bool:
            return path(dict_id, represent_type).exists()

        def all_ids_for_type(self, represent_type: str) -> list[str]:
            return [file.name for file in (folder / represent_type).iterdir()]

        def add_field(self, dict_id: str, represent_type: str, add_dict: dict[str, Any]) -> None:
            self.save_dict(self.recover_dict(dict_id, represent_type) | add_dict, represent_type)

    return DocumentFiles()
