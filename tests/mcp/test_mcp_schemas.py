"""The tools' schemas mean the same to clients that read draft-07 and to those that read 2020-12."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from lead import a_lead
from msgspec import inspect
from scripted_project import OpenProject
from world import told

from goent.domain.requests import OperationRequest
from goent.mcp.server import tool_definition
from goent.testing.driver import ScriptedDriver, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
DIALECTS = (Draft7Validator, Draft202012Validator)
# What both drafts read alike. In draft-07 everything beside a `$ref` is ignored.
KEYWORDS = {
    *("type", "enum", "anyOf", "$ref", "$defs", "properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems", "minLength", "maxLength", "pattern"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("title", "description", "default"),
}
CHARACTERS = st.characters(codec="utf-8")


def subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    below: list[Any] = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    below += schema.get("anyOf", [])
    below += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for one in below:
        if not isinstance(one, bool):
            yield from subschemas(one)


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """JSON that msgspec reads as this type."""
    match kind:
        case inspect.Metadata(type=inner):
            return values(inner)
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.LiteralType(values=allowed):
            return st.sampled_from(allowed)
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=least, gt=above, le=most):
            return st.integers(least if above is None else above + 1, most)
        case inspect.FloatType(ge=least, gt=above, le=most):
            low = above if least is None else least
            return st.floats(
                low, most, exclude_min=above is not None, allow_nan=False, allow_infinity=False
            )
        case inspect.StrType(pattern=str(pattern), max_length=longest):
            return st.from_regex(pattern, fullmatch=True).map(lambda text: text[:longest])
        case inspect.StrType(min_length=least, max_length=most):
            return st.text(CHARACTERS, min_size=least or 0, max_size=5 if most is None else most)
        case _:
            return containers(kind)


def containers(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(values, items)).map(list)
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            most = 3 if most is None else most
            return st.lists(values(item), min_size=least or 0, max_size=most)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=2)
        case inspect.StructType(fields=fields):
            needed = {
                f.encode_name: values(f.type) for f in fields if hint(f, "x-required") or f.required
            }
            shown = {f.encode_name: values(f.type) for f in fields if not hint(f, "deprecated")}
            optional = {name: each for name, each in shown.items() if name not in needed}
            return st.fixed_dictionaries(needed, optional=optional)
        case _:
            raise AssertionError(f"no tool has {kind} yet")


def hint(field: inspect.Field, name: str) -> bool:
    return isinstance(field.type, inspect.Metadata) and name in str(field.type.extra_json_schema)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] (msgspec leaves it open)


def assert_all_accept(schema: Mapping[str, Any], value: Any) -> None:
    for dialect in DIALECTS:
        dialect(schema).validate(value)  # pyright: ignore[reportUnknownMemberType] (the stubs leave a type out)


async def test_no_schema_uses_what_only_one_of_the_drafts_knows(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        for operation in project.operations.table.values():
            described = tool_definition(operation)
            for whole in (described.input_schema, described.output_schema):
                assert whole is not None and whole["type"] == "object"
                for dialect in DIALECTS:
                    dialect.check_schema(whole)
                for schema in subschemas(whole):
                    assert schema.keys() <= KEYWORDS, (operation.name, schema)
                    if "$ref" in schema:
                        assert schema.keys() <= {"$ref", "title", "description", "default"}
                    assert schema.get("items") is not False, operation.name
                    assert isinstance(schema.get("items", {}), dict), operation.name


async def test_every_schema_accepts_whatever_its_tool_takes_or_gives(
    open_project: OpenProject,
) -> None:
    def check(kind: type, schema: Mapping[str, Any]) -> None:
        @settings(max_examples=15, database=None)
        @given(values(inspect.type_info(kind)))
        def accepts(value: object) -> None:
            assert_all_accept(schema, value)
            sent = msgspec.json.encode(msgspec.convert(value, kind))
            if not issubclass(kind, OperationRequest):  # nobody is sent a request
                assert_all_accept(schema, msgspec.json.decode(sent))

        accepts()

    async with open_project(ScriptedDriver(lambda _: [])) as project:
        for operation in project.operations.table.values():
            described = tool_definition(operation)
            assert described.output_schema is not None
            check(operation.request, described.input_schema)
            check(operation.reply, described.output_schema)


async def test_real_answers_hold_in_both_drafts_where_prices_are_known(
    open_project: OpenProject,
) -> None:
    task = {"task": "rename a variable", "wait_s": 20}
    driver = ScriptedDriver(lambda _: [say("Done.")])
    async with open_project(driver) as project, a_lead(project, "auto") as lead:
        outputs = {t.name: t.output_schema for t in (await lead.list_tools()).tools}
        spawned = await lead.call_tool("worker_spawn", task)
        assert told(spawned)["estimate"]["cost_usd"] is not None
        worker = {"worker_id": told(spawned)["worker_id"]}
        answers = {
            "worker_spawn": spawned,
            "provider_recommend": await lead.call_tool("provider_recommend", {"task": "rename"}),
            "worker_status": await lead.call_tool("worker_status", worker),
            "worker_result": await lead.call_tool("worker_result", worker),
            "provider_list": await lead.call_tool("provider_list", {}),
            "cost_report": await lead.call_tool("cost_report", {}),
        }
        for name, answer in answers.items():
            schema = outputs[name]
            assert schema is not None
            assert_all_accept(schema, told(answer))
