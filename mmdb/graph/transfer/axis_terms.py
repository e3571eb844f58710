"""Axes as terms: atoms, concatenations and products of them, made equal by unification.

Two axes that an operation ties (the operands of an addition) become one space. Where an axis is cut
or reshaped, its space takes the form that this needs, for everyone who has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

CAT: Final = "cat"
PROD: Final = "product"  # row-major: the last factor runs fastest

#: Traits of atoms. What an index means by itself: an input's channel, a class, a token.
FIXED: Final = "fixed"
#: A position of an image or of a sequence that the model made.
PLACE: Final = "place"
#: Rows of a table that positions look up.
TABLE: Final = "table"
#: An output of the model.
OUTPUT: Final = "output"
#: A function that is not linear is applied to each element.
BENT: Final = "bent"
#: Each element is multiplied by a number of its own.
WEIGHTED: Final = "weighted"
#: Elements are divided by the root of their variance (layer norm), or of their mean square.
STANDARDISED: Final = "standardised"
SQUARED: Final = "squared"
#: What an axis is in a product of activations: over it one sums, it is kept, or each has its own.
SUMMED: Final = "summed"
KEPT: Final = "kept"
BATCHED: Final = "batched"


class Misfit(ValueError):
    """Two axes cannot be one."""


class AxisSpace:
    """An axis of `size` elements; `form` is None for an atom, else CAT or PROD of `parts`."""

    __slots__ = ("form", "link", "parts", "size", "traits")

    def __init__(self, size: int, form: str | None = None, parts: Sequence[AxisSpace] = ()) -> None:
        self.size, self.form, self.parts = size, form, tuple(parts)
        self.link: AxisSpace | None = None  # the space that this one has become
        self.traits: set[str] = set()


#: Every axis of size one: it ties nothing.
ONE: Final = AxisSpace(1)


def atom(size: int, *traits: str) -> AxisSpace:
    """Return a new atom, ONE for size 1."""
    if size == 1:
        return ONE
    space = AxisSpace(size)
    space.traits.update(traits)
    return space


def product(factors: Sequence[AxisSpace]) -> AxisSpace:
    """Return the product, row-major."""
    kept = [factor for factor in map(find, factors) if factor is not ONE]
    if len(kept) < 2:
        return kept[0] if kept else ONE
    size = 1
    for factor in kept:
        size *= factor.size
    return AxisSpace(size, PROD, kept)


def concatenation(parts: Sequence[AxisSpace]) -> AxisSpace:
    """Return the parts one after the other."""
    kept = [part for part in map(find, parts) if part.size]
    if len(kept) == 1:
        return kept[0]
    return AxisSpace(sum(part.size for part in kept), CAT, kept)


def find(space: AxisSpace) -> AxisSpace:
    """Return the space that a space has become."""
    root = space
    while root.link is not None:
        root = root.link
    while space.link is not None:
        space.link, space = root, space.link
    return root


def parts_of(space: AxisSpace) -> list[AxisSpace]:
    """Return the parts of a compound, those of the same form in it flattened; [] of an atom."""
    space = find(space)
    flat: list[AxisSpace] = []
    for part in map(find, space.parts):
        if part.form == space.form:
            flat += parts_of(part)
        elif part is not ONE or space.form == CAT:
            flat.append(part)
    return flat


def leaves(space: AxisSpace) -> Iterator[AxisSpace]:
    """Yield the atoms of a space, ONE left out."""
    space = find(space)
    if space.form is None:
        if space is not ONE:
            yield space
        return
    for part in space.parts:
        yield from leaves(part)


def mark(space: AxisSpace, *traits: str) -> None:
    """Give traits to all atoms of a space."""
    for leaf in leaves(space):
        leaf.traits.update(traits)


def split(space: AxisSpace, at: int) -> tuple[AxisSpace, AxisSpace]:
    """Return the first `at` elements and the rest, 0 < at < size.

    Raises:
        Misfit: the cut goes through a product, or through places, of which there are many.
    """
    space = find(space)
    if space.form is None:
        if space.traits & {FIXED, PLACE}:
            raise Misfit("places stay together")
        left, right = atom(at), atom(space.size - at)
        _bind(space, CAT, (left, right))
        return left, right
    parts = parts_of(space)
    if space.form == PROD:
        rest = product(parts[1:])
        if at % rest.size:
            raise Misfit(f"{at} is not a multiple of {rest.size}")
        first, second = split(parts[0], at // rest.size)
        return product((first, rest)), product((second, rest))
    left_parts: list[AxisSpace] = []
    while parts and parts[0].size <= at:
        at -= parts[0].size
        left_parts.append(parts.pop(0))
    if at:
        first, second = split(parts[0], at)
        left_parts.append(first)
        parts[0] = second
    return concatenation(left_parts), concatenation(parts)


def factor(space: AxisSpace, minor: int) -> tuple[AxisSpace, AxisSpace]:
    """Return a space as a product whose second factor has `minor` elements.

    Raises:
        Misfit: its form does not allow it.
    """
    space = find(space)
    if minor == 1:
        return space, ONE
    if minor == space.size:
        return ONE, space
    if minor < 1 or space.size % minor:
        raise Misfit(f"{space.size} is not a multiple of {minor}")
    if space.form is None:
        pair = atom(space.size // minor), atom(minor)
        _bind(space, PROD, pair)
        return pair
    if space.form == CAT:
        return _factor_cat(space, minor)
    taken: list[AxisSpace] = []
    rest = parts_of(space)
    while minor % rest[-1].size == 0 and minor > 1:
        minor //= rest[-1].size
        taken.insert(0, rest.pop())
    if minor > 1:
        major, last = factor(rest.pop(), minor)
        taken.insert(0, last)
        rest.append(major)
    return product(rest), product(taken)


def _factor_cat(space: AxisSpace, minor: int) -> tuple[AxisSpace, AxisSpace]:
    parts = parts_of(space)
    if any(part.size % minor for part in parts):
        raise Misfit(f"a part is not a multiple of {minor}")
    pairs = [factor(part, minor) for part in parts]
    for _, other in pairs[1:]:
        unify(pairs[0][1], other)
    major, last = concatenation([major for major, _ in pairs]), find(pairs[0][1])
    space.form, space.parts = PROD, (major, last)
    return major, last


def unify(a: AxisSpace, b: AxisSpace) -> None:
    """Make two spaces one.

    Raises:
        Misfit: they are of different sizes, or their forms do not agree.
    """
    a, b = find(a), find(b)
    if a is b:
        return
    if a.size != b.size:
        raise Misfit(f"{a.size} and {b.size} elements")
    if a.form is None:
        _become(a, b)
    elif b.form is None:
        _become(b, a)
    else:
        if a.form == b.form == CAT:
            _unify_cats(parts_of(a), parts_of(b))
        elif a.form == b.form == PROD:
            _unify_products(parts_of(a), parts_of(b))
        else:
            cat, prod = (a, b) if a.form == CAT else (b, a)
            factors = parts_of(prod)
            major, minor = factor(cat, factors[-1].size)
            unify(minor, factors[-1])
            unify(major, product(factors[:-1]))
        a, b = find(a), find(b)
        if a is not b:
            a.link = b


def join(a: AxisSpace, b: AxisSpace) -> None:
    """Unify two spaces, or if that cannot be, let their elements be what they are."""
    try:
        unify(a, b)
    except Misfit:
        mark(a, FIXED)
        mark(b, FIXED)


def _unify_cats(a: list[AxisSpace], b: list[AxisSpace]) -> None:
    while a and b:
        one, other = a.pop(0), b.pop(0)
        if one.size < other.size:
            other, rest = split(other, one.size)
            b.insert(0, rest)
        elif one.size > other.size:
            one, rest = split(one, other.size)
            a.insert(0, rest)
        unify(one, other)


def _unify_products(a: list[AxisSpace], b: list[AxisSpace]) -> None:
    while a and b:
        one, other = a.pop(), b.pop()
        if one.size < other.size:
            rest, other = factor(other, one.size)
            b.append(rest)
        elif one.size > other.size:
            rest, one = factor(one, other.size)
            a.append(rest)
        unify(one, other)


def _bind(leaf: AxisSpace, form: str, parts: Sequence[AxisSpace]) -> None:
    leaf.form, leaf.parts = form, tuple(parts)
    for part in parts:
        mark(part, *leaf.traits)


def _become(leaf: AxisSpace, other: AxisSpace) -> None:
    mark(other, *leaf.traits)
    leaf.link = other
