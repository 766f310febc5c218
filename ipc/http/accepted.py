"""What requests may hold at a place, in words: read off the JSON schema of the structs that decode them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

_Form = dict[str, Any]

_SIMPLE = {"boolean": "true or false", "object": "an object", "array": "a list", "string": "a text"}


def steps(place: str) -> list[str | int]:
    """The keys and indices that lead to a place such as ``messages[0].role``."""
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", place)
    return [name or int(index) for name, index in found]


def accepted(kind: type[msgspec.Struct], place: str) -> str:
    """What may stand there; empty where nothing is said of it."""
    words = list(dict.fromkeys(filter(None, map(_words, _forms_at(kind, place)))))
    return " or ".join(words)


def similar(kind: type[msgspec.Struct], place: str, name: str) -> str:
    """The field there whose name is most like ``name``; empty where none is."""
    fields = [field for form in _forms_at(kind, place) for field in form.get("properties", ())]
    return next(iter(difflib.get_close_matches(name, fields, n=1, cutoff=0.75)), "")


@cache
def _schema(kind: type[msgspec.Struct]) -> tuple[_Form, dict[str, _Form]]:
    [schema], components = msgspec.json.schema_components([kind], ref_template="{name}")
    return schema, components


def _forms_at(kind: type[msgspec.Struct], place: str) -> list[_Form]:
    """The schemas of which what stands at a place may have any."""
    schema, components = _schema(kind)
    forms = list(_forms(schema, components))
    for step in steps(place):
        if isinstance(step, int):
            below = [form["items"] for form in forms if "items" in form]
        else:
            below = [form["properties"][step] for form in forms if step in form.get("properties", ())]
        forms = [form for one in below for form in _forms(one, components)]
    return forms


def _forms(schema: _Form, components: dict[str, _Form]) -> Iterator[_Form]:
    """The schemas that a schema stands for."""
    if "$ref" in schema:
        yield from _forms(components[schema["$ref"]], components)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _forms(one, components)
    else:
        yield schema


def _words(form: _Form) -> str:
    if "enum" in form:
        return " or ".join(map(repr, form["enum"]))
    kind = form.get("type", "")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(form)
    if kind == "object" and isinstance(values := form.get("additionalProperties"), dict) and values:
        return f"an object whose values are each {_words(values)}"
    if kind == "array" and form.get("minItems"):
        return "a list that is not empty"
    if kind == "string" and form.get("minLength"):
        return f"a text of {form['minLength']} to {form['maxLength']} characters"
    return _SIMPLE.get(kind, "")


def _bounds(form: _Form) -> str:
    """Of a number; where there is a greatest there is a least."""
    if "maximum" not in form:
        return ""
    most = f"{form['maximum']:,}"
    if "exclusiveMinimum" in form:
        return f" above {form['exclusiveMinimum']:,}, up to {most}"
    return f" from {form['minimum']:,} to {most}"
