"""The archive: every candidate, its origin, its verdict and its figures, in one SQLite file.

Results are keyed by specification, recipe and canonical netlist, so a circuit is judged and measured once however often
it is suggested. Rows hold no times of day: the same candidates give the same bytes in `export`. Every row is committed
as it comes, so a killed run loses at most the candidate in hand.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = """
create table if not exists recipe (hash text primary key, content text not null);
create table if not exists candidate (
    id text primary key, specification text not null, kind text not null, content text not null);
create table if not exists circuit (
    specification text not null, recipe text not null, netlist text not null, result text not null,
    primary key (specification, recipe, netlist));
create table if not exists submission (
    run text not null, number integer not null, candidate text not null, recipe text not null, netlist text,
    origin text not null, rationale text not null, result text not null, primary key (run, number));
"""


def text(value: Any) -> str:
    """JSON with sorted keys and no spaces: the one way values are stored and hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def candidate_id(specification: str, kind: str, content: str) -> str:
    """16 hex digits that name a candidate by its content."""
    return hashlib.sha256(f"{specification}\0{kind}\0{content}".encode()).hexdigest()[:16]


class Archive:
    """One SQLite file; `path` may be `:memory:`."""

    def __init__(self, path: Path | str) -> None:
        if str(path) != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._base.execute("pragma journal_mode=wal")
        self._base.executescript(SCHEMA)

    def close(self) -> None:
        self._base.close()

    def add_recipe(self, key: str, content: dict) -> None:
        self._base.execute("insert or ignore into recipe values (?, ?)", (key, text(content)))

    def find(self, specification: str, recipe: str, netlist: str) -> dict | None:
        """The stored result of a circuit, or None."""
        row = self._base.execute(
            "select result from circuit where specification=? and recipe=? and netlist=?",
            (specification, recipe, netlist),
        ).fetchone()
        return json.loads(row[0]) if row else None

    def known(self, specification: str, recipe: str) -> frozenset[str]:
        """Canonical netlists whose result is stored: what the cache holds."""
        rows = self._base.execute(
            "select netlist from circuit where specification=? and recipe=?", (specification, recipe)
        ).fetchall()
        return frozenset(netlist for (netlist,) in rows)

    def add_circuit(self, specification: str, recipe: str, netlist: str, result: dict) -> None:
        self._base.execute(
            "insert or ignore into circuit values (?, ?, ?, ?)", (specification, recipe, netlist, text(result))
        )

    def add_submission(
        self,
        run: str,
        number: int,
        *,
        specification: str,
        kind: str,
        content: str,
        recipe: str,
        netlist: str | None,
        origin: str,
        rationale: str,
        result: dict,
    ) -> str:
        """Record what was suggested and what came of it, in one transaction; returns the candidate's id."""
        key = candidate_id(specification, kind, content)
        with self._base:
            self._base.execute("begin")
            self._base.execute(
                "insert or ignore into candidate values (?, ?, ?, ?)", (key, specification, kind, content)
            )
            self._base.execute(
                "insert or replace into submission values (?, ?, ?, ?, ?, ?, ?, ?)",
                (run, number, key, recipe, netlist, origin, rationale, text(result)),
            )
        return key

    def submissions(self, run: str) -> list[dict]:
        """What a run has judged so far, in order."""
        rows = self._base.execute(
            "select number, candidate, netlist, origin, rationale, result from submission where run=? order by number",
            (run,),
        ).fetchall()
        names = ("number", "candidate", "netlist", "origin", "rationale", "result")
        return [dict(zip(names, row, strict=True)) | {"result": json.loads(row[-1])} for row in rows]

    def circuits(self, specification: str, recipe: str) -> list[dict]:
        """Correct circuits of a specification: netlist, result, and the first candidate that was it."""
        rows = self._base.execute(
            "select c.netlist, c.result, (select s.candidate from submission s where s.netlist=c.netlist and "
            "s.recipe=c.recipe order by s.run, s.number limit 1), (select s.origin from submission s where "
            "s.netlist=c.netlist and s.recipe=c.recipe order by s.run, s.number limit 1) "
            "from circuit c where specification=? and recipe=? order by c.netlist",
            (specification, recipe),
        ).fetchall()
        found = [{"netlist": n, "result": json.loads(r), "candidate": c, "origin": o} for n, r, c, o in rows]
        return [entry for entry in found if entry["result"]["verdict"] == "correct"]

    def candidate(self, key: str) -> dict | None:
        """kind and content of a candidate."""
        row = self._base.execute("select kind, content from candidate where id=?", (key,)).fetchone()
        return {"kind": row[0], "content": row[1]} if row else None

    def export(self) -> Iterator[str]:
        """The whole archive as JSON lines in a fixed order: equal archives give equal bytes."""
        for table, order in (
            ("recipe", "hash"),
            ("candidate", "id"),
            ("circuit", "specification, recipe, netlist"),
            ("submission", "run, number"),
        ):
            cursor = self._base.execute(f"select * from {table} order by {order}")
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield text({"table": table, **dict(zip(names, row, strict=True))}) + "\n"
