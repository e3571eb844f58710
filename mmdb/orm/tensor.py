"""Tensors, and the lists of them that models share."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt, BigInts, Json, many, one, unread

if TYPE_CHECKING:
    from mmdb.orm.model import Model


class Tensor(Base):
    """Content-addressed tensors; the same bytes are one row."""

    __tablename__ = "tensor"
    written_by = "Database.save"
    __table_args__ = (UniqueConstraint("tensor_hash"),)

    tensor_id: Mapped[BigInt] = mapped_column(primary_key=True)
    tensor_hash: Mapped[bytes] = unread()
    dtype: Mapped[str]
    shape: Mapped[BigInts]
    byte_count: Mapped[BigInt]
    minimum: Mapped[float | None]
    maximum: Mapped[float | None]
    mean: Mapped[float | None]
    deviation: Mapped[float | None]
    zeros: Mapped[BigInt | None]
    nans: Mapped[BigInt | None]
    created_at: Mapped[datetime]
    owner: Mapped[str | None]

    encoding: Mapped[Encoding | None] = one("Tensor.tensor_id == foreign(Encoding.tensor_id)")
    chunks: Mapped[list[TensorChunk]] = many(
        "TensorChunk.ordinal", "Tensor.tensor_id == foreign(TensorChunk.tensor_id)"
    )
    entries: Mapped[list[ManifestTensor]] = many(
        "(ManifestTensor.manifest_id, ManifestTensor.ordinal)"
    )


class Encoding(Base):
    """How a tensor lies in its chunks; small tensors have none, they lie in their model's pack."""

    __tablename__ = "encoding"
    written_by = "Database.save"

    tensor_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.tensor.tensor_id"), primary_key=True)
    base_id: Mapped[BigInt | None] = mapped_column(ForeignKey("mmdb.tensor.tensor_id"))
    word: Mapped[int]
    chunk_bytes: Mapped[int]
    chunks: Mapped[int]
    stored_bytes: Mapped[BigInt]

    tensor: Mapped[Tensor] = one("foreign(Encoding.tensor_id) == Tensor.tensor_id")
    base: Mapped[Tensor | None] = one("foreign(Encoding.base_id) == Tensor.tensor_id")


class TensorChunk(Base):
    """The bytes of tensors, each chunk encoded by itself."""

    __tablename__ = "tensor_chunk"
    written_by = "Database.save"

    tensor_id: Mapped[BigInt] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    codec: Mapped[int]
    digest: Mapped[bytes] = unread()
    data: Mapped[bytes] = unread()

    tensor: Mapped[Tensor] = one("foreign(TensorChunk.tensor_id) == Tensor.tensor_id")


class Manifest(Base):
    """Lists of tensors by path, which models share; see model_change."""

    __tablename__ = "manifest"
    written_by = "Database.save"

    manifest_id: Mapped[BigInt] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    owner: Mapped[str | None]

    entries: Mapped[list[ManifestTensor]] = many("ManifestTensor.ordinal")
    models: Mapped[list[Model]] = many("Model.model_id")


class ManifestTensor(Base):
    """The tensors of a manifest, in the order of the state dict."""

    __tablename__ = "manifest_tensor"
    written_by = "Database.save"

    manifest_id: Mapped[BigInt] = mapped_column(
        ForeignKey("mmdb.manifest.manifest_id"), primary_key=True
    )
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    tensor_id: Mapped[BigInt] = mapped_column(ForeignKey("mmdb.tensor.tensor_id"))
    kind: Mapped[str]
    trainable: Mapped[bool]
    tied_to: Mapped[int | None]
    layout: Mapped[Json | None]

    manifest: Mapped[Manifest] = one()
    tensor: Mapped[Tensor] = one()
