"""What the owner configures."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import PrimaryKeyConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import Base, BigInt


class Migration(Base):
    """The schema that this database was made with (0), and each change since (1, 2, …)."""

    __tablename__ = "migration"
    written_by = "`mmdb install`"

    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    digest: Mapped[str]
    applied_at: Mapped[datetime]


class Setting(Base):
    """The owner's configuration; passwords belong into a password file, not here."""

    __tablename__ = "setting"
    written_by = "Database.sql"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Factory(Base):
    """Allow-list of the Python callables that build models; the only way code enters."""

    __tablename__ = "factory"
    written_by = "Database.register_factory"

    name: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str]
    created_at: Mapped[datetime]


class Function(Base):
    """Allow-list of the Python callables that datasets and runs may name besides factories."""

    __tablename__ = "function"
    written_by = "Database.register_function"
    __table_args__ = (PrimaryKeyConstraint("kind", "name"),)

    name: Mapped[str]
    kind: Mapped[str]
    target: Mapped[str]
    created_at: Mapped[datetime]


class Trainer(Base):
    """Allow-list of the training functions that recipes may name."""

    __tablename__ = "trainer"
    written_by = "Database.register_trainer"

    name: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str]
    created_at: Mapped[datetime]


class Share(Base):
    """What teams let other roles read; it means something in databases with teams."""

    __tablename__ = "share"
    written_by = "Database.share_model"

    kind: Mapped[str] = mapped_column(primary_key=True)
    object_id: Mapped[BigInt] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    shared_at: Mapped[datetime]
    author: Mapped[str]


class RoleLimit(Base):
    """How much the owners of datasets, runs and models may use; null is without limit."""

    __tablename__ = "role_limit"
    written_by = "Database.sql"

    role: Mapped[str] = mapped_column(primary_key=True)
    workers: Mapped[int | None]
    bytes: Mapped[BigInt | None]
    seconds: Mapped[float | None]
    memory_bytes: Mapped[BigInt | None]
