"""Settings: the sections of config.yaml, typed and checked.

Frozen models that refuse unknown keys and wrong types. The numbers themselves are in `config/`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from disk.config.messages import explain, unknown
from disk.errors import ConfigError

log = logging.getLogger("disk")
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True, defer_build=True
    )

    def canonical(self) -> str:
        """Sorted JSON: equal configurations give equal text, whatever the order of their keys.

        Nulls are left out, so that an option which is added later and not used changes nothing.
        """
        return json.dumps(self.model_dump(mode="json", exclude_none=True), sort_keys=True)

    def digest(self) -> str:
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]


def _retired(value: Any, info: ValidationInfo) -> None:
    if value is not None:
        log.warning("%s: this key is no longer used; remove it from your configuration", info.field_name)


Retired = Annotated[Any, AfterValidator(_retired), Field(deprecated=True)]
"""A key that older configurations may still have. It is accepted with a warning and never enters a job."""
M = TypeVar("M", bound=Model)


def changed(settings: M, changes: Mapping[str, Any], where: str) -> M:
    """Settings with some of them changed; a fault names the place of the change."""
    try:
        return type(settings).model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        raise ConfigError(explain(error, type(settings), prefix=where)) from None


def known(table: Mapping[str, Any], name: str, what: str) -> str:
    if name not in table:
        raise ConfigError(unknown(name, table, what))
    return name


class Iteration(Model):
    """Steps, then updates of the objective's model, then updates of the policy; and again."""

    steps: PositiveInt
    model_updates: NonNegativeInt
    policy_updates: PositiveInt


class Sac(Model):
    """Soft actor-critic."""

    hidden: list[PositiveInt]
    """Widths of the hidden layers of actor and critics."""
    batch_size: PositiveInt
    discount: Annotated[float, Field(ge=0.0, lt=1.0)]
    learning_rate: PositiveFloat
    """Of actor, critics and temperature (Adam)."""
    target_momentum: Annotated[float, Field(gt=0.0, le=1.0)]
    """τ: the share of the critic that its target takes over at a target update."""
    target_every: PositiveInt
    """Updates between target updates."""
    actor_every: PositiveInt
    """Updates between updates of actor and temperature."""
    temperature: PositiveFloat
    """The entropy temperature at the start; it is learned."""
    target_entropy: float | None = None
    """What the temperature steers the entropy to; null: minus the number of actions."""
    log_std_bounds: Annotated[list[float], Field(min_length=2, max_length=2)]
    """Bounds that a tanh maps the log standard deviation into."""
    seed_steps: NonNegativeInt
    """Steps with uniform actions and no updates at the start of each skill."""
    updates_per_step: PositiveFloat
    """Gradient updates for each environment step; may be below 1."""
    # What only some methods set is null otherwise: it then does not appear in a job.
    environments: PositiveInt | None = None
    """Environments that one policy steps in turn, which makes its transitions more varied. Null: one."""
    overlap: Retired = None
    """No longer used: simulating in a thread of its own measured slower."""
    entropy_per_action: float | None = None
    """The target entropy for each action, in place of target_entropy. Null: -1, unless that is set."""
    log_std: Literal["clip"] | None = None
    """`clip`: the log standard deviation is cut off at its bounds. Null: a tanh maps it into them."""
    seed_actions: Literal["policy"] | None = None
    """`policy`: the seed steps are taken by the untrained policy. Null: uniform actions."""
    critic: Annotated[
        Literal["plain", "layer_norm", "crossq", "batch_norm", "no_target"] | None,
        AfterValidator(lambda value: None if value == "plain" else value),
    ] = None
    """Kind of the critics. `layer_norm`: normalised rows before each ReLU. `crossq`: normalised batches and no target
    networks. `batch_norm`: normalised batches with targets. `no_target`: neither. Null: `plain`, SAC's own."""
    critic_sees: Literal["sigma"] | None = None
    """`sigma`: critics see σ beside observation and action. The actor does not. Null: observation and action."""
    adam_beta1: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """Decay of Adam's mean gradient, for actor, critics and temperature. Null: 0.9."""
    precision: Literal["bf16", "onednn"] | None = None
    """`bf16`: large matrix products of an update have factors and results in bfloat16. Sums, weights and all else stay
    in float32. The processor needs AVX512-BF16 or AMX. `onednn`: float32 by oneDNN instead of MKL, which is faster on
    AMD's processors with AVX-512 and rounds differently; of the objective's networks too. Null: float32."""
    iteration: Iteration | None = None
    """Updates in bouts. Null: updates_per_step, each of the objective's model and of the policy on one batch."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Sac:
        if not self.log_std_bounds[0] < self.log_std_bounds[1]:
            raise ValueError(f"log_std_bounds must be [low, high] with low < high, not {self.log_std_bounds}")
        if self.entropy_per_action is not None and self.target_entropy is not None:
            raise ValueError("give target_entropy or entropy_per_action, not both")
        return self


class Incremental(Model):
    """DISk's reward, r = -α·r_c + β·r_d."""

    neighbours: PositiveInt
    """k: the distance to the k-th nearest neighbour is measured."""
    recent_states: PositiveInt
    """Size of BUF, the skill's own most recent projected states."""
    past_batch: PositiveInt
    """Size of 𝒯_b, drawn from the earlier skills' states for each update."""
    past_states: PositiveInt
    """States collected from each finished skill under its mode action; together they are 𝒯."""
    alpha: NonNegativeFloat
    """Weight of the consistency penalty on top of its normalisation."""
    beta: NonNegativeFloat
    """Weight of the diversity reward on top of its normalisation."""
    second_beta: Literal["replay", "one"]
    """β of the second skill, which has no predecessor with an r_d: measured on the replay, or 1."""
    anneal: Literal["tanh", "signed", "none"]
    """How α grows over a skill: from 0 (tanh), from -α as in the released code (signed), not at all."""
    mean_floor: PositiveFloat
    """Means of r_c and r_d are clamped here before they are inverted."""
    normaliser: Literal["released", "running"] | None = None
    """Means that α and β are the inverses of. `released`: of what earlier skills were *paid* for consistency and
    diversity, sign included, as in the released code. `running`: running means of the current skill's r_c and r_d.
    Null: means of the raw r_c and r_d of the skill before."""
    normaliser_window: PositiveInt | None = None
    """Updates that the running means look back on: their weights fall exponentially with this time constant."""
    normaliser_over: Literal["all", "own"] | None = None
    """Transitions of a batch that enter the running means: all, or only the skill's own. Null: all."""
    shape: Literal["difference", "gated", "log"] | None = None
    """How r_c and r_d make a reward. `gated`: β·r_d·exp(-α·r_c), never negative. `log`: β·ln r_d - α·ln r_c with the
    bare weights as α and β. Null: `difference`, β·r_d - α·r_c."""
    log_floor: PositiveFloat | None = None
    """Added to r_c and r_d before `log` takes their logarithms."""
    first: Literal["balanced"] | None = None
    """`balanced`: the first skill's α makes its two terms equally large, measured at its first update. Null: the
    environment's first_alpha."""

    @model_validator(mode="after")
    def _parts_that_go_together(self) -> Incremental:
        if self.normaliser == "running" and self.normaliser_window is None:
            raise ValueError("normaliser_window: null: normaliser running needs a number of updates")
        if self.shape == "log" and self.normaliser is not None:
            raise ValueError(f"normaliser: {self.normaliser}: shape log is not normalised: expected null")
        if self.shape == "log" and self.log_floor is None:
            raise ValueError("log_floor: null: shape log needs a number above 0")
        if self.shape == "gated" and self.normaliser == "released":
            raise ValueError(
                "normaliser: released: shape gated needs an α that is not negative: expected running or null"
            )
        return self

    def relevant_to(self, skill: int) -> Incremental:
        """Return the settings, with a fixed value for each one that this skill's training never reads."""
        running, unused = self.normaliser == "running", dict[str, Any]()
        if skill == 0:
            unused |= {"alpha": 1.0, "beta": 1.0, "anneal": "none", "past_batch": 1, "shape": None, "log_floor": None}
            unused |= {} if self.first else {"mean_floor": 1.0}
        else:
            unused["first"] = None
        if skill == 0 and running:
            unused["normaliser"] = None
        if skill == 0 or not running:
            unused |= {"normaliser_window": None, "normaliser_over": None}
        if skill != 1 or running or self.shape == "log":
            unused["second_beta"] = "one"
        if self.normaliser_over == "all":
            unused["normaliser_over"] = None
        if self.shape == "difference":
            unused["shape"] = None
        if self.shape != "log":
            unused["log_floor"] = None
        elif skill:
            unused["mean_floor"] = 1.0
        return self.model_copy(update=unused)

    def relevant_to_all(self) -> Incremental:
        """Return the settings for skills that are learned side by side.

        They collect no 𝒯, so its settings are fixed.
        """
        return self.model_copy(update={"past_states": 1, "second_beta": "one", **dict.fromkeys(OF_CHAINS)})


OF_CHAINS = ("normaliser", "normaliser_window", "normaliser_over", "shape", "log_floor", "first")
"""Settings of `Incremental` that only chains look at."""


class Measured(Model):
    """How methods with `normalise` measure the mean and the deviation of observations."""

    steps: PositiveInt
    """Steps with uniformly random actions before training, outside the budget."""
    episode: PositiveInt
    """Length of these episodes; how far a position gets depends on it."""
    floor: PositiveFloat
    """Smallest deviation; a number that hardly changes is not blown up."""


class Given(Model):
    """A mean and a deviation for each number of the observation and, behind them, of the position."""

    mean: Annotated[list[float], Field(min_length=1)]
    deviation: Annotated[list[PositiveFloat], Field(min_length=1)]

    @model_validator(mode="after")
    def _same_length(self) -> Given:
        if len(self.mean) != len(self.deviation):
            raise ValueError(f"mean has {len(self.mean)} numbers and deviation {len(self.deviation)}")
        return self


class Projection(Model):
    """How φ is learned, the projection of rows with `sigma: learned`."""

    width: PositiveInt
    """Numbers that φ maps a state to."""
    hidden: list[PositiveInt]
    """Widths of φ's hidden layers. Empty: φ is linear."""
    learning_rate: PositiveFloat
    """Of φ and the dual variable (Adam)."""
    updates: PositiveInt
    """Batches that φ is trained on before it is frozen."""
    dual: PositiveFloat
    """The dual variable at the start."""
    slack: NonNegativeFloat
    """How much a step that is shorter than 1 counts at most."""
    distance: Literal["change", "place"]
    """Rewards measure distances between changes, φ(s') - φ(s), or between places, φ(s')."""
