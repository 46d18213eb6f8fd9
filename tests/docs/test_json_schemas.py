"""The schemas of the JSON documents are those of what the commands write."""

from __future__ import annotations

import json

import pytest

from tests.cases.json_documents import FOLDER, INPUTS, MEANINGS, NAMES_AS_KEYS, TITLES, schemas


@pytest.fixture(scope="module")
def made():
    return schemas()


@pytest.mark.parametrize("name", [*TITLES, *INPUTS])
def test_schema_is_that_of_the_document(made, name):
    """If it is not: is schema_version still right?  Then ``python -m tests.cases.json_documents`` writes it anew."""
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == made[name]


def test_every_document_has_a_schema_and_a_version(made):
    assert {path.stem for path in FOLDER.glob("*.json")} == set(TITLES) | set(INPUTS) == set(made)
    for name in TITLES:
        assert json.loads(made[name])["required"][0] == "schema_version"


def test_every_list_and_every_explained_field_occurs(made):
    """Otherwise a schema says nothing about its items, or a meaning belongs to nothing."""
    seen = set()

    def walk(name, schema):
        seen.add(name)
        kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        assert kinds != ["null"], name
        if "array" in kinds:
            assert "items" in schema, name
            walk(f"{name} items", schema.get("items", {"type": "string"}))
        for field, inner in schema.get("properties", {}).items():
            walk(field, inner)
        if "additionalProperties" in schema:
            walk(f"{name} values", schema["additionalProperties"])

    for text in made.values():
        walk("", json.loads(text))
    assert sorted((set(MEANINGS) | NAMES_AS_KEYS) - seen) == []
