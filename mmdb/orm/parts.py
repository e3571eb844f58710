"""What models consist of and come from, gathered from several tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select, union
from sqlalchemy.orm import Mapped

from mmdb.orm.base import Base, BigInt, keyed, one
from mmdb.orm.model import Model, ModelChange
from mmdb.orm.tensor import ManifestTensor
from mmdb.orm.zoo import Transfer

if TYPE_CHECKING:
    from mmdb.orm.tensor import Tensor

_entry, _change = ManifestTensor.__table__, ModelChange.__table__
_model, _transfer = Model.__table__, Transfer.__table__

#: Pairs of models, the second made of the first.
parentage = union(
    select(_model.c.parent_id.label("parent"), _model.c.model_id.label("child")).where(
        _model.c.parent_id.is_not(None)
    ),
    select(_transfer.c.parent_id, _transfer.c.model_id).where(
        _transfer.c.parent_id.is_not(None), _transfer.c.model_id.is_not(None)
    ),
    select(_transfer.c.parent_id, _model.c.model_id)
    .join(_model, _model.c.candidate_id == _transfer.c.candidate_id)
    .where(_transfer.c.parent_id.is_not(None)),
).subquery("parentage")


class ModelTensor(Base):
    """A tensor of a model: what its manifest says, but for what stands in its place."""

    __table__ = (
        select(
            _model.c.model_id,
            _entry.c.ordinal,
            _entry.c.path,
            _entry.c.kind,
            _entry.c.trainable,
            func.coalesce(_change.c.tensor_id, _entry.c.tensor_id).label("tensor_id"),
        )
        .join(_entry, _entry.c.manifest_id == _model.c.manifest_id)
        .outerjoin(
            _change,
            and_(_change.c.model_id == _model.c.model_id, _change.c.ordinal == _entry.c.ordinal),
        )
        .where(_entry.c.kind.in_(["parameter", "buffer"]))
        .subquery("model_tensor")
    )
    __mapper_args__ = keyed(__table__.c.model_id, __table__.c.ordinal)
    written_by = "Database.save"

    if TYPE_CHECKING:
        model_id: Mapped[BigInt]
        ordinal: Mapped[int]
        path: Mapped[str]
        kind: Mapped[str]
        trainable: Mapped[bool]
        tensor_id: Mapped[BigInt]

    tensor: Mapped[Tensor] = one("foreign(ModelTensor.tensor_id) == Tensor.tensor_id")
