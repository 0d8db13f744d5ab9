"""The benchmarks run and count right. How fast anything is, no test asserts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from disk.config import PROJECT

BENCHMARKS = PROJECT / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(PROJECT / "tests" / "unit"))


def run(script: str, out: Path, *arguments: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / script), *arguments, "--out", str(out)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


def test_the_operations_of_an_update_are_counted() -> None:
    from contenders import flops

    assert flops(27, 8, actor_every=2) == pytest.approx(466e6, rel=1e-3)  # as counted by hand
    mlp = 2 * 256 * (27 * 256 + 256 * 256 + 256 * 16)  # the actor once forward
    assert flops(27, 8, actor_every=1) - flops(27, 8, actor_every=10**9) > 2 * mlp


def test_the_usual_formulation_learns_what_ours_does() -> None:
    """Reward -(a - 0.6)², one step: its mode must go there, as ours does in tests/unit/test_sac.py."""
    from plain_sac import PlainSac

    torch.manual_seed(0)
    plain = PlainSac(1, 1, 32, actor_every=2, target_every=2)
    for adam in (plain.critic_adam, plain.policy_adam):
        adam.param_groups[0]["lr"] = 1e-2
    obs, ends = torch.ones(128, 1), torch.ones(128, 1)
    for _ in range(300):
        action = torch.rand(128, 1) * 2.0 - 1.0
        plain.update(obs, action, obs, -((action - 0.6) ** 2), ends)
    mode = torch.tanh(plain.policy.trunk(obs[:1])[0, 0]).item()
    assert mode == pytest.approx(0.6, abs=0.15)


def test_the_learners_take_turns(tmp_path: Path) -> None:
    short = ("--sizes", "halfcheetah", "--threads", "1", "--seconds", "0.02", "--rounds", "1")
    found = run("learner.py", tmp_path / "learner.json", *short, "--contenders", "ours,pytorch_sac,mm_256")
    assert found["ratios"].keys() == {"pytorch_sac", "limit"}
    assert all(ratio > 0.0 for ratio in found["ratios"].values())
    assert found["of"] == {"size": "halfcheetah", "threads": 1, "rate": "cpu_best"}


def test_rollouts_and_the_plain_loop_run_the_same_policies(tmp_path: Path) -> None:
    short = ("--env", "point", "--skills", "2", "--episodes", "3", "--horizon", "10", "--rounds", "1")
    found = run("rollouts.py", tmp_path / "rollouts.json", *short)  # which compares what they did
    assert list(found["contenders"]) == ["plain loop", "ours, 1 process", "ours, 2 processes", "ours, 2 threads"]
    for row in found["contenders"].values():
        assert row["steps_per_second"]["best"] == pytest.approx(10 * row["rollouts_per_second"]["best"])


@pytest.mark.slow
def test_whole_trainings_are_measured_phase_by_phase(tmp_path: Path) -> None:
    short = ("--env", "point", "--seconds", "0.3", "--rounds", "1", "--shard", "1000", "--follow", "0")
    found = run("training.py", tmp_path / "training.json", *short, "--methods", "disk_soft,diayn,random")
    assert found["skills"].keys() == {"second", "tenth", "twentieth"}
    assert found["methods"].keys() == {"disk_soft", "diayn"}  # the random policies learn nothing
    for row in (*found["skills"].values(), *found["methods"].values()):
        phases = row["microseconds_a_step"]
        assert set(phases) == {"env step", "act", "add", "sample", "reward", "update", "progress", "rest"}
        assert all(value > 0.0 for value in phases.values())
    assert all(value > 0.0 for value in found["summary"].values())


@pytest.mark.slow
def test_starting_saving_and_loading_are_measured(tmp_path: Path) -> None:
    short = ("--env", "point", "--repeat", "1", "--shard", "1000", "--rows", "500", "--skip", "plan,scheduler")
    found = run("workflow.py", tmp_path / "workflow.json", *short)
    names = ("help", "start_of_a_training_job", "cpu_of_its_start")
    for name in (*names, "checksums_of_19_skills", "loading_19_skills", "checkpoint"):
        assert found[name]["seconds"] > 0.0
    assert found["loading_19_skills"]["rows"] == 19_000


@pytest.mark.slow
def test_the_time_to_a_set_of_skills_is_measured_for_ours_and_for_a_peer(tmp_path: Path) -> None:
    preset = tmp_path / "tiny.yaml"
    sac = {"hidden": [16, 16], "batch_size": 32, "seed_steps": 50}
    preset.write_text(json.dumps({"environments": {"point": {"skills": 3, "steps": 200, "sac": sac}}}))
    words = ("--envs", "point", "--contenders", "disk,disk_plus,sb3", "--preset", str(preset))
    for wanted, reached, looks in ((0.0, 1, 1), (1e9, 0, 8)):  # the second skill's first look; all looks at two skills
        found = run("time_to_skill.py", tmp_path / "time.json", *words, "--hausdorff", str(wanted))
        rows = found["environments"]["point"]["contenders"]
        assert rows.keys() == {"disk", "disk_plus", "sb3"}
        for name, row in rows.items():
            assert row["reached"] == reached
            assert (row["median_minutes"] is not None) == bool(reached)
            [only] = row["runs"]
            minutes = [look["cpu_minutes"] for look in only["looks"]]
            assert minutes == sorted(minutes)
            steps = only["looks"][-1]["steps"]
            assert 0 < steps <= 600
            if name != "disk_plus":  # its skills end when they have settled
                assert len(only["looks"]) == looks
                assert steps == (250 if reached else 600)


def test_runs_that_do_not_fit_are_not_started_and_those_without_a_look_did_not_get_there(tmp_path: Path) -> None:
    words = ("--envs", "point", "--contenders", "disk")
    assert run("time_to_skill.py", tmp_path / "none.json", *words, "--total", "0")["environments"]["point"][
        "contenders"
    ] == {"disk": None}
    found = run("time_to_skill.py", tmp_path / "short.json", *words, "--minutes", "0")
    row = found["environments"]["point"]["contenders"]["disk"]
    assert (row["median_minutes"], row["reached"], row["runs"][0]["looks"]) == (None, 0, [])
    assert row["runs"][0]["cpu_minutes"] > 0.0


def test_a_peers_policy_is_ours_after_it_was_exported() -> None:
    from peers import Peer
    from test_sac import make

    from disk.learning.replay import Batch
    from disk.storage.replay import Columns

    ours = make(hidden=[8, 8])
    peer = Peer("sb3", ours, 3, 2, seed=0)
    before = peer.model.actor.mu.weight.clone()
    rows = torch.randn(16, 3 + 2 + 3 + 2 + 1)
    rows[:, 3:5].tanh_()
    rows[:, -1] = 0.0
    for _ in range(3):
        peer.update(Batch(rows, Columns(3, 2, 2)), torch.randn(16))
    assert peer.updates == 3
    assert not torch.equal(peer.model.actor.mu.weight, before)
    peer.export()
    obs = torch.randn(5, 3)
    with torch.no_grad():
        expected = peer.model.actor(obs, deterministic=True)
    torch.testing.assert_close(ours.actor.mode(obs[None])[0], expected, rtol=0.0, atol=1e-6)


def test_runs_are_shipped_in_small_and_their_tables_have_intervals_costs_and_the_papers_numbers(tmp_path: Path) -> None:
    from ship import EVERY, ROWS, about, ship
    from tables import draw, ends, table

    from disk.evaluation.tables import save_rollouts
    from disk.storage.files import save_stats

    results, shipped = (tmp_path / name / "hopper" for name in ("results", "shipped"))
    used = {(0, 0): 1800, (0, 1): 1800, (1, 0): 7200, (1, 1): 3600}
    job = {"sac": {"batch_size": 128, "updates_per_step": 0.25, "seed_steps": 1000}}
    for (seed, skill), cpu in used.items():
        run = Path("disk", f"seed{seed}")
        (results / run / f"skill0{skill}").mkdir(parents=True)
        stats = {
            "steps": 50_000,
            "collected_steps": 10_400,
            "seconds": 3600,
            "cpu_seconds": cpu,
            "commit": "abc",
            "code_hash": "def",
            "job": job,
        }
        save_stats(results / run / f"skill0{skill}/stats.json", stats)
    steps = range(3 * EVERY + 1)
    columns = ["skill", "episode", "step", "x", "y"]
    paths = pd.DataFrame([(0, e, t, float(t), 0.0) for e in range(9) for t in steps], columns=columns)
    for seed, value in ((0, 6.1), (1, 6.9)):
        run = results / f"disk/seed{seed}"
        values = f"nominal,0,hausdorff,{value}\nnominal,-1,coverage,{100 + 40 * seed}\n"
        (run / "metrics.csv").write_text(f"condition,skill,metric,value\n{values}")
        (run / "progress.csv").write_text("step\n" + "".join(f"{row}\n" for row in range(ROWS + 1)))
        (run / "rollouts").mkdir()
        save_rollouts(paths, run / "rollouts/nominal.parquet")
        ship(run, shipped / f"disk/seed{seed}")
    small = shipped / "disk/seed0"
    assert len((small / "curve.csv").read_text().splitlines()) <= ROWS
    assert len((small / "paths.csv").read_text().splitlines()) == 1 + 5 * 4 + 4  # the ends of four more episodes
    assert about(results / "disk/seed0")["commit"] == ["abc"]
    rows = table(shipped).splitlines()
    assert rows[0].startswith("| method | seeds | steps | visits | CPU-hours | hausdorff | coverage |")
    draw([small], tmp_path / "hopper.svg")
    assert "</svg>" in (tmp_path / "hopper.svg").read_text()
    assert rows[2] == "| `disk` | 2 | 100,000 | 20,800 | 2.00 | 6.5 (6.1, 6.9) | 120 (100, 140) | 6.3 [5.7, 7] |"
    places = [(0, e, t, t * x, t * y) for t in (0, 10) for e, (x, y) in enumerate([(1, 1.1), (-1, 0.9), (-1, 1)])]
    (small / "paths.csv").unlink()
    pd.DataFrame(places, columns=columns).to_csv(small / "paths.csv", index=False)
    (small / "about.json").write_text('{"steps_by_training": [50000]}')
    assert ends(small).splitlines()[-1] == "| 1 | 50,000 | (-3.3, 10.0) | 108° | 14.2 | 9.5 |"


def test_what_is_shipped_of_a_run_has_its_precision_and_the_means_of_both_terms(tmp_path: Path) -> None:
    from ship import about

    from disk.storage.files import save_stats

    sac = {"batch_size": 128, "updates_per_step": 0.5, "seed_steps": 1000, "precision": "onednn"}
    common: dict[str, Any] = {"steps": 10, "cpu_seconds": 1.0, "job": {"sac": sac, "objective": {"shape": None}}}
    means = {"alpha": 2.0, "mean_consistency": 0.5, "beta": 4.0, "mean_diversity": 0.1}
    own = [{"alpha": 0.05, "mean_diversity": None}, means, {**means, "mean_terms": [1.0, 1.1]}]
    for skill, stats in enumerate(own):
        (tmp_path / f"skill0{skill}").mkdir()
        save_stats(tmp_path / f"skill0{skill}/stats.json", {**common, **stats})
    assert about(tmp_path)["precision"] == "onednn"
    assert about(tmp_path)["mean_terms"] == [[1.0, 0.4], [1.0, 1.1]]
    common["job"]["objective"]["shape"] = "log"  # its reward has no such terms
    save_stats(tmp_path / "skill01/stats.json", {**common, **means})
    assert "mean_terms" not in about(tmp_path)


def test_the_front_table_takes_each_method_from_where_it_does_better_and_leaves_out_too_few_seeds(
    tmp_path: Path,
) -> None:
    from tables import with_tables

    runs = {
        "sac": {"disk": [4.0, 5.0, 6.0], "metra": [1.0, 1.0, 1.0]},
        "crossq": {"metra": [7.0] * 3, "dads": [9.0] * 2},
    }
    for learner, methods in runs.items():
        for method, values in methods.items():
            for seed, value in enumerate(values):
                run = tmp_path / learner / "hopper" / method / f"seed{seed}"
                run.mkdir(parents=True)
                rows = [f"nominal,0,hausdorff,{value}", "nominal,-1,movers,1", "nominal,-1,distinct,0.5"]
                (run / "metrics.csv").write_text("\n".join(["condition,skill,metric,value", *rows, ""]))
    lines = with_tables("<!-- front: sac/hopper crossq/hopper -->\n| old |\n", tmp_path).splitlines()
    assert lines[1] == "| method | seeds | movers, of 1 | distinct, of 1 | mean Hausdorff, m |"
    assert lines[3:] == ["| `metra` | 3 | 1.0 | 0.50 | 7.0 |", "| `disk` | 3 | 1.0 | 0.50 | 5.0 (4.0, 5.0, 6.0) |"]


def test_the_ratio_of_the_rewards_terms_is_that_of_the_third_skill(tmp_path: Path) -> None:
    from tables import with_tables

    for seed, terms in enumerate(([[1, 9], [1.0, 2.0]], [[1, 9], [3.0, 2.0]], [[1, 9]])):
        run = tmp_path / "hopper/disk_plus" / f"seed{seed}"
        run.mkdir(parents=True)
        (run / "about.json").write_text(json.dumps({"mean_terms": terms}))
    assert with_tables("<!-- terms: hopper -->\n", tmp_path).splitlines()[-1] == (
        "| `hopper` | `disk_plus` | 2 | 0.50, 1.50 |"
    )


def test_what_is_forgotten_is_a_row_for_every_method_and_a_column_for_every_world(tmp_path: Path) -> None:
    from tables import with_tables

    (tmp_path / "point").mkdir()
    lines = ["method,seed,skill,condition,distance_after_training,distance_final"]
    lines += ["dads,0,0,west,4.0,1.0", "dads,0,1,west,2.0,3.0", "dads,0,0,east,1.0,1.0"]
    lines += ["disk,0,0,west,2.5,2.5", "disk,0,0,east,1.5,1.5"]
    (tmp_path / "point/forgetting.csv").write_text("\n".join(lines) + "\n")
    page = "before\n<!-- forgetting: point -->\n| an old row |\n\nafter\n"
    rows = with_tables(page, tmp_path).splitlines()
    assert rows[2] == "| method | skills | west, m | east, m |"
    assert rows[4:] == ["| `disk` | 1 | 2.5 → 2.5 | 1.5 → 1.5 |", "| `dads` | 2 | 3.0 → 2.0 | 1.0 → 1.0 |", "", "after"]


def test_from_five_seeds_on_there_is_an_interval() -> None:
    from tables import cell

    assert cell([]) == "–"
    assert cell([2.5]) == "2.5"
    assert cell([2.0, 2.0]) == "2.0"
    assert cell([1.0, 2.0, 3.0, 4.0]) == "2.5 (1.0, 2.0, 3.0, 4.0)"
    assert cell([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.0 [1.8, 4.2]"


def shipped_run(run: Path, metrics: str, about: str = '{"steps": 1000, "cpu_hours": 1}') -> Path:
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text(f"condition,skill,metric,value\n{metrics}")
    (run / "about.json").write_text(about)
    return run


def values(hausdorff: float, distinct: float = 1.0, condition: str = "nominal") -> str:
    rows = [f"{condition},{skill},hausdorff,{hausdorff}" for skill in (0, 1)]
    return "\n".join([*rows, f"{condition},-1,movers,2", f"{condition},-1,distinct,{distinct}", ""])


def test_the_brief_table_has_a_row_for_each_method_and_names_the_preset_if_there_are_several(tmp_path: Path) -> None:
    from tables import with_tables

    about = '{"steps": 1000, "cpu_hours": 0.5, "collected_steps": 200}'
    for seed, (hausdorff, distinct) in enumerate(((4.0, 1.0), (6.0, 2.0))):
        shipped_run(tmp_path / f"new/hopper/disk/seed{seed}", values(hausdorff, distinct), about)
    shipped_run(tmp_path / "old/hopper/metra/seed0", values(3.0) + values(0.5, condition="falling"))
    shipped_run(tmp_path / "old/hopper/dads/seed0", values(9.0))
    alone = with_tables("<!-- brief: new/hopper -->\n", tmp_path).splitlines()
    assert alone[1].startswith(
        "| method | seeds | steps + visits | CPU-minutes | movers | distinct | mean Hausdorff, m |"
    )
    assert alone[3:] == ["| `disk` | 2 | 1,000 + 200 | 30.0 | 2.0 of 2 | 1.5 (1.0, 2.0) | 5.0 (4.0, 6.0) | – | – |"]
    both = with_tables("<!-- brief: new/hopper old/hopper/metra -->\n", tmp_path).splitlines()
    assert [row[:35] for row in both[3:]] == [
        "| `disk` | `new` | nominal | 2 | 1,",
        "| `metra` | `old` | nominal | 1 | 1",
        "| `metra` | `old` | falling | 1 | 1",
    ]


def test_the_headline_takes_each_method_at_its_best_and_three_seeds_before_fewer(tmp_path: Path) -> None:
    from tables import beside_paper, headline

    found = {
        "new/hopper/disk_plus": [8.0, 10.0],
        "new/hopper/dads": [99.0],  # one seed has no say against three
        "old/hopper/dads": [1.0, 2.0, 3.0],
        "old/hopper/diayn": [50.0],
        "old/hopper/random": [70.0] * 3,  # no rival
        "old/hopper/disk": [4.0],
        "new/hopper/disk": [5.0],
    }
    for place, seeds in found.items():
        for seed, value in enumerate(seeds):
            shipped_run(tmp_path / place / f"seed{seed}", values(value))
    worlds = (tmp_path / "new/hopper", tmp_path / "old/hopper")
    cells = [
        "1.0 of 2, 9.0 m (2 seeds)",
        "1.0 of 2, 5.0 m (1 seed)",
        "`dads`: 1.0 of 2, 2.0 m (3 seeds)",
        "6.3 [5.7, 7]",
    ]
    assert headline(*worlds).splitlines()[2:] == [f"| `hopper` | {' | '.join(cells)} |"]
    cells = [
        "paper 6.3 [5.7, 7]; 5.0, 9.0",
        "paper 4.4 [3.8, 5]; 2.0, –",
        "paper 3.1 [3, 3.2]; 50.0, –",
        "paper 0.25; 70.0, –",
    ]
    assert beside_paper(*worlds).splitlines()[2:] == [f"| `hopper` | {' | '.join(cells)} |"]


def test_interquartile_means_are_of_methods_that_were_run_in_every_world(tmp_path: Path) -> None:
    from tables import iqm

    for world in ("hopper", "swimmer"):
        for seed, distinct in enumerate((0.0, 1.0, 1.0, 2.0)):
            shipped_run(tmp_path / f"{world}/disk/seed{seed}", values(5.0, distinct))
    shipped_run(tmp_path / "hopper/metra/seed0", values(5.0))
    [row] = iqm(tmp_path / "hopper", tmp_path / "swimmer").splitlines()[2:]
    assert row.startswith("| `disk` | 8 | 50% | [")


def test_visits_that_were_not_recorded_are_at_least_those_of_every_skill(tmp_path: Path) -> None:
    from tables import cost_of

    for method in ("disk", "diayn"):
        about = '{"steps": 300, "cpu_hours": 2, "steps_by_training": [100, 100, 100]}'
        shipped_run(tmp_path / f"ant/{method}/seed0", "", about)
    assert cost_of(tmp_path / "ant", "disk") == (1, 300, "≥ 30,000", 2.0)
    assert cost_of(tmp_path / "ant", "diayn").visits == "0"


def test_shipped_runs_get_the_measures_that_they_lack_and_keep_the_others(tmp_path: Path) -> None:
    from measures import complete

    from disk.config import load

    lines = [
        f"{where},{skill},distance,{away}"
        for where in ("nominal", "nominal@500")
        for skill, away in enumerate((20, 30, 4))
    ]
    metrics = shipped_run(tmp_path / "ant/disk/seed0", "\n".join(lines) + "\n") / "metrics.csv"
    ends = [(skill, episode, 500, x, 0.1 * episode) for skill, x in enumerate((20, -30, 4)) for episode in range(3)]
    starts = [(skill, episode, 0, 0, 0) for skill in range(3) for episode in range(2)]
    columns = ["skill", "episode", "step", "x", "y"]
    pd.DataFrame([*ends, *starts], columns=columns).to_csv(metrics.with_name("paths.csv"), index=False)
    added = complete(metrics, load())
    assert added == ["nominal,-1,movers,2", "nominal,-1,distinct,2", "nominal@500,-1,movers,2"]
    text = metrics.read_text()
    assert text.splitlines() == ["condition,skill,metric,value", *lines[:3], *added[:2], *lines[3:], added[2]]
    assert complete(metrics, load()) == []
    assert metrics.read_text() == text
    unknown = shipped_run(tmp_path / "moon/disk/seed0", "nominal,0,distance,20\n") / "metrics.csv"
    assert complete(unknown, load()) == []


def test_every_shipped_run_says_how_many_of_its_skills_move_and_can_be_told_apart() -> None:
    shipped = sorted((PROJECT / "docs/results").rglob("metrics.csv"))
    assert len(shipped) >= 63
    for path in shipped:
        frame = pd.read_csv(path)
        first = frame[frame["condition"] == frame["condition"].iloc[0]].set_index("metric")["value"]
        assert 0 <= first["distinct"] <= first["movers"] <= frame["skill"].max() + 1, path


def test_controllers_are_told_by_the_ends_of_their_curves(tmp_path: Path) -> None:
    from tables import downstream, draw_controllers

    figure = tmp_path / "figure.svg"
    draw_controllers(tmp_path, figure)
    assert not figure.exists()
    for controller in (0, 1):
        curve = tmp_path / f"disk/seed0/hierarchy/seed{controller}.csv"
        curve.parent.mkdir(parents=True, exist_ok=True)
        reached = [1.0 + controller, *[0.1 + controller] * 18, 0.5 + controller]
        lines = [f"{10 * (row + 1)},{100 * (row + 1)},{value}" for row, value in enumerate(reached)]
        curve.write_text("\n".join(["decision,low_level_step,normalised_distance", *lines]) + "\n")
    assert downstream(tmp_path).splitlines()[-1] == "| `disk` | 2 | 200 | 1.05 | 0.80 | 0.60 |"
    draw_controllers(tmp_path, figure)
    assert "DISk (2 runs)" in figure.read_text()


def test_the_tournament_ranks_by_three_measures_and_prints_every_seed(tmp_path: Path) -> None:
    from tournament import as_markdown, in_brief, measured, planned, ranking

    from disk.storage.files import save_stats

    found = {  # isolation of two skills, movers, distinct
        ("cheetah", "disk", 0): ((1.0, 3.0), 1, 1),
        ("cheetah", "disk", 1): ((2.0, 2.0), 1, 2),
        ("cheetah", "other", 0): ((4.0, 4.0), 2, 2),
        ("swimmer", "disk", 0): ((5.0, 5.0), 2, 2),
        ("swimmer", "other", 0): ((1.0, 1.0), 2, 1),
    }
    for (env, method, seed), (isolation, movers, distinct) in found.items():
        run = tmp_path / f"results/{env}/{method}/seed{seed}"
        run.mkdir(parents=True)
        rows = [("nominal", skill, "isolation", value) for skill, value in enumerate(isolation)]
        rows += [("nominal", -1, "movers", movers), ("nominal", -1, "distinct", distinct), ("later", -1, "movers", 9)]
        pd.DataFrame(rows, columns=["condition", "skill", "metric", "value"]).to_csv(run / "metrics.csv", index=False)
        (run / "about.json").write_text(json.dumps({"cpu_hours": 0.25 if (env, seed) == ("cheetah", 0) else 0.5}))
    first = tmp_path / "results/cheetah/disk/seed0"
    (first / "about.json").unlink()
    for skill, seconds in enumerate((60.0, 120.0)):
        save_stats(first / f"skill{skill:02d}/stats.json", {"cpu_seconds": seconds})
    other = tmp_path / "more/swimmer/other/seed0"  # the first folder that has a run counts
    shutil.copytree(first, other)
    runs = measured([*found, ("swimmer", "missing", 0)], [tmp_path / "results", tmp_path / "more"])
    assert len(runs) == len(found)
    assert runs.iloc[0][["env", "method", "seed", "distinct", "movers", "isolation"]].to_list() == [
        *("cheetah", "disk", 0, 1, 1, 2.0)
    ]
    assert runs.iloc[0]["minutes"] == 3.0
    # On cheetah other is first in all three; on swimmer disk is, but for movers, where both are 1.5.
    assert ranking(runs)["together"].to_dict() == pytest.approx(
        {"disk": (2.0 + 3.5 / 3) / 2, "other": (1.0 + 5.5 / 3) / 2}
    )
    more = pd.concat([runs, runs[runs["method"] == "disk"].assign(method="third")])
    more = more[(more["method"] != "third") | (more["env"] == "cheetah")]
    # Methods need all seeds in both environments: `other` lacks one on cheetah, `third` has not been on swimmer.
    assert re.findall("`(.*?)`", as_markdown(more).partition("Mean ranks, cheetah, swimmer")[2]) == ["disk"]
    full = pd.concat([more, more[(more["method"] == "other") & (more["env"] == "cheetah")].assign(seed=1)])
    assert re.findall("`(.*?)`", as_markdown(full).partition("Mean ranks")[2]) == ["other", "disk"]
    assert in_brief(more).splitlines()[2:] == [
        "| `disk` | 1.5, 2.0 m | 2.0, 5.0 m | 1.0 |",
        "| `other` | 2.0, 4.0 m | 1.0, 1.0 m | – |",
        "| `third` | 1.5, 2.0 m | – | – |",
    ]
    text = as_markdown(runs)
    assert "| `disk` | 0 1 | 1 2 | 1 1 | 2 2 | – – | 3 30 |" in text
    assert ("hopper", "disk_crossq", 2) in set(planned(PROJECT / "config/tournament.yaml"))


def test_recovery_compares_the_untold_with_the_told_and_tells_what_is_left_after_a_change(tmp_path: Path) -> None:
    from recovery import changes, measured, put, recovered, untold
    from ship import probe_steps

    assert probe_steps([{"aware": {"spent": [400, 0]}}, {"aware": {"spent": [200, 100]}}]) == 700
    assert probe_steps([{"steps": 1}]) is None
    found = {("disk", 0): (10.0, 4), ("disk", 1): (20.0, 2), ("disk_aware", 0): (12.0, 3), ("metra", 0): (1.0, 1)}
    for (method, seed), (hausdorff, distinct) in found.items():
        run = tmp_path / f"world/{method}/seed{seed}"
        run.mkdir(parents=True)
        rows = [("east", 0, "hausdorff", hausdorff - 2), ("east", 1, "hausdorff", hausdorff)]
        rows += [("west", 0, "hausdorff", hausdorff + 1), ("east", -1, "distinct", 1), ("west", -1, "distinct", 2)]
        pd.DataFrame(rows, columns=["condition", "skill", "metric", "value"]).to_csv(run / "metrics.csv", index=False)
        probes = {"probe_steps": 700} if method == "disk_aware" else {}
        (run / "about.json").write_text(json.dumps({"collected_steps": 72_000, **probes}))
        lines = ["100,east,1.0,1.0,4.0", f"100,west,0.0,0.0,{2 * seed}.0", f"200,west,2.0,{distinct}.0,4.0"]
        (run / "usable.csv").write_text("\n".join(["step,condition,movers,distinct,reach", *lines]) + "\n")
    table = untold(measured(tmp_path))
    assert "`world`, 2 and 1 seeds | mean Hausdorff, mean over conditions | 15 (10, 20) | 12 | 0.80 |" in table
    assert "| `distinct`, mean over conditions | 1.5 | 1.5 | 1.00 |" in table
    assert "| usable distinct skills at the end | 3 (4, 2) | 3 | 1.00 |" in table
    assert "| steps for probes | – | 700 | – |" in table
    rows = changes(recovered(tmp_path)).splitlines()
    assert rows[2] == "| `world` | `disk` | 2 | 2 | 25% | 100% | 100% of changes, after 100 steps | 2 | 0% | 300% |"
    assert [row.split(" | ")[1] for row in rows[2:]] == ["`disk`", "`disk_aware`", "`metra`"]
    page = "a\n<!-- recovery: untold -->\nold\n<!-- end -->\nb\n"
    assert put(page, "untold", "new") == "a\n<!-- recovery: untold -->\n\nnew\n\n<!-- end -->\nb\n"
    with pytest.raises(SystemExit, match="recovery: changes"):
        put(page, "changes", "new")


def test_at_equal_cpu_time_a_slower_method_counts_with_its_shorter_runs(tmp_path: Path) -> None:
    from tables import equal_time

    runs = {"long/disk": (0.1, 5.0), "long/dads": (0.05, 3.0), "long/metra": (0.4, 9.0), "short/metra": (0.1, 2.0)}
    for name, (hours, hausdorff) in runs.items():
        run = tmp_path / name / "seed0"
        run.mkdir(parents=True)
        table = pd.DataFrame({"condition": ["nominal"], "skill": [0], "metric": ["hausdorff"], "value": [hausdorff]})
        table.to_csv(run / "metrics.csv", index=False)
        (run / "about.json").write_text(json.dumps({"steps": round(1000 * hours), "cpu_hours": hours}))
    found = [row.split(" | ")[:5] for row in equal_time(tmp_path / "long", tmp_path / "short").splitlines()[2:]]
    assert found == [
        ["| `disk`", "1", "100", "6.0", "5.0"],
        ["| `dads`", "1", "50", "3.0", "3.0"],
        ["| `metra`", "1", "100", "6.0", "2.0"],
    ]


@pytest.mark.parametrize(
    ("angles", "expected"),
    [([], 0), ([200.0], 1), ([0.0, 29.0, 60.0, 330.0], 3), ([10.0, 355.0, 180.0], 2), ([-170.0, 170.0, 175.0, 0.0], 2)],
)
def test_directions_are_counted_around_the_whole_circle(angles: list[float], expected: int) -> None:
    from tables import directions

    assert directions(angles) == expected


def test_a_run_that_walks_is_a_row_of_movers_directions_and_falls(tmp_path: Path) -> None:
    from tables import walks

    run = tmp_path / "ant/disk/seed0"
    run.mkdir(parents=True)
    ends = [(0, 0, 500, 20.0, 0.0), (0, 1, 250, 12.0, 1.0), (1, 0, 500, 0.0, 30.0), (1, 1, 500, 1.0, 30.0)]
    ends += [(2, 0, 100, 1.0, 0.0), (2, 1, 500, 0.0, 1.0)]  # one that stands, and fell once: it does not count
    pd.DataFrame(ends, columns=["skill", "episode", "step", "x", "y"]).to_csv(run / "paths.csv", index=False)
    measures = [("nominal", -1, "distinct", 2.0), ("nominal", 0, "hausdorff", 30.0), ("trained", 0, "hausdorff", 9.0)]
    pd.DataFrame(measures, columns=["condition", "skill", "metric", "value"]).to_csv(run / "metrics.csv", index=False)
    (run / "about.json").write_text(json.dumps({"steps": 3_000, "cpu_hours": 0.5}))
    assert walks(run).splitlines()[2] == "| `ant/disk/seed0` | 3 | 2 | 2 | 1 of 4 | 2.0 | 30.0 | 3,000 | 0.50 |"
