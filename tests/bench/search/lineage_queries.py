"""Random queries over the tables of `lineage_words`, nearly all of them valid.

Every output of a subquery or CTE is used by the query around it, so that all that a query names
is something that its result depends on.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from tests.bench.search import lineage_words as words

_CALL = re.compile(r"\w+\([^()]*\)")


@dataclass(eq=False)
class Item:
    """A column that a scope shows."""

    table: str
    name: str
    kind: str
    must: bool = False  # of a subquery: something has to use it
    is_used: bool = False


@dataclass
class Query:
    """A query, whole and in parts."""

    head: str
    items: list[str]  # as in SELECT, without their names
    names: list[str]
    tail: str
    text: str
    is_plain: bool  # its parts make sense by themselves
    whole_rows: list[str] = field(default_factory=list)  # tables of which it reads a whole row


class Writer:
    """Writes queries for one engine."""

    deepest = 3

    def __init__(self, engine: str, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng
        self.is_postgres = engine == "postgres"
        self.expressions = words.expressions(engine)
        self.aggregates = words.aggregates(engine)
        self.windows = words.words(engine, words.WINDOWS)
        self.frames = words.alternatives(words.FRAMES)
        self.kinds = list(self.expressions)

    def query(self) -> Query:
        """Return a random query."""
        self.count = 0
        self.whole_rows: list[str] = []
        self.scopes: list[list[Item]] = []
        self.unread: set[str] = set()
        self.ctes: list[tuple[str, list[tuple[str, str]]]] = []
        head = self.with_() if self.chance(0.25) else ""
        kinds = [self.rng.choice(self.kinds) for _ in range(self.rng.randint(1, 4))]
        if self.chance(0.12):
            kinds = [k for k in kinds if k not in "jvqc"] or ["i"]
            word = self.rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
            left, right = self.select(kinds, self.deepest), self.select(kinds, 2)
            text = f"{head}({left.text}) {word} ({right.text})"
            return Query(head, [], left.names, "", self.untidy(text), False, self.whole_rows)
        made = self.select(kinds, self.deepest, is_top=True)
        made.head, made.text = head, self.untidy(head + made.text)
        made.whole_rows = self.whole_rows
        return made

    # -- words ----------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def untidy(self, text: str) -> str:
        """Return a text with comments, line ends and other letters' cases."""
        if self.chance(0.1):
            text = text.replace(" FROM ", " /* o1 -> 'x' */ from ", 1)
        if self.chance(0.1):
            text = text.replace(", ", ' -- it\'s "one"\n, ', 1)
        return text

    def write(self, name: str) -> str:
        return name.upper() if name.isascii() and name.isidentifier() and self.chance(0.1) else name

    # -- expressions ------------------------------------------------------------

    def column(self, kind: str) -> str:
        """Return a column of a kind, perhaps of a query around, else a literal."""
        for scope in reversed(self.scopes):
            fitting = [item for item in scope if item.kind == kind]
            if fitting and not self.chance(0.08):
                fresh = [item for item in fitting if item.must and not item.is_used]
                return self.named(self.rng.choice(fresh or fitting), scope)
        return words.LITERALS.get(kind, f"'{{}}'::{words.TYPES[self.engine]['j']}")

    def named(self, item: Item, scope: list[Item]) -> str:
        item.is_used = True
        around = [other for scope_ in self.scopes for other in scope_ if other.kind != "whole row"]
        alone = [other.name.lower() for other in around]
        names = {other.table.strip('"').lower() for other in around}
        if item.table and (
            alone.count(item.name.lower()) > 1 or item.name in names or self.chance(0.3)
        ):
            return f"{item.table}.{self.write(item.name)}"
        return self.write(item.name)

    def expr(self, kind: str, depth: int) -> str:
        """Return an expression whose value has a kind."""
        if depth <= 0 or self.chance(0.3):
            return self.column(kind)
        if kind in "ifs" and self.chance(0.06):
            return self.scalar(kind)
        return self.filled(self.rng.choice(self.expressions[kind]), depth - 1)

    def sure(self, kind: str) -> str:
        """Return an expression that is no literal, which ORDER BY would refuse."""
        text = self.expr(kind, 1)
        return f"coalesce({text}, {text})"

    def filled(self, template: str, depth: int) -> str:
        """Return a template with expressions in it."""

        def put(match: re.Match[str]) -> str:
            text = self.expr(match[1], depth)
            is_simple = _CALL.fullmatch(text) or re.fullmatch(r'[\w."]+', text)
            return text if is_simple and not self.chance(0.1) else f"({text})"

        return re.sub(r"\$([a-z])\b", put, template)

    def scalar(self, kind: str) -> str:
        """Return a subquery of one value, often correlated."""
        outer = self.expr("i", 0)
        text, items = self.table()
        self.scopes.append(items)
        value = self.filled(self.rng.choice(self.aggregates[kind]), 1)
        key = self.expr("i", 0)
        self.scopes.pop()
        return f"(SELECT {value} FROM {text} WHERE {key} = {outer} LIMIT 1)"

    # -- FROM -------------------------------------------------------------------

    def table(self) -> tuple[str, list[Item]]:
        """Return a table in FROM with its columns."""
        name = self.rng.choice(list(words.TABLES))
        listed = words.TABLES[name] + (f" {words.MORE[name]}" if self.is_postgres else "")
        columns = re.findall(r'("(?:[^"]|"")*"|\w+):(\w)', listed)
        taken = {item.table for scope in self.scopes for item in scope}
        alias = self.rng.choice(words.ALIASES) if self.chance(0.6) else name
        if alias in taken:
            alias = self.fresh("r")
        items = [Item(alias, column, kind) for column, kind in columns]
        text = name if alias == name else f"{name} {self.rng.choice(['AS ', ''])}{alias}"
        if alias != name and self.chance(0.15):  # other names for the first columns
            renamed = [self.fresh("n") for _ in range(self.rng.randint(1, 3))]
            for item, other in zip(items, renamed, strict=False):
                item.name = other
            text += f" ({', '.join(renamed)})"
        return text, [*items, Item(name, alias, "whole row")]

    def subquery(self, depth: int, *, lateral: bool) -> tuple[str, list[Item]]:
        alias = self.fresh("q")
        kinds = [self.rng.choice(self.kinds) for _ in range(self.rng.randint(1, 3))]
        if lateral:
            names = [self.fresh("x") for _ in kinds]
            values = [f"{self.expr(k, 2)} AS {n}" for k, n in zip(kinds, names, strict=True)]
            inner = f"SELECT {', '.join(values)}"
        else:
            self.scopes, around = [], self.scopes
            made = self.select(kinds, depth - 1)
            self.scopes = around
            inner, names = made.text, made.names
        columns = ""
        if self.chance(0.2):
            names = [self.fresh("c") for _ in names]
            columns = f" ({', '.join(names)})"
        items = [Item(alias, n, k, must=True) for n, k in zip(names, kinds, strict=True)]
        return f"{'LATERAL ' if lateral else ''}({inner}) AS {alias}{columns}", items

    def function(self) -> tuple[str, list[Item]]:
        """Return a function in FROM that reads what stands before it."""
        f, x, y = self.fresh("f"), self.fresh("x"), self.fresh("y")
        forms = {f"unnest($a) AS {f} ({x})": f"{x}:i"}
        if self.is_postgres:
            forms |= {
                f"unnest($a) WITH ORDINALITY AS {f} ({x}, {y})": f"{x}:i",
                f"generate_series(1, $i % 4) AS {x}": f"{x}:i",
                f"generate_series($i, $i) {f} ({x})": f"{x}:i",
                f"jsonb_array_elements($j -> 'arr') AS {x}": f"{x}:j",
                f"jsonb_array_elements(coalesce($j -> 'arr', $j)) AS {f} ({x})": f"{x}:j",
                f"jsonb_each($j -> 'o') AS {f}": "key:s value:j",
                f"jsonb_each_text($j) AS {f} ({x}, {y})": f"{x}:s {y}:s",
                f"jsonb_object_keys($j -> 'o') AS {f} ({x})": f"{x}:s",
                f"jsonb_to_record($j -> 'o') AS {f} ({x} integer, {y} text)": f"{x}:i {y}:s",
                f"jsonb_to_recordset($j -> 'rows') AS {f} ({x} integer)": f"{x}:i",
                f"jsonb_path_query($j, '$.arr[*]') AS {f} ({x})": f"{x}:j",
                f"regexp_split_to_table($s, ',') AS {x}": f"{x}:s",
                f"string_to_table($s, $s) AS {x}": f"{x}:s",
                f"ROWS FROM (unnest($a), jsonb_each($j)) AS {f} ({x}, {y})": f"{x}:i {y}:s",
                f"ROWS FROM (jsonb_to_record($j) AS (p int), unnest($a)) AS {f} ({x}, {y})": (
                    f"{x}:i {y}:i"
                ),
                f"unnest($a, $a) AS {f} ({x}, {y})": f"{x}:i {y}:i",
                f"unnest(string_to_array($s, ',')) AS {x}": f"{x}:s",
            }
        form = self.rng.choice(list(forms))
        items = [Item(f, part[:-2], part[-1]) for part in forms[form].split()]
        if f not in form:
            items = [Item("", item.name, item.kind) for item in items]
        return self.rng.choice(["LATERAL ", ""]) + self.filled(form, 1), items

    def from_(self, depth: int) -> str:
        """Return a FROM; what it shows is put into the innermost scope."""
        scope = self.scopes[-1]
        text, items = self.first(depth)
        scope += items
        if depth == self.deepest:
            for name in sorted(self.unread):
                right, items = self.cte(name, dict(self.ctes)[name])
                scope += items
                text += f", {right}"
        for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
            before = list(scope)
            if self.chance(0.35):
                lateral = self.chance(0.4)
                right, items = self.subquery(depth, lateral=True) if lateral else self.function()
                join = self.rng.choice([", {}", " CROSS JOIN {}", " LEFT JOIN {} ON true"])
                scope += items
                text += join.format(right)
                continue
            right, items = self.first(depth)
            scope += items
            plain = [[i.name for i in s if i.kind != "whole row"] for s in (before, items)]
            shared = set(plain[0]) & set(plain[1])
            sides = [side.count("id") for side in plain]
            if "id" in shared and sides == [1, 1] and self.chance(0.5):
                kind = self.rng.choice(["", "LEFT ", "INNER ", "FULL "])
                alias = self.fresh(" AS k") if self.is_postgres and self.chance(0.3) else ""
                text += f" {kind}JOIN {right} USING (id){alias}"
                scope[:] = [i for i in scope if i.name != "id" or i.kind != "i"]
                scope.append(Item(alias.removeprefix(" AS "), "id", "i"))
            elif shared == {"id"} and sides == [1, 1] and self.chance(0.3):
                text += f" NATURAL JOIN {right}"
                scope[:] = [i for i in scope if i.name != "id" or i.kind != "i"] + [
                    Item("", "id", "i")
                ]
            elif self.chance(0.3):
                text += f", {right}"
                if self.chance(0.3):
                    right, items = self.first(depth)
                    scope += items
                    text += f" CROSS JOIN {right}"
            else:
                kind = self.rng.choice(["", "LEFT ", "INNER ", "LEFT OUTER "])
                self.scopes[-1], whole = [*before, *items], scope
                text += f" {kind}JOIN {right} ON {self.expr('b', 2)}"
                self.scopes[-1] = whole
        return text

    def first(self, depth: int) -> tuple[str, list[Item]]:
        if self.ctes and self.chance(0.4):
            name, columns = self.rng.choice(self.ctes)
            return self.cte(name, columns)
        if depth > 1 and self.chance(0.2):
            return self.subquery(depth, lateral=False)
        return self.table()

    def cte(self, name: str, columns: list[tuple[str, str]]) -> tuple[str, list[Item]]:
        self.unread.discard(name)
        alias = self.fresh("w")
        return f"{name} AS {alias}", [Item(alias, n, k, must=True) for n, k in columns]

    # -- SELECT -----------------------------------------------------------------

    def select(self, kinds: list[str], depth: int, *, is_top: bool = False) -> Query:
        """Return a SELECT whose outputs have some kinds."""
        self.scopes.append([])
        source = self.from_(depth)
        names = [self.fresh("o") for _ in kinds]
        grouped = self.chance(0.25) and all(kind in self.aggregates for kind in kinds)
        made = self.grouped(kinds) if grouped else self.listed(kinds, names)
        items, behind, distinct = made
        taken = {item.name for item in self.scopes[-1] if item.kind != "whole row"}
        rows = [i for i in self.scopes[-1] if i.kind == "whole row" and i.name not in taken]
        if is_top and not grouped and rows and self.chance(0.03):
            row = self.rng.choice(rows)
            self.whole_rows.append(row.table)
            forms = ["to_json({0})", "{0}", *(["to_json({0}.*)"] if self.is_postgres else [])]
            value = self.rng.choice(forms)
            items, names = [*items, value.format(row.name)], [*names, self.fresh("o")]
        where = [self.expr("b", 2)] if self.chance(0.4) else []
        unused = [i for i in self.scopes[-1] if i.must and not i.is_used]
        where += [f"({self.named(i, self.scopes[-1])} IS NOT NULL OR true)" for i in unused]
        tail = f" FROM {source}"
        tail += f" WHERE {' AND '.join(where)}" if where else ""
        self.scopes.pop()
        pairs = zip(items, names, strict=True)
        shown = [f"{text} {'' if self.chance(0.1) else 'AS '}{name}" for text, name in pairs]
        text = f"SELECT {distinct}{', '.join(shown)}{tail}{behind}"
        is_plain = (
            not grouped and not distinct and not re.search(r"ORDER BY \d|BY o\d|\bo\d", behind)
        )
        return Query("", items, names, tail + behind, text, is_plain)

    def listed(self, kinds: list[str], names: list[str]) -> tuple[list[str], str, str]:
        """Return outputs that are not grouped, what follows WHERE, and DISTINCT."""
        behind = distinct = ""
        window = self.fresh("win") if self.chance(0.1) else ""
        items = []
        for kind in kinds:
            if kind in self.windows and self.chance(0.15):
                items.append(self.window(kind, window))
            else:
                items.append(self.expr(kind, 3))
        if window:
            behind += f" WINDOW {window} AS (PARTITION BY {self.expr('s', 1)})"
        ordered = self.chance(0.25)
        if ordered:
            key = self.rng.choice([names[0], "1", "i", "s"])
            key = f"{self.sure(key)} DESC" if key in "is" else key
            if not (self.is_postgres and kinds[0] in "jc" and key in (names[0], "1")):
                behind += f" ORDER BY {key}"
            if self.chance(0.5):
                behind += f" LIMIT {self.rng.randint(1, 5)}"
        elif self.chance(0.1):
            key = self.sure("i")
            distinct, behind = (
                f"DISTINCT ON ({key}) ",
                behind + f" ORDER BY {key}, {self.expr('s', 0)}",
            )
        elif self.chance(0.08):
            distinct = "DISTINCT "
        return items, behind, distinct

    def window(self, kind: str, name: str) -> str:
        """Return a call over a window, of its own or a named one."""
        call = self.filled(self.rng.choice(self.windows[kind]), 1)
        if name and self.chance(0.3):
            return call.replace("(@o)", name)
        order = f"ORDER BY {self.expr('i', 1)}, {self.expr('s', 0)}"
        if name and self.chance(0.4):
            return call.replace("@o", f"{name} {order}")
        inside = f"PARTITION BY {self.expr('s', 1)} {order}" if self.chance(0.6) else order
        if self.chance(0.4):
            inside += f" {self.rng.choice(self.frames)}"
        return call.replace("@o", inside)

    def grouped(self, kinds: list[str]) -> tuple[list[str], str, str]:
        keys = [self.sure(self.rng.choice("is")) for _ in range(self.rng.randint(1, 2))]
        items = [self.filled(self.rng.choice(self.aggregates[kind]), 2) for kind in kinds]
        listed = ", ".join(keys)
        form = self.rng.choice(
            ["{0}", "{0}", "ROLLUP ({0})", "CUBE ({0})", "GROUPING SETS (({0}), ())"]
        )
        behind = f" GROUP BY {form.format(listed)}"
        if self.chance(0.3):
            behind += f" HAVING {self.filled(self.rng.choice(self.aggregates['b']), 1)}"
        if self.chance(0.3):
            behind += f" ORDER BY {self.filled(self.rng.choice(self.aggregates['i']), 1)}"
        return items, behind, ""

    # -- WITH -------------------------------------------------------------------

    def with_(self) -> str:
        """Return a WITH; all of its queries are used where the first FROM reads them."""
        parts, recursive = [], ""
        for _ in range(self.rng.randint(1, 2)):
            name = self.fresh("cte")
            kinds = [self.rng.choice(self.kinds) for _ in range(self.rng.randint(1, 2))]
            if self.chance(0.25):
                recursive = "RECURSIVE "
                n, k = self.fresh("n"), self.fresh("k")
                text, items = self.table()
                self.scopes = [items]
                first = self.expr("s", 2)
                self.scopes = [[Item(name, n, "i"), Item(name, k, "s")]]
                step = f"{self.expr('s', 2)} || {k}"
                self.scopes = []
                parts.append(
                    f"{name} ({n}, {k}) AS (SELECT 1, {first}::text FROM {text} UNION ALL "
                    f"SELECT {n} + 1, ({step})::text FROM {name} WHERE {n} < 3)"
                )
                self.ctes.append((name, [(n, "i"), (k, "s")]))
                self.unread.add(name)
                continue
            made = self.select(kinds, 2)
            names = made.names
            names = [self.fresh("c") for _ in names] if self.chance(0.3) else names
            columns = f" ({', '.join(names)})" if names is not made.names else ""
            word = self.rng.choice(["", "", "MATERIALIZED ", "NOT MATERIALIZED "])
            parts.append(f"{name}{columns} AS {word}({made.text})")
            self.ctes.append((name, list(zip(names, kinds, strict=True))))
            self.unread.add(name)
        return f"WITH {recursive}{', '.join(parts)} "
