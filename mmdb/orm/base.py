"""The base classes of mapped tables and views, and their columns' types and relationships."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar

from sqlalchemy import (
    BigInteger,
    DateTime,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    inspect,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import (
    DeclarativeBase,
    MappedColumn,
    Relationship,
    declared_attr,
    mapped_column,
    relationship,
)

from mmdb.errors import ReadOnly

#: Types of columns that Python alone does not tell apart.
BigInt = Annotated[int, "bigint"]
BigInts = Annotated[list[int], "bigint[]"]
Json = Annotated[Any, "jsonb"]


class Base(DeclarativeBase):
    """A row of a table or a view, as it was read."""

    metadata = MetaData(schema="mmdb")
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        BigInt: BigInteger(),
        BigInts: ARRAY(BigInteger()),
        Json: JSONB(),
        bytes: LargeBinary(),
        datetime: DateTime(timezone=True),
        float: Double(),
        list[int]: ARRAY(Integer()),
        str: Text(),
    }

    #: The call that writes its rows.
    written_by: ClassVar[str] = ""

    def __init_subclass__(cls, written_by: str = "", **options: Any) -> None:
        cls.written_by = written_by
        super().__init_subclass__(**options)

    @declared_attr.directive
    def __tablename__(cls) -> str:
        """The class's name in snake case."""
        return re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __setattr__(self, name: str, value: object) -> None:
        if name in inspect(type(self)).attrs:
            raise read_only(type(self))
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        mapper = inspect(type(self))
        keys = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        shown = ", ".join(f"{key}={self.__dict__.get(key)!r}" for key in keys)
        return f"{type(self).__name__}({shown})"


def keyed(*columns: Any) -> dict[str, Any]:
    """Return what tells the rows of a table apart that has no key of its own."""
    return {"primary_key": list(columns)}


def marked(**marks: object) -> dict[str, Any]:
    """Return what is to be known of a table: `is_view`, or the one engine that has it."""
    return {"info": marks}


class View(Base):
    """A row of a view, which is what `mmdb_reader` may read."""

    __abstract__ = True
    __table_args__ = marked(is_view=True)


def read_only(mapped: type[Base] | None) -> ReadOnly:
    """Return the error that says which call writes what the ORM only reads."""
    if mapped is None:
        return ReadOnly("The ORM reads.", hint="Write by the calls of Database and Run.")
    if issubclass(mapped, View):
        return ReadOnly(f"{mapped.__name__} is a view.")
    return ReadOnly(
        f"The ORM reads {mapped.__name__}; it does not write it.",
        hint=f"What writes it is {mapped.written_by}.",
    )


def unread(*arguments: Any) -> MappedColumn[Any]:
    """Return a column of bytes: it is read only where `undefer` asks for it, else it raises."""
    return mapped_column(*arguments, deferred=True, deferred_raiseload=True)


def foreign_key(column: str, *, primary_key: bool = False) -> MappedColumn[Any]:
    """Return a column that points at `table.column`."""
    return mapped_column(ForeignKey(f"mmdb.{column}"), primary_key=primary_key)


def one(join: str | None = None) -> Relationship[Any]:
    """Return the row that a key points at; `join` where the tables declare no key for it."""
    return relationship(primaryjoin=join, viewonly=True)


def many(order_by: str, join: str | None = None) -> Relationship[Any]:
    """Return the rows whose keys point here, in order."""
    return relationship(primaryjoin=join, order_by=order_by, viewonly=True)
