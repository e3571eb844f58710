"""What random queries are made of: tables, and expressions by the kind of their value.

In an expression `$i` stands for any of kind i: i integer, f double, s text, j JSON, a integer[],
b boolean, d date, t timestamp, and on PostgreSQL r int4range, v tsvector, q tsquery, c composite.
"""

from __future__ import annotations

#: Columns of a table, in order: name as it is written, and kind.
TABLES = {
    "events": "id:i meta:j name:s total:f tags:a ok:b day:d at_time:t",
    "visits": 'id:i "Mixed Case":i größe:f value:j year:s note:s list:a seen:t',
    "parts": 'id:i kind:s price:f "order":i spec:j "a ""b""":a type:s date:d flag:b',
}
#: Columns that PostgreSQL's tables have, too.
MORE = {"events": "span:r words:v", "visits": "pair:c span2:r", "parts": "doc:v lookup:q"}
#: Other names for tables.
ALIASES = ("e", "v", "p", "src", '"T x"', "id", "data", "row_", "left_", "année", "value", "types")
#: A value of each kind but JSON.
LITERALS = {
    **{"i": "3", "f": "0.5", "s": "'a,b'", "b": "true", "d": "DATE '2021-03-04'"},
    **{"t": "TIMESTAMP '2021-03-04 05:06:07'", "r": "'[1,9)'::int4range", "v": "''::tsvector"},
    **{"q": "'cat'::tsquery", "c": "ROW(1, 'a')::pair_type", "a": "ARRAY[1, 2]"},
}
TYPES = {
    "postgres": {
        **{"i": "integer", "f": "double precision", "s": "text", "j": "jsonb", "a": "integer[]"},
        **{"b": "boolean", "d": "date", "t": "timestamp", "r": "int4range", "v": "tsvector"},
        **{"q": "tsquery", "c": "pair_type"},
    },
    "duckdb": {
        **{"i": "integer", "f": "double", "s": "text", "j": "json", "a": "integer[]"},
        **{"b": "boolean", "d": "date", "t": "timestamp"},
    },
}

_BOTH = {
    "i": """$i + $i | $i % 7 | -$i | coalesce($i, $i) | nullif($i, $i) | greatest($i, $i, 3) | 42
        | CASE WHEN $b THEN $i ELSE $i END | CASE $i WHEN 1 THEN $i WHEN $i THEN 2 END | length($s)
        | ($j ->> 'n')::int | CAST($j ->> 'n' AS integer) | CAST($f AS integer) | $s::integer
        | position($s IN $s) | $i::smallint | extract(year FROM $d)::int | abs($i - $i)
        | extract(hour FROM $t)::int | date_part('year', $d)::int | length(substring($s FROM $i))
        | ($d - $d)::int | $a[1] | $a[$i] | (($i)) | ($j -> 'arr' ->> 0)::int | +$i | mod($i, 5)""",
    "f": """$f * $f | $f + $i | coalesce($f, $i) | round($f) | sqrt(abs($f)) | $i::double precision
        | $f / nullif($f, 0) | CASE WHEN $b THEN $f END | least($f, $f) | ($j ->> 'x')::float8
        | power($f, 2) | floor($f) | sign($f - $f) | CAST($i AS double precision) | 1.5e3""",
    "s": """$s || $s | concat($s, $i, $j -> 'age') | $j ->> 'name' | coalesce($s, $s) | lower($s)
        | upper(trim($s)) | trim(BOTH 'x' FROM $s) | substring($s FROM 1 FOR $i) | left($s, 3)
        | replace($s, $s, 'y') | CASE WHEN $b THEN $s ELSE 'none' END | $i::text | $d::text
        | CAST($j -> 'o' AS text) | concat_ws('-', $s, $s) | nullif($s, $s) | lpad($s, 5, $s)
        | $j -> 'o' ->> $s | split_part($s, 'a', 1) | repeat($s, 2) | md5($s) | 'lit''eral'
        | (CASE WHEN $s IS NULL THEN $s END) | regexp_replace($s, 'a', $s)
        | coalesce($j ->> 'a', $j ->> 'b', $s)""",
    "j": """$j -> 'o' | $j -> 0 | $j -> $s | coalesce($j -> 'a', $j) | $j -> 'arr' -> 1
        | CASE WHEN $b THEN $j ELSE $j -> 'o' END | nullif($j -> 'a', $j -> 'b') | ($j) -> 'k'
        | to_json($s)::@j | CAST('{"z": 1}' AS @j) | coalesce(($j -> 'x'), ($j -> 'y' -> 'z'))""",
    "a": """ARRAY[$i, $i] | coalesce($a, $a) | $a[1:2] | $a[$i:$i] | CASE WHEN $b THEN $a END
        | array(SELECT $i) | array(SELECT x FROM unnest($a) AS z(x) WHERE x > $i) | $a[$i:]
        | (ARRAY[$i]) | array_append($a, $i)""",
    "b": """$i > $i | $f <= $f | $s = $s | $s LIKE 'a%' | $s ILIKE $s | $b AND $b | $b OR NOT $b
        | $i BETWEEN $i AND $i | $i IN (1, $i, 3) | $i = ANY($a) | $s IS NULL | $j IS NOT NULL
        | $b IS TRUE | $i IS DISTINCT FROM $i | $d > $d | $t < $t | NOT $b | $s IN ($s, 'q')
        | $i IN (SELECT $i) | EXISTS (SELECT 1 WHERE $b) | $i > ALL(SELECT $i) | $d = $t::date
        | ($i, $s) = ($i, $s) | $s NOT LIKE $s ESCAPE '!' | $s SIMILAR TO 'a+' | ($j ->> 'f') = $s
        | ($j -> 'o') IS NULL | $f BETWEEN $f AND 3 | coalesce($b, false) | $i IN ($i)
        | $s NOT IN (SELECT $s) | $b = ($i <> $i)""",
    "d": """$d + 1 | coalesce($d, $d) | $t::date | CAST($t AS date) | DATE '2020-01-02'
        | $d - 2 | CASE WHEN $b THEN $d END | greatest($d, $d) | make_date(2020, 1, 5)
        | ($j ->> 'd')::date""",
    "t": """$t + INTERVAL '1 day' | date_trunc('day', $t) | coalesce($t, $t) | $d::timestamp
        | CASE WHEN $b THEN $t END | TIMESTAMP '2020-01-01 10:00:00' | least($t, $t)
        | $t - INTERVAL '2' HOUR""",
}

_POSTGRES = {
    "i": """jsonb_array_length($j -> 'arr') | cardinality($a) | array_length($a, 1) | @ $i
        | $i # $i | ($j #>> '{o,n}')::int | (SELECT count(*) FROM jsonb_each($j -> 'o'))::int
        | lower($r) | upper($r) - lower($r) | jsonb_array_length(coalesce($j -> 'arr', $j))
        | ($c).x | $i & $i
        | (SELECT max(e::text::int) FROM jsonb_array_elements($j -> 'arr') AS e)
        | char_length($s) | array_position($a, $i)
        | (SELECT sum(x) FROM unnest($a) AS u(x))::int | div($i, 2)::int
        | width_bucket($f, $f, $f, 4) | numnode($q) | length($v) | strpos($s, $s)
        | ($c::pair_type).x | (ARRAY[$i, $i])[$i] | octet_length($s) | CAST($i AS int4)
        | int4 '5' | ascii($s) | date_part('day', $t - $t)::int | ~ $i | $i << 2
        | jsonb_array_length($j #> '{arr}') | ($a || $i)[1] | extract(epoch FROM $t)::int
        | num_nulls($s, $i, $j -> 'a')""",
    "f": """ts_rank($v, $q) | trunc($f::numeric, $i)::float8 | $f ^ 2 | |/ abs($f)
        | atan2($f, $f) | random() * 0 + $f | (jsonb_path_query_first($j, '$.x'))::text::float8
        | $f::real::float8 | date_part('epoch', $t - $t) | extract(epoch FROM $t - $t)::float8
        | pi() | log(2, $i)::float8""",
    "s": """jsonb_typeof($j -> 'o') | $j #>> '{a,b}' | format('%s-%s', $s, $j -> 'n')
        | $s::varchar(5) | to_char($t, 'YYYY') | array_to_string($a, $s) | ($c).y | $j::text
        | initcap($s) | $s COLLATE "C" | jsonb_pretty($j -> 'o') | ($c).y || ($c).x
        | (SELECT string_agg(k, ',' ORDER BY k) FROM jsonb_object_keys($j -> 'o') AS k)
        | to_char($d, $s) | translate($s, 'ab', $s) | overlay($s PLACING $s FROM 1 FOR 2)
        | $r::text | jsonb_path_query_first($j, '$.a') #>> '{}' | quote_literal($s)
        | ts_headline($s, $q) | left($s, -1) | substring($s FROM 'a.') | substring($s, $i, 2)
        | (string_to_array($s, ','))[1] | $a::text | encode($s::bytea, 'hex')
        | CAST($s AS character varying) | btrim($s, $s) | $s::text::text
        | pg_typeof($j -> 'a')::text | current_user::text
        | (xpath('/a', xmlelement(name a, $s)))[1]::text""",
    "j": """$j #> '{o,n}' | $j || $j | $j - 'a' | jsonb_build_object('a', $i, $s, $j -> 'o')
        | jsonb_build_array($i, $s, $j) | jsonb_set($j, '{a}', $j -> 'b') | to_jsonb($a)
        | $j - $i | jsonb_path_query_array($j, '$.arr[*]') | jsonb_strip_nulls($j -> 'o')
        | to_jsonb($s) | jsonb_path_query_first($j -> 'o', '$.n', jsonb_build_object('z', $i))
        | $j #- '{a}'
        | (SELECT jsonb_agg(e ORDER BY e) FROM jsonb_array_elements($j -> 'arr') AS e)
        | (SELECT jsonb_object_agg(k, w) FROM jsonb_each($j -> 'o') AS e(k, w)) | to_jsonb($c)
        | jsonb_insert($j, '{o}', $j -> 'a') | row_to_json(ROW($i, $s))::jsonb | $j['a']
        | $j[$s]""",
    "a": """$a || $i | $a || $a | array_remove($a, $i) | array_cat($a, ARRAY[$i]) | '{1,2}'::int[]
        | array_replace($a, $i, 5) | $a[:$i] | $a::int[] | array(SELECT generate_series(1, $i))
        | (SELECT array_agg(x ORDER BY x DESC) FROM unnest($a) AS x) | array_fill($i, ARRAY[2])
        | array(SELECT e::text::int FROM jsonb_array_elements($j -> 'arr') AS e) | CAST($a AS int[])
        | string_to_array($s, ',')::int[]""",
    "b": """$j @> $j | $j ? 'a' | $j ?| ARRAY[$s, 'b'] | $j ?& ARRAY['a'] | $r && $r | $r @> $i
        | $i <@ $r | $v @@ $q | $a @> ARRAY[$i] | $a && $a | $a <@ $a | $s ~ $s | $s !~* 'x'
        | jsonb_path_exists($j, '$.a') | $j @? '$.arr[*]' | $j @@ '$.n > 1' | isempty($r)
        | $r << $r | ($j -> 'a') @> ($j -> 'b') | $v @@ to_tsquery('simple', 'cat')
        | jsonb_exists($j, $s) | ($d, $d) OVERLAPS ($d, $d) | $s ^@ $s
        | $s LIKE ANY (ARRAY[$s, 'a%']) | $r -|- $r | jsonb_typeof($j -> 'o') = 'object'
        | $c IS NULL | ($c).x > 1 | starts_with($s, $s) | $i = SOME (ARRAY[$i])
        | $i NOT BETWEEN SYMMETRIC $i AND 5 | $b IS NOT UNKNOWN | $b ISNULL
        | to_tsvector('english', $s) @@ plainto_tsquery('english', $s)
        | $i OPERATOR(pg_catalog.>) $i | $s LIKE ALL (ARRAY[$s])
        | ROW($i, $s) IN (SELECT $i, $s) | $f = ANY (ARRAY[$f, $f])""",
    "d": """to_date($s, 'YYYY-MM-DD') | ($t AT TIME ZONE 'UTC')::date | date($t)
        | lower(daterange($d, $d))""",
    "t": """$t AT TIME ZONE 'UTC' AT TIME ZONE $s | date_bin('1 day', $t, $t)
        | to_timestamp($f)::timestamp | make_timestamp(2020, $i, 1, 1, 1, 1)
        | $d + TIME '10:00' | $t + make_interval(days => $i) | $t + $i * INTERVAL '1 day'
        | to_timestamp($s, 'YYYY')::timestamp | date_trunc('hour', $t)
        | localtimestamp - INTERVAL '1 day' * $i | $t::timestamp(0)""",
    "r": """int4range($i, $i) | $r * $r | $r + $r | coalesce($r, $r) | '[1,5)'::int4range
        | CASE WHEN $b THEN $r END | int4range(lower($r), $i, '[]') | range_merge($r, $r)""",
    "v": """to_tsvector('simple', $s) | $v || $v | setweight($v, 'A') | to_tsvector($j -> 'o')
        | coalesce($v, $v) | strip($v) | to_tsvector('english', coalesce($s, $j ->> 'a'))""",
    "q": """to_tsquery('simple', 'a & b') | plainto_tsquery('simple', $s) | $q && $q
        | websearch_to_tsquery('simple', $s) | !! $q | phraseto_tsquery('simple', $s)""",
    "c": """ROW($i, $s)::pair_type | coalesce($c, $c) | CASE WHEN $b THEN $c END
        | CAST(ROW($i, $s) AS pair_type)""",
}

_DUCKDB = {
    "i": """json_array_length($j -> 'arr') | len($a) | list_sum($a)::int | $i // 3 | $i & $i
        | ~$i | list_reduce($a, lambda x, y: x + y + $i, $i) | len($s) | ($j ->> '$.o.n')::int
        | $i << 2 | list_position($a, $i) | struct_extract({'p': $i, 'q': $s}, 'p')
        | {'p': $i}.p | ascii($s) | list_count(list_filter($a, lambda x: x > $i))::int
        | $a.list_sum()::int | {'k': $i}['k'] | json_array_length(coalesce($j -> 'arr', $j))
        | ($a).len()::int | date_diff('day', $d, $d) | array_length($a) | strpos($s, $s)
        | if($b, $i, $i) | ifnull($i, $i) | try_cast($s AS int) | MAP {$i: $i}[$i]
        | len(list_transform($a, lambda e: coalesce($j -> 'o', e::json)))
        | (SELECT sum(u.x) FROM unnest($a) AS u(x))::int | element_at(MAP {'a': $i}, 'a')[1]
        | year($d)::int | bit_count($i) | json_extract($j, '$.n')::int | ($a)[-1]
        | datepart('month', $d)::int | len([z + $i FOR z IN $a IF z > $i])
        | list_aggregate($a, 'max') | struct_pack(u := $i).u""",
    "f": """list_avg($a) | $f ** 2 | $f ^ 2 | isnan($f)::int::double | try_cast($s AS double)
        | atan2($f, $f) | epoch($t)""",
    "s": """json_type($j -> 'o') | json_extract_string($j, '$.a') | $j ->> '$.name'
        | format('{}-{}', $s, $i) | array_to_string($a, $s) | strftime($t, '%Y') | $s[1:2]
        | string_split($s, ',')[1] | $s.upper() | typeof($j -> 'a')
        | list_aggr([$s, $s], 'string_agg', ',') | $j::text | ($j -> 'a')::varchar
        | regexp_extract($s, 'a(.)', 1) | printf('%s', $s) | dayname($d) | $s.replace('a', $s)
        | $s.concat($j -> 'a') | {'p': $i, 'q': $s}.q | json_extract_string($j -> 'o', 'n')
        | hash($s)::text | if($b, $s, 'z') | list_transform([$s], lambda x: x || $s)[1]
        | MAP {'a': $s}['a'] | reverse($s) | ($s)[2]
        | apply([$s], lambda x: concat(x -> 'k', $s))[1]""",
    "j": """json_object('a', $i, 'b', $j -> 'o') | json_array($i, $s, $j) | json_merge_patch($j, $j)
        | to_json($a) | to_json({'a': $i, 'b': $s}) | json_extract($j, '$.o') | $j -> '$.arr[0]'
        | json_extract($j, $s) | to_json(list_transform($a, lambda x: x + $i)) | $j -> ('o' || $s)
        | list_filter([$j, $j -> 'o'], lambda x: (x -> 'n') IS NOT NULL)[1]""",
    "a": """list_transform($a, lambda x: x + $i) | list_filter($a, lambda x: x % 2 = 0 AND $b)
        | [$i, $i] | list_concat($a, $a) | list_sort($a) | list_distinct($a)
        | [x + $i FOR x IN $a] | range($i % 5) | [x FOR x IN $a IF x > $i]
        | list_append($a, $i) | array_transform($a, lambda e, n: e * n + $i)
        | from_json($j -> 'arr', '["INT"]') | list_filter($a, lambda x, i: i > 1)
        | $a.list_sort() | list_transform(from_json($j -> 'arr', '["INT"]'), lambda y: y + $i)
        | list_slice($a, 1, $i) | list_apply($a, lambda name: name + $i)
        | $a.list_transform(lambda x: x + $i) | array_filter($a, lambda x: x < $i)
        | list_transform($a, lambda x: list_reduce($a, lambda x, y: x + y + $i))
        | list_transform($a, lambda id: id * $i) | list_transform($a, lambda meta: meta + $i)
        | apply($a, lambda value: value + len($s))""",
    "b": """list_contains($a, $i) | $a @> [$i] | $a && $a | $i IN $a | json_exists($j, '$.a')
        | json_valid($s) | regexp_matches($s, 'a') | starts_with($s, $s)
        | json_contains($j, $j -> 'a') | $s ^@ $s | $s GLOB 'a*'
        | json_type($j -> 'o') = 'OBJECT' | list_has_any($a, $a)
        | (json_array_length($j -> 'arr') > $i) | contains($s, $s) | $s ~ 'a.*'
        | list_any_value([$b, $b]) | ($i > $i) IS NOT FALSE | $i == $i""",
    "d": """last_day($d) | try_cast($s AS date) | date_trunc('month', $d)::date
        | $d + to_days($i)::interval | strptime('2020', '%Y')::date""",
    "t": """to_timestamp($f)::timestamp | date_trunc('hour', $t) | $t + to_hours($i)
        | $d + TIME '10:00' | time_bucket(INTERVAL '1 day', $t) | strptime('2020', '%Y')""",
}

#: Aggregates and windows, by kind, for both; `@o` is what stands between the parentheses of OVER.
AGGREGATES = {
    "i": """sum($i)::int | max($i) | count($j -> 'a')::int | count(DISTINCT $s)::int
        | min($i) FILTER (WHERE $b) | count(*)::int
        | count(*) FILTER (WHERE ($j ->> 'k') = $s)::int | max(length($s)) | max($i) + min($i)
        | sum(CASE WHEN $b THEN 1 ELSE 0 END)::int | coalesce(max($i), 0)""",
    "f": """avg($f) | sum($f) / nullif(count($i), 0)
        | percentile_cont(0.5) WITHIN GROUP (ORDER BY $f) | stddev_samp($f) | corr($f, $f)
        | avg($f) FILTER (WHERE $b)""",
    "s": """string_agg($s, ',' ORDER BY $i) | min($s) | max($j ->> 'a') | max(concat($j -> 'a', $s))
        | string_agg($s, '' ORDER BY $i, $s)""",
    "b": "bool_and($b) | bool_or($i > $i) | max($i) > min($i)",
    "a": "array_agg($i ORDER BY $f DESC) | array_agg(DISTINCT $i ORDER BY $i)",
}
AGGREGATES_POSTGRES = {
    "j": """jsonb_agg($j -> 'a' ORDER BY $i) | jsonb_object_agg(coalesce($s, 'x'), $j -> 'o')
        | jsonb_agg($i) FILTER (WHERE $b)""",
    "s": "mode() WITHIN GROUP (ORDER BY $s) | string_agg(DISTINCT $s, ',')",
    "i": """percentile_disc(0.3) WITHIN GROUP (ORDER BY $i)
        | rank($i) WITHIN GROUP (ORDER BY $i)::int""",
}
AGGREGATES_DUCKDB = {
    "i": """arg_max($i, $f) | list($i)[1] | first($i ORDER BY $s) | count_if($b)::int
        | quantile_cont($i, 0.5)::int""",
    "s": """list($s ORDER BY $i)[1] | any_value($s ORDER BY $i) | arg_min($s, $j ->> 'n')
        | mode($s ORDER BY $s)""",
}
WINDOWS = {
    "i": """sum($i) OVER (@o)::int | lag($i) OVER (@o) | lag($i, 1, $i) OVER (@o)
        | row_number() OVER (@o)::int | max($i) FILTER (WHERE $b) OVER (@o)
        | first_value($i) OVER (@o) | rank() OVER (@o)::int | count(*) OVER (@o)::int
        | ntile(3) OVER (@o)::int | nth_value($i, 2) OVER (@o) | sum(length($s)) OVER (@o)::int""",
    "f": "avg($f) OVER (@o) | percent_rank() OVER (@o) | sum($f) OVER (@o) | cume_dist() OVER (@o)",
    "s": "lead($s) OVER (@o) | last_value(concat($j -> 'a', $s)) OVER (@o) | max($s) OVER (@o)",
}
FRAMES = """ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
        | ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        | RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW | ROWS 2 PRECEDING
        | ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING EXCLUDE CURRENT ROW
        | GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES"""


def alternatives(text: str) -> list[str]:
    """Return what a text of alternatives lists; `||` and `|/` are operators."""
    return [part.strip() for part in text.replace("\n", " ").split(" | ") if part.strip()]


def words(engine: str, *sources: dict[str, str]) -> dict[str, list[str]]:
    """Return alternatives by kind."""
    json = "jsonb" if engine == "postgres" else "json"
    found: dict[str, list[str]] = {}
    for source in sources:
        for kind, text in source.items():
            found.setdefault(kind, []).extend(
                part.replace("@j", json) for part in alternatives(text)
            )
    return found


def expressions(engine: str) -> dict[str, list[str]]:
    """Return the expressions of an engine by kind."""
    return words(engine, _BOTH, _POSTGRES if engine == "postgres" else _DUCKDB)


def aggregates(engine: str) -> dict[str, list[str]]:
    """Return the aggregates of an engine by kind."""
    more = AGGREGATES_POSTGRES if engine == "postgres" else AGGREGATES_DUCKDB
    return words(engine, AGGREGATES, more)
