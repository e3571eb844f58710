"""Saving models, and reading them whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

from mmdb.api.calls import Calls
from mmdb.argument_types import methods_name_wrong_types
from mmdb.data.names import check_name
from mmdb.db.connection import OneSession, Source
from mmdb.errors import InvalidOption, TensorNotFound
from mmdb.messages import show

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mmdb.graph.trace.structure import NetworkGraph
    from mmdb.store.models.architectures import SharedPrefix
    from mmdb.store.models.group import GroupNetworks
    from mmdb.store.models.model_rows import SavedModel
    from mmdb.store.models.recipe import Recipe
    from mmdb.store.models.recover import Cache, ModelReader, Verify
    from mmdb.store.models.save import Saved
    from mmdb.train.warm.transfer_rows import Transferred

#: Models of groups of which a session remembers what does not change.
_GROUPED_MODELS = 16


@methods_name_wrong_types
@dataclass(frozen=True)
class Model:
    """A saved model."""

    _reader: ModelReader
    _saved: SavedModel

    @property
    def reference(self) -> str:
        """The model as `name@version`."""
        return self._saved.reference

    @property
    def approach(self) -> str:
        """How it is kept: snapshot, update or provenance."""
        return self._saved.approach

    @cached_property
    def architecture(self) -> NetworkGraph:
        """Its operations and what each reads, as they are stored: without paths of modules.

        Raises:
            DefinitionMissing: it is not known.
        """
        from mmdb.store.models.architectures import saved_architecture

        return self._reader.source.newest(lambda session: saved_architecture(session, self._saved))

    @cached_property
    def tensors(self) -> LazyTensorDict:
        """Its tensors by path."""
        return LazyTensorDict(self._reader, self._saved)

    def _repr_html_(self) -> str:
        from mmdb.report.notebook import html_or_error, model_html

        return html_or_error(
            lambda: model_html(self._saved, self._reader.catalog(self._saved).entries)
        )


class LazyTensorDict(Mapping[str, "torch.Tensor"]):
    """A state dict whose tensors are read when they are asked for, each time anew."""

    def __init__(self, reader: ModelReader, model: SavedModel) -> None:
        self._reader, self._model = reader, model

    def __getitem__(self, path: str) -> torch.Tensor:
        try:
            return self._reader.tensors(self._model, [path])[path]
        except TensorNotFound as error:
            raise KeyError(path) from error

    def __iter__(self) -> Iterator[str]:
        return (
            entry.path
            for entry in self._reader.catalog(self._model).select(None)
            if entry.kind in ("parameter", "buffer")
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def rows(self, path: str, lo: int, hi: int) -> torch.Tensor:
        """Return rows lo..hi of a tensor; no chunk is read that has none of them.

        Raises:
            TensorNotFound, CorruptTensor
        """
        return self._reader.rows(self._model, path, lo, hi)


class ModelCalls(Calls):
    """Part of `Database`."""

    reads: Source

    @cached_property
    def _outside(self) -> ModelReader:
        from mmdb.store.models.recover import ModelReader

        return ModelReader(self.reads)

    @cached_property
    def _groups(self) -> Cache[int, GroupNetworks]:
        from mmdb.store.models.recover import Cache

        return Cache(_GROUPED_MODELS)

    @property
    def _reader(self) -> ModelReader:
        """The reader to use now: nobody but the session sees what its open transaction wrote."""
        if isinstance(self.reads, OneSession) or not self.connection.in_transaction:
            return self._outside
        from mmdb.store.models.recover import ModelReader

        return ModelReader(self.connection, self._outside.kept)

    def save(
        self,
        name: str,
        module: nn.Module | Mapping[str, torch.Tensor],
        *,
        parent: str | None = None,
        approach: str = "auto",
        provenance: Recipe | None = None,
        architecture: str | Mapping[str, Any] | None = None,
        input_shape: Sequence[int] | None = None,
        outputs: int | None = None,
        dataset: str | None = None,
        metrics: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        warm: Transferred | None = None,
    ) -> Saved:
        """Save a module, or a state dict, as the next version of a model.

        Args:
            parent: the model that it was made from: `name`, `name@version` or `name@alias`.
            approach: "snapshot", "update" (differences to the parent), "provenance" (the recipe
                alone), or "auto": what costs least by the weights in `options`.
            provenance: how it was trained, see `mmdb.Recipe`.
            architecture: a factory with arguments or a layer graph that builds the module again.
                Left out, it is the parent's, or a layer graph read off the module where that is
                possible; else `recover` asks for a module to fill.
            input_shape: of one row, for `architecture`; the dataset's if left out.
            outputs: classes, or 1 for a regression, for `architecture`; likewise.
            dataset: what it was trained on, so that rows become its input in `predict`.
            options: {"weights": {"storage": per GB, "save": per s, "recover": per s}, ...},
                docs/models.md.
            warm: what `warm_start` returned of the module, for its lineage.
        Raises:
            ModelNotFound, NoParent, InvalidRecipe, ModuleMismatch, UnsupportedTensor,
            InvalidName, InvalidOption, ArchitectureError
        """
        from mmdb.store.models.save import save_model
        from mmdb.train.replay.model_facts import about_module
        from mmdb.train.replay.saving import save_with_recipe
        from mmdb.train.warm.transfer_rows import add_transfer, check_transferred

        check_name(name)
        if warm is not None:
            check_transferred(self.connection, warm)
        about = about_module(
            self.connection,
            module,
            architecture=architecture,
            input_shape=input_shape,
            outputs=outputs,
            dataset=dataset,
            metrics=metrics or {},
        )
        place = (self.connection, name, module)
        how: dict[str, Any] = {"parent": parent, "approach": approach, "options": options}

        def save() -> Saved:
            if provenance is not None:
                return save_with_recipe(*place, provenance, about=about, **how)
            return save_model(*place, about=about, **how)

        if warm is None or warm.parent is None:
            return save()
        with self.connection.transaction():
            saved = save()
            add_transfer(self.connection, warm, model_id=saved.model_id)
            return saved

    def recover(
        self,
        model: str,
        *,
        verify: Verify = "full",
        into: nn.Module | None = None,
        base: nn.Module | None = None,
        device: str | None = None,
    ) -> nn.Module:
        """Return a model's module with the weights that were saved, bit for bit.

        Args:
            verify: "full" compares every tensor with its hash, "sampled" one in 16, "none" none.
                What a recipe gives is always compared.
            into: a module to fill; None builds one, in evaluation mode.
            base: a module that is here already, such as what the model is an adapter of: frozen
                tensors that are equal are not read, and both modules have the same memory.
            device: where a built module's tensors go, such as "cuda".
        Raises:
            ModelNotFound, CorruptTensor, DefinitionMissing, ModuleMismatch, RecipeError
        """
        from mmdb.train.replay.recipe_replay import recover_module

        return recover_module(
            self.connection,
            self._reader.find(model),
            reader=self._reader,
            verify=verify,
            into=into,
            base=base,
            device=device,
        )

    def recover_group(self, model: str, value: object) -> nn.Module:
        """Return the network with which a model of groups answers for one of them.

        No other group's weights are read. It takes rows without the column of groups, whose
        numbers are transformed, (n, F - 1).

        Args:
            value: of the column that the run was told `per`; of one that no train row had it is the
                network that learned from all rows.
        Raises:
            ModelNotFound, CorruptTensor, DefinitionMissing
            InvalidOption: the model has no groups.
        """
        from mmdb.store.models.group import GroupReader

        groups = GroupReader(self._reader, self._groups)
        return groups.recover(self._reader.find(model), value, lambda: self.recover(model))

    def tensor(self, model: str, path: str, *, rows: tuple[int, int] | None = None) -> torch.Tensor:
        """Return one tensor of a model, or rows lo..hi of it; nothing else is read.

        Raises:
            ModelNotFound, TensorNotFound, CorruptTensor
            NotReplayable: the model is kept as a recipe.
            InvalidOption: `rows` is no such pair.
        """
        found = self._reader.find(model)
        if rows is not None:
            try:
                lo, hi = rows
                span = index(lo), None if hi is None else index(hi)
            except (TypeError, ValueError) as error:
                hint = "It is the first row and the one after the last, such as (0, 10)."
                raise InvalidOption(f"rows is {show(rows)}.", hint=hint) from error
            return self._reader.rows(found, path, *span)
        return self._reader.tensors(found, [path])[path]

    def tensors(self, wanted: Sequence[tuple[str, str]]) -> list[torch.Tensor]:
        """Return tensors of several models, given as (model, path), in one round of traffic.

        Raises:
            ModelNotFound, TensorNotFound, CorruptTensor
            InvalidOption: they are no pairs.
        """
        try:
            pairs = [(model, path) for model, path in wanted]
        except (TypeError, ValueError) as error:
            hint = 'They are pairs, such as [("model", "path")].'
            raise InvalidOption(f"The tensors wanted are {show(wanted)}.", hint=hint) from error
        return self._reader.many([(self._reader.find(model), path) for model, path in pairs])

    def model(self, model: str) -> Model:
        """Return a model, whose tensors are read when they are asked for.

        Raises:
            ModelNotFound
        """
        return Model(self._reader, self._reader.find(model))

    def architecture(
        self,
        architecture: nn.Module | str | Mapping[str, Any],
        *,
        input_shape: Sequence[int] | None = None,
        outputs: int | None = None,
        dataset: str | None = None,
    ) -> NetworkGraph:
        """Return an architecture's operations and what each reads; `graph()` has them in networkx.

        Args:
            architecture: as for `common_prefix`; a model's comes without paths of modules.
        Raises:
            ArchitectureError, DatasetNotFound, ModelNotFound, DefinitionMissing
        """
        from mmdb.train.replay.model_facts import structure_asked

        about: dict[str, Any] = {"input_shape": input_shape, "outputs": outputs, "dataset": dataset}
        return structure_asked(self.connection, architecture, **about)

    def common_prefix(
        self,
        architecture: nn.Module | str | Mapping[str, Any],
        *,
        input_shape: Sequence[int] | None = None,
        outputs: int | None = None,
        dataset: str | None = None,
        k: int = 10,
    ) -> list[SharedPrefix]:
        """Return the k models with the longest beginnings in common with an architecture.

        Args:
            architecture: a module, a model as `name@version`, a factory or a layer graph; the
                last two need `input_shape` and `outputs`, or a dataset that has them.
        Raises:
            ArchitectureError, DatasetNotFound, ModelNotFound
        """
        from mmdb.store.models.architectures import common_prefix
        from mmdb.train.replay.model_facts import beginnings_of

        about: dict[str, Any] = {"input_shape": input_shape, "outputs": outputs, "dataset": dataset}
        own = beginnings_of(self.connection, architecture, **about)
        return common_prefix(self.connection, own, k)
