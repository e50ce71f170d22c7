"""Reading and checking `summary.json` against its schema (docs/summary-schema.md)."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).with_name("summary.schema.json")
VERSION = 1


class SummaryError(ValueError):
    """A summary that does not follow the schema; the message is one line with the place and the reason."""


def check(data: Any) -> Mapping[str, Any]:
    """Return `data` if it follows the schema, else raise `SummaryError`."""
    import jschon

    if not isinstance(data, Mapping) or data.get("schema") != "serrano.summary":
        raise SummaryError("summary: not a Serrano summary ('schema' must be 'serrano.summary')")
    if data.get("version") != VERSION:
        raise SummaryError(f"summary: version {data.get('version')!r} is not known here, only {VERSION}")
    result = _schema().evaluate(jschon.JSON(data))
    if not result.valid:
        raise SummaryError("summary: " + _reason(result.output("detailed")))
    return data


@functools.cache
def _schema() -> Any:
    import jschon  # imported late: it costs a third of a second, and the bare command line has no use for it

    jschon.create_catalog("2020-12")
    return jschon.JSONSchema(json.loads(SCHEMA.read_text()))


def load(path: Path) -> Mapping[str, Any]:
    """Read a summary from a file; `SummaryError` where it is missing, not JSON, or not a summary."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise SummaryError(f"summary: {path} is missing; run `make sim` first") from None
    except json.JSONDecodeError as error:
        raise SummaryError(f"summary: {path} is not JSON ({error})") from None
    return check(data)


def _reason(output: dict[str, Any]) -> str:
    """The deepest message of a validation output, with its place in the document."""
    errors = output.get("errors")
    if errors:
        return _reason(errors[0])
    place = output.get("instanceLocation") or "/"
    reason = output.get("error", "does not follow the schema")
    if isinstance(reason, list):  # what additionalProperties refused
        reason = f"unknown field {', '.join(map(str, reason))}"
    return f"at {place}: {reason}"
