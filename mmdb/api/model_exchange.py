"""Models from and to files and other databases, and probes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mmdb.api.calls import Calls
from mmdb.db.queries import load
from mmdb.errors import NotFound

if TYPE_CHECKING:
    from mmdb.probe import ProbeSummary
    from mmdb.store.files.exchange import Exported, Imported
    from mmdb.store.files.zoo_exchange import ZooExported, ZooImported
    from mmdb.store.models.recover import Verify
    from mmdb.store.sync.push_pull import CopyReport
    from mmdb.train.replay.imported import Attached


Format = Literal["auto", "safetensors", "torch", "huggingface", "peft"]
_Path = str | os.PathLike[str]
_Report = Callable[[int, int], None]
_Weights = Literal["auto", "always", "never"]


class ExchangeCalls(Calls):
    """Part of `Database`."""

    def import_model(
        self,
        source: _Path,
        name: str,
        *,
        parent: str | None = None,
        approach: str = "auto",
        format: Format = "auto",
        key: str | None = None,
        skip: bool = False,
        architecture: str | Mapping[str, Any] | None = None,
        input_shape: Sequence[int] | None = None,
        outputs: int | None = None,
        dataset: str | None = None,
    ) -> Imported:
        """Save the tensors of a file or folder as the next version of a model; docs/exchange.md.

        Args:
            format: told by what the source looks like if "auto"; a folder of peft is an adapter of
                `parent`.
            key: entry of a torch file that is the state dict.
            skip: leave out what is not a tensor.
            architecture: what builds the module; left out, what the source says: mmdb itself, or
                the config.json of transformers or timm, where the library is installed.
            input_shape, outputs: of the architecture; the dataset's, or the source's.
            dataset: whose rows the model reads from now on, so that `predict` takes raw ones.
        Raises:
            FileError: the source cannot be read, is damaged or unsafe.
            ModelNotFound, InvalidName, NoParent
            ArchitectureError, ModuleMismatch, DatasetNotFound: architecture or dataset do not fit.
        """
        from mmdb.train.replay.imported import ImportRequest, import_source

        wanted = ImportRequest(
            architecture=architecture, input_shape=input_shape, outputs=outputs, dataset=dataset
        )
        return import_source(
            self.connection,
            source,
            name,
            wanted,
            parent=parent,
            approach=approach,
            format=format,
            key=key,
            skip=skip,
        )

    def attach_model(
        self,
        model: str,
        *,
        architecture: str | Mapping[str, Any] | None = None,
        dataset: str | None = None,
        input_shape: Sequence[int] | None = None,
        outputs: int | None = None,
    ) -> Attached:
        """Give a model that was imported or saved without them its architecture and dataset.

        What does not fit is refused as at an import. No tensor is copied: it is the same version.

        Args:
            architecture: what builds the module; left out, what it has, or its config.json says.
            dataset: whose rows the model reads from now on, so that `predict` takes raw ones.
            input_shape, outputs: of an architecture without a dataset.
        Raises:
            AlreadyExists: it has an architecture, or a dataset, already.
            ModelNotFound, DatasetNotFound, RightsMissing, InvalidOption
            ArchitectureError, ModuleMismatch, ImportMismatch: they do not fit the tensors.
        """
        from mmdb.train.replay.imported import ImportRequest, attach

        wanted = ImportRequest(
            architecture=architecture, input_shape=input_shape, outputs=outputs, dataset=dataset
        )
        return attach(self.connection, model, wanted)

    def export_model(
        self,
        model: str,
        target: _Path,
        *,
        format: Format = "auto",
        overwrite: bool = False,
        max_shard_bytes: int = 5_000_000_000,
    ) -> Exported:
        """Write a model to a file or folder, verified while it is read; docs/exchange.md.

        Args:
            format: told by the target's suffix if "auto"; "peft" writes a model's adapter alone.
            max_shard_bytes: of one file of a Hugging Face folder.
        Raises:
            ModelNotFound, CorruptTensor, FileError, RecipeError, InvalidOption
        """
        from mmdb.arguments import check_flag
        from mmdb.store.files.adapter_exchange import export_adapter
        from mmdb.store.files.exchange import export_model
        from mmdb.train.replay.recipe_replay import recover_module

        if format == "peft":
            return export_adapter(self.connection, model, target, replay=recover_module)
        return export_model(
            self.connection,
            model,
            target,
            format=format,
            overwrite=check_flag(overwrite, "overwrite"),
            max_shard_bytes=max_shard_bytes,
            replay=recover_module,
        )

    def import_zoo(self, folder: _Path) -> ZooImported:
        """Save every version of a zoo's folder under its own name and number; docs/exchange.md.

        Raises:
            FileError, AlreadyExists
        """
        from mmdb.store.files.zoo_exchange import import_zoo

        return import_zoo(self.connection, folder)

    def export_zoo(self, folder: _Path, names: Sequence[str] | None = None) -> ZooExported:
        """Write all versions of all models, or of those named, to a folder; docs/exchange.md.

        Raises:
            ModelNotFound, CorruptTensor, FileError, RecipeError
        """
        from mmdb.store.files.zoo_exchange import export_zoo
        from mmdb.train.replay.recipe_replay import recover_module

        wanted = [names] if isinstance(names, str) else names
        return export_zoo(self.connection, folder, wanted, replay=recover_module)

    def probe(
        self, model: str, inputs: Any, *, save_as: str | None = None, **options: Any
    ) -> ProbeSummary:
        """Run a recovered model and return digests of what each layer took and gave.

        Args:
            inputs: see `mmdb.probe.probe`, as are the options.
            save_as: also keep the summary in the database under this name.
        Raises:
            ModelNotFound, InvalidOption, InvalidInput, TrainingFailed
        """
        from mmdb.probe import probe
        from mmdb.store.models.model_rows import find_model
        from mmdb.train.replay.recipe_replay import recover_module

        found = find_model(self.connection, model)
        summary = probe(recover_module(self.connection, found), inputs, **options)
        if save_as is not None:
            self.save_probe(save_as, summary, model=model)
        return summary

    def save_probe(self, name: str, summary: ProbeSummary, *, model: str | None = None) -> None:
        """Keep a summary under a name; an older one of that name stays.

        Raises:
            ModelNotFound
        """
        from mmdb.store.models.model_rows import find_model

        model_id = find_model(self.connection, model).model_id if model is not None else None
        self.connection.run(
            load("registry").add_probe, name=name, model_id=model_id, summary=summary.to_json()
        )

    def find_probe(self, name: str) -> ProbeSummary:
        """Return the newest summary of a name.

        Raises:
            NotFound
        """
        from mmdb.probe import ProbeSummary

        rows = self.connection.rows(load("registry").find_probe, name=name)
        if not rows:
            raise NotFound(f"There is no probe named {name!r}.", hint="db.save_probe keeps one.")
        return ProbeSummary.from_json(rows[0]["summary"])

    def push(
        self,
        model: str,
        *,
        to: str,
        name: str | None = None,
        version: Literal["next"] | None = None,
        all_versions: bool = False,
        aliases: bool = False,
        data: bool = False,
        weights: _Weights = "auto",
        verify: Verify = "full",
        on_progress: _Report | None = None,
    ) -> CopyReport:
        """Copy a model into the database of a URL, sending what it lacks; docs/sync.md.

        Args:
            to: a DuckDB file is made as needed.
            name, version: "next" for the next free version, where the same is taken there.
            all_versions: of the name, oldest first.
            aliases: of this version, too.
            data: the datasets behind it, too.
            weights: of a model that is kept as a recipe.
            on_progress: called with the stored bytes sent and to be sent, as far as planned.
        Raises:
            ModelNotFound, AlreadyExists, InvalidOption, InTransaction
            WrongUrl, NotInstalled, RightsMissing
            ConnectionLost: call again; what has arrived is not sent again.
            CorruptTensor, NotReplayable
        """
        from mmdb.store.sync.push_pull import CopyOptions, push
        from mmdb.train.replay.recipe_replay import recover_module

        return push(
            self.connection,
            model,
            to=to,
            options=CopyOptions(name, version, aliases, data, weights, verify),
            all_versions=all_versions,
            replay=recover_module,
            on_progress=on_progress,
        )

    def pull(
        self,
        model: str,
        *,
        from_: str,
        name: str | None = None,
        version: Literal["next"] | None = None,
        all_versions: bool = False,
        aliases: bool = False,
        data: bool = False,
        weights: _Weights = "auto",
        verify: Verify = "full",
        on_progress: _Report | None = None,
    ) -> CopyReport:
        """Copy a model out of the database of a URL; see `push`."""
        from mmdb.store.sync.push_pull import CopyOptions, pull
        from mmdb.train.replay.recipe_replay import recover_module

        return pull(
            self.connection,
            model,
            from_=from_,
            options=CopyOptions(name, version, aliases, data, weights, verify),
            all_versions=all_versions,
            replay=recover_module,
            on_progress=on_progress,
        )
