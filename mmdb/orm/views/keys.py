"""Which columns of views tell rows apart, and which name rows of other views."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from mmdb.orm.base import View


class ViewKey(View):
    """The keys of views: what is unique in them, and what refers to which other one."""

    __tablename__ = "view_key"

    view_name: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[int] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    column_name: Mapped[str | None]
    kind: Mapped[str | None]
    refers_to: Mapped[str | None]
    refers_column: Mapped[str | None]
