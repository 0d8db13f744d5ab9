"""Settings of when a skill ends or starts again, and of how many skills there are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from disk.config.settings import Model, Share


class Adaptive(Model):
    """When a skill of a chain has converged, so that it ends before its steps are used."""

    least: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of its steps that a skill takes in any case; α grows to its full value over these."""
    window: Annotated[float, Field(gt=0.0, le=0.5)]
    """Share of its steps over which r_c and r_d are averaged."""
    tolerance: NonNegativeFloat
    """It ends when neither mean differs by more than this share from that of the window before."""


class Budget(Model):
    """How the steps of a chain's schedule are spent: a skill that needs fewer leaves the rest to later ones."""

    least: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of its steps that a skill takes in any case; α grows to its full value over these."""
    most: Annotated[float, Field(ge=1.0)]
    """A skill takes at most this many times its own steps, and never more than earlier skills have left."""
    window: Annotated[float, Field(gt=0.0, le=0.5)]
    """Share of its steps over which r_c and r_d of the states that it visits are averaged."""
    tolerance: NonNegativeFloat
    """Up to its steps it ends when neither mean changes by more than this share from window to window. Beyond them it
    ends when neither improves by more."""
    duplicate: NonNegativeFloat
    """It is a duplicate when its final mean r_d is below this share of the median of the earlier skills' own."""
    retries: NonNegativeInt
    """How often a duplicate is trained again from other weights, if its share of steps is left."""


class Aware(Model):
    """How a chain finds out for itself that its world has changed, and what it does then."""

    share: Annotated[float, Field(gt=0.0, le=1.0)]
    """Most probe steps of frozen skills, as a share of the run's steps so far. They are outside the budget."""
    rate: Annotated[float, Field(gt=0.0, lt=1.0)]
    """False alarms per probe: fewer than this on average while nothing changes."""
    close: Share
    """A skill that has taken more than this share of its steps ends at a change; the next skill gets the rest."""
    old: Share
    """Share of every batch that is drawn from transitions of the old world after a change."""


class Curriculum(Model):
    """VALOR's growing number of skills."""

    first: PositiveInt
    """K at the start."""
    certainty: Share
    """p_d: K grows when the discriminator's mean probability of the right skill, on fresh states, reaches this."""
    episodes: PositiveInt
    """How many episodes that mean is over, and the fewest between two growths."""
