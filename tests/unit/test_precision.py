"""Updates in bfloat16, updates whose noise is given, and a device that is compared with the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import CPU, tiny_config
from test_sac import ACTIONS, BATCH, make, random_batch, settings

from disk.cli import main
from disk.config import Sac
from disk.errors import ConfigError
from disk.learning import compare
from disk.learning.tape import (
    THIN,
    Products,
    products,
    products_by_amx,
    products_by_onednn,
    products_for,
    products_in_bf16,
)


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with bfloat16 and without AMX. torch emulates it on others."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


@pytest.mark.parametrize("add", [False, True])
def test_a_product_in_bf16_has_rounded_factors_exact_sums_and_a_rounded_result(add: bool) -> None:
    a, b, before = torch.randn(96, 80), torch.randn(80, 72), torch.randn(96, 72)
    out = before.clone()
    products_in_bf16([a], [b], [out], add)
    exact = a.bfloat16().double() @ b.bfloat16().double()
    # Half a unit in the last of 8 bits, and a little for sums in float32 that fall on the other side.
    product = out.double() - before if add else out.double()
    torch.testing.assert_close(product, exact, rtol=0.51 * 2**-7, atol=1e-5)
    assert not torch.equal(out, before + a @ b if add else a @ b)


@pytest.mark.parametrize("add", [False, True])
def test_a_product_by_amx_has_rounded_factors_and_an_exact_result(add: bool) -> None:
    a, b, before = torch.randn(256, 257), torch.randn(257, 256), torch.randn(256, 256)
    out = before.clone()
    products_by_amx([a], [b], [out], add)
    if torch.cpu._is_amx_tile_supported():
        a, b = a.bfloat16(), b.bfloat16()  # elsewhere oneDNN does not round
    exact = a.double() @ b.double() + (before.double() if add else 0.0)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=2e-4)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("rounding", [products_in_bf16, products_by_amx])
def test_a_thin_product_stays_in_single_precision(rounding: Products) -> None:
    a, b = torch.randn(256, THIN - 1), torch.randn(THIN - 1, 256)
    one, two = torch.empty(256, 256), torch.empty(256, 256)
    rounding([a], [b], [one])
    products([a], [b], [two])
    assert torch.equal(one, two)


@pytest.mark.parametrize("kind", ["plain", "layer_norm", "crossq"])
def test_an_update_in_bf16_goes_where_one_in_single_precision_goes(kind: str, able: None) -> None:
    config = settings(hidden=[64, 64], batch_size=64, critic=kind)
    begun = compare._parameters(compare._learner(config, CPU))
    ends = []
    for precision in (None, "bf16"):
        learner = compare._learner(config.model_copy(update={"precision": precision}), CPU)
        generator = torch.Generator().manual_seed(3)
        for _ in range(20):
            rows = torch.randn(64, compare.SIZES.width, generator=generator)
            learner.update(compare.Batch(rows, compare.SIZES), torch.randn(64, generator=generator))
        ends.append(compare._parameters(learner) - begun)
    apart = float((ends[0] - ends[1]).norm() / ends[0].norm())
    assert 0.0 < apart < 0.2


def test_a_processor_without_bf16_is_refused_with_the_key_and_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    with pytest.raises(ConfigError, match=r"sac\.precision: bf16: .*neither AVX512-BF16 nor AMX: expected null"):
        make(precision="bf16")
    assert products_for(None, CPU) is products
    assert products_for("bf16", torch.device("cuda")) is products_in_bf16


def test_bf16_is_amx_where_there_is_amx(able: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert products_for("bf16", CPU) is products_in_bf16
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert products_for("bf16", CPU) is products_by_amx
    assert products_for("bf16", torch.device("cuda")) is products_in_bf16


@pytest.mark.parametrize("add", [False, True])
def test_a_product_by_onednn_is_in_single_precision_and_leaves_the_setting_as_it_was(add: bool) -> None:
    a, b, before = torch.randn(256, 256), torch.randn(256, 256), torch.randn(256, 256)
    out = before.clone()
    products_by_onednn([a], [b], [out], add)
    exact = a.double() @ b.double() + (before.double() if add else 0.0)
    if not torch.cpu._is_amx_tile_supported():
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=2e-4)  # bfloat16 would be off by 0.1
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_would_round_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"sac\.precision: onednn: a GPU would round to bfloat16: expected null or bf16"
    ):
        products_for("onednn", torch.device("cuda"))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert products_for("onednn", CPU) is products_by_onednn
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    with pytest.raises(ConfigError, match="AMX would round"):
        make(precision="onednn")


def test_a_job_without_a_precision_says_nothing_of_it() -> None:
    asked = tiny_config({"environments": {"point": {"sac": {"precision": "bf16"}}}})
    assert "precision" not in tiny_config().skill_job("point", "disk", 0, 0).canonical()
    assert '"precision": "bf16"' in asked.skill_job("point", "disk", 0, 0).canonical()


def test_an_update_draws_the_noise_that_it_may_also_be_given() -> None:
    drawing, given = make(), make()
    generator = torch.Generator()
    generator.set_state(given.generator.get_state())
    for update in range(4):
        batch, reward = random_batch(update)
        draws = 2 if update % given.config.actor_every == 0 else 1
        noise = [torch.randn(BATCH, ACTIONS, generator=generator) for _ in range(draws)]
        drawing.update(batch, reward)
        given.improve(batch, reward, noise)
    for name, value in drawing.state().items():
        assert torch.equal(value, given.state()[name]), name


def test_an_update_leaves_everything_where_it_is_so_that_a_recording_can_be_replayed() -> None:
    def places(learner: Any) -> dict[str, int]:
        kept = {name: value for name, value in learner.state().items() if not name.startswith(("metrics", "updates"))}
        return {name: value.data_ptr() for name, value in {**kept, "temperature": learner._temperature}.items()}

    learner = make()
    before = places(learner)
    for update in range(4):
        learner.update(*random_batch(update))
    learner.load_state({name: value.clone() for name, value in learner.state().items()})
    assert places(learner) == before


SMALL = {"hidden": [32, 32], "batch_size": 32}


def test_the_cpu_computes_what_the_cpu_computes_and_other_precision_is_found(
    able: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(hidden=[64, 64], batch_size=64)
    assert compare.apart(config, CPU, updates=5) == (0.0, 0.0)
    honest, turns = compare._learner, iter((None, "bf16"))

    def rounded(config: Sac, device: torch.device) -> Any:
        return honest(config.model_copy(update={"precision": next(turns)}), device)

    monkeypatch.setattr(compare, "_learner", rounded)
    losses, parameters = compare.apart(config, CPU, updates=50)
    assert losses > 0.0
    assert parameters > compare.TOLERANCE


def test_a_device_is_timed_alone_and_shared(able: None) -> None:
    text = compare.report(settings(**SMALL), "cpu", jobs=2, seconds=0.05)
    assert "same: losses are 0.0e+00 apart, parameters 0.0e+00" in text
    assert "for one job" in text
    assert "CPU cores at these sizes" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_is_told_so() -> None:
    assert main(["doctor", "--device", "cuda"]) == ConfigError.code
    with pytest.raises(ConfigError, match="Nothing was compared"):
        compare.report(settings(**SMALL), "cuda", jobs=1)
