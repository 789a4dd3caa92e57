import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from framp.config import Config
from framp.errors import RunFolderError
from framp.runs import Outcome, results
from framp.runs.results import Results


def evaluation(round: int, local: float, union: float) -> dict[str, Any]:
    return {
        "event": "evaluation",
        "round": round,
        "local": local,
        "groups": {"1/4": local, "1": local},
        "union": union,
        "union_by_size": {"1/4": union, "1": union},
        "clients": [local] * 5,
    }


def round_event(number: int) -> dict[str, Any]:
    return {
        "event": "round",
        "round": number,
        "bytes_down": 100 * number,
        "bytes_up": 10 * number,
        "server_seconds": 0.5 * number,
        "seconds": 2.0 * number,
    }


def built(config: Config, events: list[dict[str, Any]]) -> dict[str, Any]:
    return Results(
        config, events, "a" * 64, "b" * 64, {"name": "cnn", "maskable": 1646}, {"kind": "dirichlet"}, 4096
    ).to_dict()


def check(record: dict[str, Any]) -> None:
    jsonschema.validate(record, results.json_schema(), cls=jsonschema.Draft202012Validator)


def test_by_hand(config: Config) -> None:
    values = [(0.25, 0.5), (0.75, 0.25), (0.75, 1.0), (0.5, 0.75)]
    events: list[dict[str, Any]] = [{"event": "start"}, {"event": "resume", "round": 2}, {"event": "finished"}]
    events += [round_event(number) for number in (1, 2, 3)]
    events += [evaluation(3 * number, *value) for number, value in enumerate(values, 1)]
    record = built(config, events)
    check(record)
    assert record == {
        "schema": 1,
        "recipe": "framp",
        "seed": 0,
        "rounds": 12,
        "config_sha256": config.sha256(),
        "partition_sha256": "a" * 64,
        "state_sha256": "b" * 64,
        "model": {"name": "cnn", "maskable": 1646},
        "partition": {"kind": "dirichlet"},
        "final": {
            "local": 0.5,
            "groups": {"1/4": 0.5, "1": 0.5},
            "union": 0.75,
            "union_by_size": {"1/4": 0.75, "1": 0.75},
            "clients": [
                {"id": client, "budget": budget, "accuracy": 0.5}
                for client, budget in enumerate(["1/4", "1/4", "1/4", "1", "1"])
            ],
        },
        "best": {"round": 6, "local": 0.75, "union": 0.25},
        "last10": {"local": 0.5625, "union": 0.625},
        "cost": {
            "bytes_down": 600,
            "bytes_up": 60 + 5 * 512,
            "server_seconds": [0.5, 1.0, 1.5],
            "round_seconds": [2.0, 4.0, 6.0],
            "peak_rss_bytes": 4096,
        },
    }


def test_the_last_ten_and_no_more(config: Config) -> None:
    events = [evaluation(1, 1.0, 1.0)] + [evaluation(round, round / 16, 0.5) for round in range(2, 12)]
    record = built(config, [round_event(1), *events])
    assert record["last10"] == {"local": sum(range(2, 12)) / 160, "union": 0.5}
    assert record["best"] == {"round": 1, "local": 1.0, "union": 1.0}


@pytest.mark.parametrize(("recipe", "bytes"), [("framp", 2560), ("framp-onehot", 0), ("fiarse", 0), ("fedavg", 0)])
def test_descriptors_count_where_they_are_sent(config: Config, recipe: str, bytes: int) -> None:
    record = built(config.with_values({"recipe": recipe}), [round_event(1), evaluation(1, 0.5, 0.5)])
    assert record["cost"]["bytes_up"] == 10 + bytes


def test_no_evaluation_is_an_error(config: Config) -> None:
    with pytest.raises(RunFolderError, match="no evaluation"):
        built(config, [round_event(1)])


def test_a_real_run_satisfies_the_schema(finished: Outcome, tmp_path: Path) -> None:
    assert finished.results is not None
    check(finished.results)
    assert results.read(finished.folder) == finished.results
    results.write(tmp_path, finished.results)
    assert results.read(tmp_path) == finished.results


def sections(schema: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    if not isinstance(schema, dict):
        return []
    found = [(path, schema)] if "properties" in schema else []
    return found + [entry for key, value in schema.items() for entry in sections(value, (*path, key))]


def test_the_schema_is_strict_and_explains_itself(config: Config) -> None:
    schema = results.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    found = sections(schema)
    assert len(found) == 8
    for path, section in found:
        assert section["additionalProperties"] is False, path
        later = set(section["properties"]) - set(section["required"])
        assert later == {(): {"partition"}, ("properties", "partition"): {"edges", "cut_edges"}}.get(path, set()), path
        assert all(entry["description"] for entry in section["properties"].values()), path
    record = built(config, [round_event(1), evaluation(1, 0.5, 0.5)])
    with pytest.raises(jsonschema.ValidationError):
        check({**record, "more": 1})
    with pytest.raises(jsonschema.ValidationError):
        check({**record, "best": {"round": 1, "local": 1.5, "union": 0.5}})


def test_unreadable_results_are_named(finished: Outcome, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has no results yet; finish it with `framp resume"):
        results.read(tmp_path)
    assert finished.results is not None
    lacking = [{key: value for key, value in finished.results.items() if key != gone} for gone in ("rounds", "cost")]
    emptied = [{**finished.results, section: {}} for section in ("cost", "final")]
    for content in ("{", "[]", "{}", '{"schema": 1}', *map(json.dumps, lacking + emptied)):
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(RunFolderError, match="is damaged; delete it and make it again"):
            results.read(tmp_path)
    (tmp_path / "results.json").write_text('{"schema": 2}')
    with pytest.raises(RunFolderError, match="has schema 2, but this version of FRAMP reads 1"):
        results.read(tmp_path)


def test_peak_memory_is_in_bytes() -> None:
    own = results.peak_rss_bytes(with_children=False)
    assert 50 << 20 < own < 64 << 30
    assert results.peak_rss_bytes(with_children=True) >= own
