"""Every row parses, every fault is refused with its place, and a job holds only what its skill depends on."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PROJECT, TINY, raw_config, run_python, tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st

from disk import config
from disk.config.targets import advise, layers, presets
from disk.errors import ConfigError
from disk.storage.provenance import DOWNSTREAM, code_hash

PRESETS = sorted(
    path
    for folder in ("config", "benchmarks")
    for path in (PROJECT / folder).glob("*.yaml")
    if path not in config.DEFAULT_FILES
)


def refusal(*changes: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(raw_config(*changes))
    return str(caught.value)


# ---------------------------------------------------------------- the files


def test_the_schema_is_the_models_own():
    """`make schema` writes it."""
    written = yaml.safe_load((PROJECT / "workflow/schemas/config.schema.yaml").read_text())
    assert written == json.loads(json.dumps(config.schema()))


def test_every_row_of_the_default_files_makes_a_job():
    loaded = config.load()
    for env, row in loaded.environments.items():
        for method, choices in loaded.methods.items():
            if choices.budget and row.evolution:
                continue  # refused: test_parts.py
            if choices.incremental:
                owners = [loaded.owner_of(method, skill) for skill in range(row.skills)]
                jobs = [loaded.skill_job(env, owner, 0, skill) for skill, owner in enumerate(owners)]
                assert [job.skill for job in jobs] == list(range(row.skills))
            else:
                assert loaded.joint_job(env, method, 0).skills == choices.skills.get(env, row.skills)


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_every_preset_parses_and_its_runs_make_jobs(preset: Path):
    loaded = config.load(preset)
    assert loaded.runs
    for group in loaded.runs:
        for env in group.envs:
            for method in group.methods:
                if loaded.methods[method].incremental:
                    loaded.skill_job(env, method, 0, loaded.environments[env].skills - 1)


def test_default_schedules_are_the_papers():
    loaded = config.load()
    total = {name: sum(row.steps_of(i) for i in range(row.skills)) for name, row in loaded.environments.items()}
    skills = {name: row.skills for name, row in loaded.environments.items()}
    assert {name: (skills[name], total[name]) for name in ("halfcheetah", "hopper", "swimmer", "ant")} == {
        "halfcheetah": (20, 2_500_000),
        "hopper": (50, 2_500_000),
        "swimmer": (10, 2_500_000),
        "ant": (10, 5_000_000),
    }
    assert loaded.environments["ant"].steps_of(2) == 1_000_000
    assert loaded.environments["ant"].steps_of(9) == 250_000


def test_a_preset_replaces_lists_and_merges_mappings(tmp_path: Path):
    preset = tmp_path / "preset.yaml"
    preset.write_text("runs: [{envs: [point], methods: [disk]}]\nenvironments: {point: {skills: 2}}\n")
    loaded = config.load(preset)
    assert [(group.envs, group.methods) for group in loaded.runs] == [(["point"], ["disk"])]
    assert loaded.environments["point"].skills == 2
    assert loaded.environments["point"].horizon == 50
    assert "ant" in loaded.environments


def test_a_preset_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path):
    broken, empty = tmp_path / "broken.yaml", tmp_path / "empty.yaml"
    broken.write_text("runs: [")
    empty.write_text("")
    for path in (broken, empty, tmp_path / "absent.yaml"):
        with pytest.raises(ConfigError, match=path.name):
            config.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"seeds: [\xff]",
        b"runtime: {device: 2024-02-30}",
        b"threads: 0x_",
        b"threads: !!float x",
        b"threads: !!bool x",
        b"threads: !!timestamp x",
        b"environments: {point: {kwargs: &x {a: *x}}}",
        b"seeds: " + b"[" * 20_000 + b"]" * 20_000,
    ],
    ids=lambda content: str(content[:40]),
)
def test_whatever_a_file_holds_the_refusal_names_it(tmp_path: Path, content: bytes):
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"mine\.yaml: cannot be read: "):
        config.load(tmp_path / "mine.yaml").skill_job("point", "disk", 0, 0).digest()


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1"])
def test_a_device_that_torch_knows_is_accepted(device: str):
    assert config.parse(raw_config({"runtime": {"device": device}})).runtime.device == device


@pytest.mark.parametrize(
    ("text", "key", "line", "first"),
    [
        ("environments:\n  a: 1\n\nenvironments:\n  b: 2\n", "environments", 4, 1),
        ("methods:\n  disk: {alpha: 1,\n    alpha: 2}\n", "alpha", 3, 2),
        ("runs:\n- seeds: [0]\n  envs: [point]\n  seeds: [1]\n", "seeds", 4, 2),
        ("a: &a {x: 1}\nb: {<<: *a, y: 1,\n  y: 2}\n", "y", 3, 2),
    ],
)
def test_a_key_that_a_file_has_twice_is_refused_with_both_lines(
    tmp_path: Path, text: str, key: str, line: int, first: int
):
    """PyYAML keeps the last one: rows that are pasted below a file would replace all its rows."""
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"mine\.yaml, line {line}: key '{key}' is already in line {first}"):
        config.read([tmp_path / "mine.yaml"])


def test_merge_keys_aliases_and_equal_keys_of_different_mappings_are_read_as_yaml_has_them(tmp_path: Path):
    text = "a: &a {x: 1, y: 2}\nb: &b\n  <<: *a\n  x: 3\nc: {<<: *b, y: 4}\nd: [*b, *b]\n1: one\n'1': text\n"
    (tmp_path / "mine.yaml").write_text(text)
    b = {"x": 3, "y": 2}
    expected = {"a": {"x": 1, "y": 2}, "b": b, "c": {"x": 3, "y": 4}, "d": [b, b], 1: "one", "1": "text"}
    assert config.read([tmp_path / "mine.yaml"]) == expected == yaml.safe_load(text)


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("target", "results", "said"),
    [
        ("results/quick/point/hausdorff.csv", "results", "--configfile config/quick.yaml"),
        ("results/laptop/ant/disk/seed0/metrics.csv", "results/quick", "--configfile config/laptop.yaml"),
        ("results/point/hausdorff.csv", "results/quick", "ask for results/quick/point/hausdorff.csv"),
        ("results/compare/point/hausdorff.csv", "results", "--configfile config/quick.yaml config/compare.yaml after"),
        ("results/halfchetah/hausdorff.csv", "results", "did you mean 'halfcheetah'?"),
        ("results/walker/hausdorff.csv", "results", "or add --configfile with the file that has its row"),
        ("results/walker/hausdorff.csv", "results", "known: ant, ant_blocks_even"),
        ("results/ant/hausdorf.csv", "results", "did you mean results/ant/hausdorff.csv?"),
        ("results/ant/disk/seed0/metric.csv", "results", "did you mean results/ant/disk/seed0/metrics.csv?"),
        ("resluts/ant/hausdorff.csv", "results", "did you mean results/ant/hausdorff.csv?"),
        ("figurs", "results", "did you mean figures?"),
        ("results/halfcheetah", "results", "ask for a file in it, such as results/halfcheetah/hausdorff.csv"),
        ("results/laptop", "results", "add --configfile config/laptop.yaml"),
        ("results/statistics.csv", "results/quick", "ask for results/quick/statistics.csv"),
        ("results/ant/dsk/seed0/metrics.csv", "results", "did you mean 'disk'?"),
        ("results/quick/pont/hausdorff.csv", "results/quick", "did you mean 'point'?"),
        ("results/of_somebody/table.csv", "results", None),
        ("theirs/point/table.csv", "results", None),
        ("theirs", "results", None),
    ],
)
def test_a_target_that_no_rule_makes_gets_an_advice(target: str, results: str, said: str | None):
    loaded = config.load()
    files = ("hausdorff.csv", "summary.csv", "metrics.csv", "statistics.csv", "figures")
    advice = advise(target, results, loaded.environments, loaded.methods, ("figures", "videos"), files)
    if said is None:
        assert advice is None
    else:
        assert advice is not None
        assert advice.startswith(f"{target}: ")
        assert said in advice
        assert "\n" not in advice


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.name)
def test_the_command_at_the_head_of_a_preset_gives_the_files_that_it_lies_over(preset: Path):
    files = layers(preset)
    assert files[-1] == preset
    assert all(path in PRESETS for path in files)
    over = [word for word in preset.read_text().split("\n\n")[0].split() if word.endswith("config/quick.yaml")]
    assert bool(over) == (PROJECT / "config/quick.yaml" in files[:-1] or preset.name == "quick.yaml")
    assert config.load(*files).runs


def test_a_preset_over_another_is_advised_with_both():
    at = {path.name: path for path, _ in presets()}
    assert [path.name for path in layers(at["compare.yaml"])] == ["quick.yaml", "compare.yaml"]
    assert layers(at["laptop.yaml"]) == [at["laptop.yaml"]]


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"runtime": {"longest_minutes": "600"}}, {"runtime": {"longest_minutes": 600}}),
        ({"seeds": ["0", "2"]}, {"seeds": [0, 2]}),
        ({"tracking": {"enabled": "false", "uri": "null"}}, {"tracking": {"enabled": False, "uri": None}}),
        ({"sac": {"hidden": ["16", "16"], "discount": "0.9"}}, {"sac": {"hidden": [16, 16], "discount": 0.9}}),
        ({"runs": [{"envs": ["point"], "seeds": ["0"]}]}, {"runs": [{"envs": ["point"], "seeds": [0]}]}),
        ({"tracking": {"uri": "a: b"}}, {"tracking": {"uri": "a: b"}}),
        ({"tracking": {"uri": "%odd"}}, {"tracking": {"uri": "%odd"}}),
        ({"retrain_on_code_change": "true", "threads": 2}, {"retrain_on_code_change": True, "threads": 2}),
    ],
)
def test_numbers_within_braces_and_brackets_of_a_command_line_are_numbers(given: Any, read: Any):
    found = config.typed(given)
    assert found == read
    assert repr(found) == repr(read), "1 and True are equal, and not the same"


@pytest.mark.parametrize(
    ("change", "path", "said"),
    [
        ({"environments": {"point": {"horizn": 3}}}, "environments.point.horizn", "'horizon'"),
        ({"sac": {"hiden": [3]}}, "sac.hiden", "'hidden'"),
        ({"environments": {"point": {"sac": {"hiden": [3]}}}}, "environments.point.sac.hiden", "'hidden'"),
        ({"environments": {"point": {"position": {"qpoz": [0]}}}}, "environments.point.position.qpoz", "'qpos'"),
        ({"methods": {"disk": {"settings": {"neighbors": 3}}}}, "methods.disk.settings.neighbors", "'neighbours'"),
        ({"methods": {"disk": {"sac": {"discout": 0.9}}}}, "methods.disk.sac.discout", "'discount'"),
        ({"methods": {"disk": {"sac_in": {"ant": {"discout": 0.9}}}}}, "methods.disk.sac_in.ant.discout", "'discount'"),
        ({"seed": [1]}, "seed", "'seeds'"),
        ({"runs": [{"env": ["point"], "methods": ["disk"]}]}, "runs.0.env", "'envs'"),
        ({"tracking": {"interval_second": 3}}, "tracking.interval_second", "'interval_seconds'"),
        ({"integers": 3}, "integers", "known"),
    ],
)
def test_a_misspelt_key_is_refused_with_its_path_and_the_right_one(change: dict[str, Any], path: str, said: str):
    lines = refusal(change).splitlines()
    assert any(line.startswith(f"{path}: unknown key") and said in line for line in lines), lines


@pytest.mark.parametrize(
    ("change", "path", "value", "expectation"),
    [
        ({"environments": {"point": {"horizon": "long"}}}, "environments.point.horizon", "'long'", "integer"),
        ({"environments": {"point": {"horizon": 0}}}, "environments.point.horizon", "0", "greater than 0"),
        ({"environments": {"point": {"skills": 2.5}}}, "environments.point.skills", "2.5", "integer"),
        ({"environments": {"point": {"steps": -5}}}, "environments.point.steps", "-5", "greater than or equal to 0"),
        ({"environments": {"point": {"steps": "5e5"}}}, "environments.point.steps", "'5e5'", "write 500_000"),
        ({"environments": {"point": {"position": {"com": ["w"]}}}}, "environments.point.position.com.0", "'w'", "'x'"),
        ({"environments": {"point": {"sigma": "speed"}}}, "environments.point.sigma", "'speed'", "velocity"),
        ({"environments": {"point": {"sac": {"batch_size": 0}}}}, "environments.point.sac.batch_size", "0", "greater"),
        ({"methods": {"disk": {"settings": {"anneal": "cos"}}}}, "methods.disk.settings.anneal", "'cos'", "'tanh'"),
        ({"methods": {"disk": {"settings": {"alpha": -1}}}}, "methods.disk.settings.alpha", "-1", "greater"),
        ({"methods": {"disk": {"schedule": "random"}}}, "methods.disk.schedule", "'random'", "'incremental'"),
        ({"methods": {"disk": {"replay_keep": 1.5}}}, "methods.disk.replay_keep", "1.5", "less than or equal to 1"),
        ({"sac": {"discount": 1.0}}, "sac.discount", "1.0", "less than 1"),
        ({"sac": {"learning_rate": 0.0}}, "sac.learning_rate", "0.0", "greater than 0"),
        ({"seeds": [0, -1]}, "seeds.1", "-1", "greater than or equal to 0"),
        ({"runs": "point"}, "runs", "'point'", "list"),
        ({"tracking": {"interval_seconds": -1}}, "tracking.interval_seconds", "-1", "greater than 0"),
        ({"threads": "all"}, "threads", "'all'", "integer"),
        ({"runtime": {"device": "gpu"}}, "runtime.device", "'gpu'", "auto|cpu|cuda"),
        ({"runtime": {"device": "cuda:"}}, "runtime.device", "'cuda:'", "auto|cpu|cuda"),
    ],
)
def test_a_bad_value_is_refused_with_path_value_and_expectation(
    change: dict[str, Any], path: str, value: str, expectation: str
):
    lines = refusal(change).splitlines()
    assert any(line.startswith(f"{path}: {value}: ") and expectation in line for line in lines), lines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runs": [{"envs": ["pont"], "methods": ["disk"]}]}, ["runs.0.envs", "'pont'", "point"]),
        ({"runs": [{"envs": ["point"], "methods": ["dusk"]}]}, ["runs.0.methods", "'dusk'", "disk"]),
        ({"environments": {"point": {"steps": [500, 600]}}}, ["environments.point", "steps", "2", "skills is 8"]),
        ({"environments": {"halfcheetah": {"steps": 5000}}}, ["environments.halfcheetah.steps", "5000", "seed steps"]),
        ({"environments": {"ant": {"sac": {"seed_steps": 250_000}}}}, ["environments.ant.steps", "250000", "skill 0"]),
        ({"environments": {"point": {"position": {"qpos": []}}}}, ["environments.point.position", "one or two"]),
        ({"environments": {"point": {"position": {"com": ["x"]}}}}, ["environments.point.position", "qpos", "com"]),
        ({"sac": {"log_std_bounds": [2.0, -5.0]}}, ["sac", "log_std_bounds", "low < high"]),
        ({"methods": {"random": {"steps": 100}}}, ["methods.random", "steps 0"]),
        ({"methods": {"disk": {"schedule": "uniform"}}}, ["methods.disk", "incremental"]),
        ({"methods": {"disk": {"policies": "shared"}}}, ["methods.disk", "independent"]),
        ({"methods": {"disk": {"skills": {"ant": 3}}}}, ["methods.disk", "leave out skills"]),
        ({"methods": {"dads": {"sac": {"seed_actions": None}}}}, ["methods.dads.sac.seed_actions", "expected policy"]),
        (
            {"methods": {"dads": {"sac_in": {"ant": {"seed_actions": None}}}}},
            ["methods.dads.sac_in.ant.seed_actions", "expected policy"],
        ),
        ({"methods": {"disk": {"sac_in": {"aunt": {}}}}}, ["methods.disk.sac_in.aunt", "'aunt'", "ant"]),
        ({"methods": {"disk": {"skills": {"ant": 25}}}}, ["methods.disk", "skills"]),
        ({"methods": {"diayn": {"schedule": "incremental"}}}, ["methods.diayn", "incremental"]),
        ({"methods": {"diayn": {"schedule": "curriculum"}}}, ["methods.diayn", "curriculum", "independent"]),
        ({"methods": {"diayn": {"curriculum": {"first": 3}}}}, ["methods.diayn", "uniform has no curriculum"]),
        ({"methods": {"diayn": {"settings": {"alpha": 1.0}}}}, ["methods.diayn.settings.alpha", "learning_rate"]),
        ({"methods": {"diayn": {"steps": {"pont": 100}}}}, ["methods.diayn.steps", "'pont'", "point"]),
        ({"methods": {"diayn": {"skills": {"pont": 100}}}}, ["methods.diayn.skills", "'pont'", "point"]),
        ({"methods": {"random": {"settings": {"alpha": 1.0}}}}, ["methods.random", "no settings"]),
        ({"methods": {"random": {"policies": "shared"}}}, ["methods.random", "independent"]),
        ({"environments": {"point": {"snapshots": [200, 100]}}}, ["environments.point", "snapshots", "ascending"]),
        ({"environments": {"point": {"snapshots": [100, 100]}}}, ["environments.point", "snapshots", "ascending"]),
        ({"environments": {"my-robot": {}}}, ["environments.my-robot"]),
        (
            {"environments": {"point": {"sigma": {"qpos": [0]}, "sigma_steps": 5}}},
            ["environments.point", "sigma_steps: 5", "velocity"],
        ),
    ],
)
def test_values_that_do_not_fit_together_are_refused(change: dict[str, Any], words: list[str]):
    said = refusal(change)
    assert all(word in said for word in words), said


def test_a_missing_key_is_named():
    raw = raw_config()
    del raw["environments"]["point"]["horizon"], raw["disk"]["neighbours"]
    with pytest.raises(ConfigError) as caught:
        config.parse(raw)
    assert "environments.point.horizon: missing" in str(caught.value)
    assert "disk.neighbours: missing" in str(caught.value)


def test_a_world_whose_name_begins_like_a_type_keeps_its_name_in_the_message():
    said = refusal({"environments": {"intersection": {"id": "x"}}})
    assert "environments.intersection.horizon: missing" in said


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("path", ["environments.point.alive_bonus", "sac.learning_rate", "sac.target_entropy"])
def test_a_number_that_is_not_finite_is_refused(path: str, value: float):
    assert path in refusal(_at(path.split("."), value))


@pytest.mark.parametrize("path", ["environments.point.horizon", "sac.batch_size", "disk.alpha"])
def test_yes_and_no_are_not_numbers(path: str):
    assert path in refusal(_at(path.split("."), True))


def test_steps_that_never_update_are_refused_where_the_job_is_made_too():
    """The check of the run groups cannot see a world that is in none of them."""
    loaded = config.parse(raw_config({"environments": {"point": {"steps": 500}}}))
    with pytest.raises(ConfigError, match=r"environments\.point\.steps: 500"):
        loaded.skill_job("point", "disk", 0, 0)


def joint(*changes: dict[str, Any]) -> config.Config:
    together = {"runs": [{"envs": ["point"], "methods": ["diayn"]}]}
    return tiny_config(together, *changes)


def test_a_joint_budget_is_the_schedules_total_unless_the_method_has_its_own():
    for steps, expected in ((None, 900), (400, 400), ({"point": 700}, 700), ({"ant": 4_000_000}, 900)):
        job = joint({"methods": {"diayn": {"steps": steps}}}).joint_job("point", "diayn", 0)
        assert [job.steps, job.skills] == [expected, 3]
    assert joint({"methods": {"diayn": {"skills": {"point": 7, "ant": 9}}}}).joint_job("point", "diayn", 0).skills == 7


def test_a_preset_can_give_some_environments_budgets_of_their_own():
    paper = {"methods": {"diayn": {"steps": {"halfcheetah": 5_000_000, "point": 800}}}}
    loaded = joint(paper, {"methods": {"diayn": {"steps": {"halfcheetah": 100_000}}}})
    assert [loaded.budget_of(env, "diayn") for env in ("halfcheetah", "point")] == [100_000, 800]
    assert joint(paper, {"methods": {"diayn": {"steps": 600}}}).budget_of("halfcheetah", "diayn") == 600


def test_joint_budgets_that_cannot_be_meant_are_refused_where_they_are_used():
    with pytest.raises(ConfigError, match=r"methods\.diayn\.steps: 50 in point: expected more than the 50 seed steps"):
        joint({"methods": {"diayn": {"steps": 50}}})
    with pytest.raises(ConfigError, match="each of its 3 policies"):
        joint({"methods": {"diayn": {"steps": 150, "policies": "independent"}}})
    with pytest.raises(ConfigError, match=r"environments\.point\.snapshots: 901: expected at most 900.*diayn"):
        joint({"environments": {"point": {"snapshots": [100, 901]}}})
    tiny_config({"environments": {"point": {"snapshots": [100, 901]}}})  # a chain and untrained skills take none


def test_an_untrained_job_has_nothing_in_it_that_training_depends_on():
    one = tiny_config({"environments": {"point": {"snapshots": [100]}}, "diayn": {"learning_rate": 0.1}})
    other = tiny_config({"environments": {"point": {"steps": 400, "replay_capacity": 9}}})
    assert one.joint_job("point", "random", 0) == other.joint_job("point", "random", 0)


def test_a_joint_job_survives_its_own_json_and_leaves_out_what_it_does_not_use():
    job = joint({"environments": {"point": {"snapshots": [100]}}}).joint_job("point", "diayn", 0)
    assert config.JointJob.model_validate_json(job.canonical()) == job
    assert "curriculum" not in json.loads(job.canonical())
    changed = joint({"environments": {"point": {"snapshots": [100]}}, "curriculum": {"certainty": 0.5}})
    assert changed.joint_job("point", "diayn", 0) == job


def test_jobs_of_unknown_names_are_refused_with_the_known_ones():
    loaded = tiny_config()
    with pytest.raises(ConfigError, match=r"'pont'.*point"):
        loaded.skill_job("pont", "disk", 0, 0)
    with pytest.raises(ConfigError, match=r"'dusk'.*disk"):
        loaded.skill_job("point", "dusk", 0, 0)
    with pytest.raises(ConfigError, match="skill00 to skill02; there is no skill03"):
        loaded.skill_job("point", "disk", 0, 3)
    with pytest.raises(ConfigError, match="together"):
        loaded.skill_job("point", "random", 0, 0)
    with pytest.raises(ConfigError, match="one after another"):
        loaded.joint_job("point", "disk", 0)


@pytest.mark.parametrize(
    ("change", "path", "wrong", "meant"),
    [
        ({"runs": [{"envs": ["halfchetah"], "methods": ["disk"]}]}, "runs.0.envs", "halfchetah", "halfcheetah"),
        ({"runs": [{"envs": ["point"], "methods": ["diskk"]}]}, "runs.0.methods", "diskk", "disk"),
        ({"methods": {"mild": {"like": "dissk"}}}, "methods.mild.like", "dissk", "disk"),
        ({"methods": {"dads": {"steps": {"hoper": 9}}}}, "methods.dads.steps.hoper", "hoper", "hopper"),
        (
            {"environments": {"ant_broken": {"downstream": {"env": "antt"}}}},
            "environments.ant_broken.downstream.env",
            "antt",
            "ant",
        ),
    ],
)
def test_a_misspelt_name_is_refused_with_the_one_that_was_probably_meant(
    change: dict[str, Any], path: str, wrong: str, meant: str
):
    assert f"{path}: {wrong!r} is unknown; did you mean {meant!r}?" in refusal(change)


def _at(path: list[Any], value: Any) -> Any:
    return value if not path else {path[0]: _at(path[1:], value)}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every mapping, list and value of a configuration with its path; free-form tables are left out."""
    if path[-1:] in (("kwargs",), ("pathvars",), ("conditions",)):
        return
    yield path, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in below:
        yield from _places(inner, (*path, key))


def _corrupted(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    raw = copy.deepcopy(RAW)
    inside: Any = raw
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = value
    return raw


RAW = raw_config()
PLACES = [(path, value) for path, value in _places(RAW) if path]
WRONG = [None, -7, 0, 2.5, 1e30, True, "", "5e5", "nonsense", [], {}, [None], {"nonsense": 1}, ["a", "b", "c"]]


def _lines(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.parse(raw)
    return str(caught.value).splitlines()[1:]


def test_a_mapping_in_place_of_any_value_is_refused_at_exactly_that_path():
    values = [path for path, value in PLACES if not isinstance(value, dict)]
    assert len(values) > 100
    missed = []
    for path in values:
        lines, place = _lines(_corrupted(path, {"nonsense": 1})), ".".join(map(str, path))
        if not any(line.startswith((f"{place}: ", f"{place}.")) for line in lines):
            missed.append((place, lines))
    assert not missed


def test_an_unknown_key_in_any_mapping_is_refused_at_exactly_that_path():
    missed = []
    for path, value in PLACES:
        if isinstance(value, dict):
            place = ".".join([*map(str, path), "integral"])
            lines = _lines(_corrupted(path, {**value, "integral": 1}))
            if not any(line.startswith(f"{place}: ") for line in lines):
                missed.append((place, lines))
    assert not missed


@given(place=st.sampled_from(PLACES), value=st.sampled_from(WRONG) | st.text(max_size=8))
@settings(max_examples=400)
def test_a_random_corruption_is_accepted_or_refused_never_a_crash(place: tuple[tuple[Any, ...], Any], value: Any):
    try:
        config.parse(_corrupted(place[0], value))
    except ConfigError as error:
        first, *faults = str(error).splitlines()
        assert first == "the configuration is not usable:"
        assert faults
        assert all(fault.split(".")[0].split(":")[0] in RAW for fault in faults), faults


# ---------------------------------------------------------------- jobs


def jobs(*changes: dict[str, Any]) -> list[str]:
    loaded = tiny_config(*changes)
    return [loaded.skill_job("point", "disk", 0, i).canonical() for i in range(loaded.environments["point"].skills)]


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": {"device": "cuda", "checkpoint_minutes": 1.0, "log_every": 7}},
        {"evaluation": {"episodes": 3, "drawn": 2, "seed": 5}},
        {"tracking": {"enabled": False, "uri": "sqlite:///elsewhere.db"}},
        {"threads": 4},
        {"seeds": [0, 1, 2, 3, 4]},
        {"pathvars": {"results": "elsewhere"}},
        {"runs": [{"envs": ["ant"], "methods": ["random"]}]},
        {"environments": {"point": {"test_horizon": 7}}},
        {"environments": {"ant": {"skills": 3, "steps": 300_000}}},
        {"methods": {"random": {"sac": {"hidden": [8]}}}},
        {"environments": {"point": {"skills": 3, "steps": [300, 300, 300]}}},
        {"methods": {"disk": {"steps": None, "settings": {}}}},
    ],
)
def test_what_does_not_change_a_skill_does_not_change_its_job(change: dict[str, Any]):
    assert jobs(change) == jobs()


def test_a_fourth_skill_leaves_the_jobs_of_the_first_three():
    assert jobs({"environments": {"point": {"skills": 4}}})[:3] == jobs()


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_another_number_of_steps_changes_the_job_of_that_skill_only(changed: int):
    steps = [300, 300, 300]
    steps[changed] = 400
    before, after = jobs(), jobs({"environments": {"point": {"steps": steps}}})
    assert [a != b for a, b in zip(before, after, strict=True)] == [skill == changed for skill in range(3)]


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"environments": {"point": {"first_alpha": 2.0}}}, [True, False, False]),
        ({"environments": {"point": {"alive_bonus": 2.0}}}, [True, False, False]),
        ({"methods": {"disk": {"replay_keep": 0.5}}}, [False, True, True]),
        ({"methods": {"disk": {"reuse_replay": False}}}, [False, True, True]),
        ({"disk": {"neighbours": 4}}, [True, True, True]),
        ({"disk": {"past_states": 300}}, [True, True, True]),
        ({"methods": {"disk": {"settings": {"recent_states": 10}}}}, [True, True, True]),
        ({"environments": {"point": {"sac": {"hidden": [8, 8]}}}}, [True, True, True]),
        ({"environments": {"point": {"horizon": 20}}}, [True, True, True]),
        ({"environments": {"point": {"kwargs": {"reset_noise_scale": 0.1}}}}, [True, True, True]),
    ],
)
def test_what_changes_a_skill_changes_its_job(change: dict[str, Any], affected: list[bool]):
    assert [a != b for a, b in zip(jobs(), jobs(change), strict=True)] == affected


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"disk": {"alpha": 0.5}}, [False, True, True]),
        ({"disk": {"beta": 0.5}}, [False, True, True]),
        ({"disk": {"anneal": "none"}}, [False, True, True]),
        ({"disk": {"past_batch": 32}}, [False, True, True]),
        ({"disk": {"mean_floor": 0.1}}, [False, True, True]),
        ({"disk": {"second_beta": "one"}}, [False, True, False]),
    ],
)
def test_settings_that_the_first_skill_never_reads_are_not_in_its_job(change: dict[str, Any], affected: list[bool]):
    assert [a != b for a, b in zip(jobs(), jobs(change), strict=True)] == affected


def test_seed_and_skill_are_part_of_the_job(tiny: config.Config):
    texts = {tiny.skill_job("point", "disk", seed, skill).canonical() for seed in (0, 1) for skill in (0, 1, 2)}
    assert len(texts) == 6


def test_canonical_text_does_not_depend_on_the_order_of_keys():
    def reversed_(value: Any) -> Any:
        return {k: reversed_(value[k]) for k in reversed(value)} if isinstance(value, dict) else value

    raw = raw_config(TINY, {"environments": {"point": {"kwargs": {"reset_noise_scale": 0.1, "width": 64}}}})
    one, other = config.parse(raw), config.parse(reversed_(raw))
    assert list(one.environments) != list(other.environments)
    assert one.skill_job("point", "disk", 0, 1).canonical() == other.skill_job("point", "disk", 0, 1).canonical()


def test_a_job_survives_its_own_json(tiny: config.Config):
    job = tiny.skill_job("point", "disk", 0, 1)
    again = config.SkillJob.model_validate(json.loads(job.canonical()))
    assert again == job
    assert again.canonical() == job.canonical()
    assert again.digest() == job.digest()


def test_method_settings_win_over_environment_settings_over_general_ones():
    changes: list[dict[str, Any]] = [
        {"sac": {"discount": 0.5}},
        {"environments": {"point": {"sac": {"discount": 0.6}}}},
        {"methods": {"disk": {"sac": {"discount": 0.7}}}},
        {"methods": {"disk": {"sac_in": {"point": {"discount": 0.8}}}}},
    ]
    found = [tiny_config(*changes[:n]).skill_job("point", "disk", 0, 0).sac.discount for n in (1, 2, 3, 4)]
    assert found == [0.5, 0.6, 0.7, 0.8]
    assert tiny_config(*changes).sac_of("ant", "disk").discount == 0.7  # elsewhere the method's own


def test_nothing_is_changed_in_place(tiny: config.Config):
    with pytest.raises(ValueError, match="frozen"):
        tiny.sac.discount = 0.5  # type: ignore[misc]


# ---------------------------------------------------------------- the hash of the code


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """The hashing module of a copy of the package, which hashes that copy."""
    shutil.copytree(PROJECT / "disk", tmp_path / "disk", ignore=shutil.ignore_patterns("__pycache__"))
    spec = importlib.util.spec_from_file_location("copied_provenance", tmp_path / "disk/storage/provenance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _hashes(copied: Any, file: str, old: str, new: str) -> tuple[str, str]:
    """Before and after a change to a file of the copy."""
    path = Path(copied.__file__).parents[1] / file
    text, before = path.read_text(), copied.code_hash()
    assert old in text, f"{file} no longer has {old!r}: choose another place to change"
    path.write_text(text.replace(old, new, 1))
    return before, copied.code_hash()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("learning/sac.py", "class SAC:", "# a comment\nclass SAC:"),
        ("learning/sac.py", '"""Soft actor-critic', '"""Another word: Soft actor-critic'),
        ("learning/build.py", "def choose_device(name: str) -> torch.device:\n",
         'def choose_device(name: str) -> torch.device:\n    """New."""\n'),
        ("figures/style.py", "from __future__", "EDITED = True\nfrom __future__"),
    ],
    ids=["comment", "docstring changed", "docstring added", "no algorithm"],
)  # fmt: skip
def test_the_code_hash_ignores_what_does_not_compute(copied: Any, file: str, old: str, new: str):
    before, after = _hashes(copied, file, old, new)
    assert before == after


def test_the_code_hash_sees_every_file_that_changes_a_result(copied: Any):
    """Skills depend on learning/, envs/ and what these share; controllers depend on these and on downstream/."""
    package = Path(copied.__file__).parents[1]
    for path in package.rglob("*.py"):
        path.write_text("ORIGINAL = True\n")  # the hash is computed a hundred times: parse little
    names = ("networks.py", "projection.py", "skills.py", "seeds.py", "storage/replay.py")
    learned = [package / name for name in (*names, "evaluation/rollout.py", "evaluation/workers.py")]
    learned += [path for room in ("learning", "envs") for path in (package / room).rglob("*.*")]
    downstream = list((package / "downstream").rglob("*.*"))
    before = copied.code_hash(), copied.code_hash(copied.DOWNSTREAM)
    for path in [*learned, *downstream, package / "learning" / "new.py"]:
        whole = path.read_bytes() if path.exists() else None
        path.write_bytes((whole or b"") + (b"<!-- edited -->" if path.suffix == ".xml" else b"\nEDITED = True\n"))
        after = copied.code_hash(), copied.code_hash(copied.DOWNSTREAM)
        assert (after[0] != before[0]) == (path not in downstream), path
        assert after[1] != before[1], path
        path.unlink() if whole is None else path.write_bytes(whole)
    assert {path.suffix for path in learned} == {".py", ".xml"}, "a file of another kind: does the hash see it?"
    assert len(learned) > 30
    assert len(downstream) > 5


def test_where_code_changes_retrain_skills_and_controllers_each_have_the_hash_of_their_own_code():
    loaded = tiny_config({"retrain_on_code_change": True})
    assert loaded.skill_job("point", "disk", 0, 0).code == code_hash()
    assert loaded.joint_job("point", "diayn", 0).code == code_hash()
    for method in ("disk", "flat"):
        assert loaded.hierarchy_job("point", method, 0, 0).code == code_hash(DOWNSTREAM) != code_hash()
    assert tiny_config().hierarchy_job("point", "disk", 0, 0).code is None


# ---------------------------------------------------------------- rules of the package

MODULES = sorted((PROJECT / "disk").rglob("*.py"))


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_module_imports_snakemake_or_unpickles(path: Path):
    tree = ast.parse(path.read_text())
    assert not _imports(tree) & {"snakemake", "pickle", "cloudpickle", "dill", "joblib", "shelve"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        assert keywords.get("allow_pickle") is not True, f"line {node.lineno}"
        if ast.unparse(node.func) in ("torch.load", "torch.save"):
            assert keywords.get("weights_only") is True, f"line {node.lineno}"


def test_importing_the_package_waits_for_nothing_heavy():
    """Gymnasium alone is imported, because ids must be registered for `gymnasium.make`: a tenth of a second."""
    process = run_python(
        "import sys, disk, disk.config; print([m for m in ('torch', 'mujoco', 'pandas') if m in sys.modules])"
    )
    out, err = process.communicate(timeout=60)
    assert out.strip() == "[]", err


def test_a_condition_may_build_its_world_differently():
    hopper = config.load().environment("hopper")
    nominal, falling = (config.load().evaluation_job("hopper", name) for name in ("nominal", "falling"))
    assert hopper.moments == {"nominal": 0, "falling": 0}
    assert nominal.world == hopper.world()
    assert nominal.world.kwargs == {"terminate_when_unhealthy": False}
    assert falling.world.kwargs == {"terminate_when_unhealthy": True}
    assert falling.world_steps == 0


def test_conditions_that_are_steps_leave_the_jobs_text_as_it_was():
    job = json.loads(config.load().evaluation_job("ant_broken", "leg2").canonical())
    assert job["world_steps"] == 3_000_000
    assert json.loads(config.load().environment("ant_broken").canonical())["conditions"] == {
        "leg1": 2_000_000,
        "leg2": 3_000_000,
        "leg3": 0,
        "leg4": 1_000_000,
    }
    random = json.loads(config.load().joint_job("point", "random", 0).canonical())
    assert "acts" not in random


def test_every_world_of_the_project_says_what_moves_and_measures_by_its_goals():
    loaded = config.load()
    assert all(row.moves for row in loaded.environments.values())
    assert loaded.measure_job("ant").model_dump() == {"moves": 10.0, "goals": 15.0, "coordinates": 2}
    assert loaded.measure_job("ant_broken").model_dump() == {"moves": 4.0, "goals": 15.0, "coordinates": 2}
    assert loaded.measure_job("halfcheetah").model_dump() == {"moves": 10.0, "goals": None, "coordinates": 1}
