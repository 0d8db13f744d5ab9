"""Soft actor-critic the usual way: what our learner is compared with.

The formulation of pytorch_sac, which the paper builds on, in today's torch: a module for each network, a
transformed distribution for the policy, autograd for every gradient, `torch.optim.Adam` as it comes, a
loop over parameters for the target. Nothing in here was made slow on purpose, and nothing fast.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.nn import functional as F


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Policy(nn.Module):
    def __init__(self, observations: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.trunk = mlp(observations, hidden, 2 * actions)

    def forward(self, obs: Tensor) -> TransformedDistribution:
        mean, log_std = self.trunk(obs).chunk(2, dim=-1)
        log_std = -5.0 + 0.5 * (2.0 + 5.0) * (torch.tanh(log_std) + 1.0)
        return TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform(cache_size=1)])


class TwinCritic(nn.Module):
    def __init__(self, observations: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.first = mlp(observations + actions, hidden, 1)
        self.second = mlp(observations + actions, hidden, 1)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        inputs = torch.cat((obs, action), dim=-1)
        return self.first(inputs), self.second(inputs)


class PlainSac:
    def __init__(self, observations: int, actions: int, hidden: int, actor_every: int, target_every: int) -> None:
        self.policy = Policy(observations, actions, hidden)
        self.critic = TwinCritic(observations, actions, hidden)
        self.target = copy.deepcopy(self.critic)
        self.log_alpha = torch.tensor(0.1).log().requires_grad_()
        self.target_entropy = -float(actions)
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=3e-4)
        self.actor_every, self.target_every = actor_every, target_every
        self.updates = 0

    def update(self, obs: Tensor, action: Tensor, next_obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """One step on a batch; `reward` and `terminated` are (B, 1)."""
        with torch.no_grad():
            law = self.policy(next_obs)
            next_action = law.rsample()
            log_prob = law.log_prob(next_action).unsqueeze(-1)
            value = torch.min(*self.target(next_obs, next_action)) - self.log_alpha.exp() * log_prob
            goal = reward + (1.0 - terminated) * 0.99 * value
        first, second = self.critic(obs, action)
        loss = F.mse_loss(first, goal) + F.mse_loss(second, goal)
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()
        if self.updates % self.actor_every == 0:
            self._update_policy_and_alpha(obs)
        if self.updates % self.target_every == 0:
            with torch.no_grad():
                for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                    old.copy_(0.01 * new + 0.99 * old)
        self.updates += 1

    def _update_policy_and_alpha(self, obs: Tensor) -> None:
        law = self.policy(obs)
        action = law.rsample()
        log_prob = law.log_prob(action).unsqueeze(-1)
        loss = (self.log_alpha.exp().detach() * log_prob - torch.min(*self.critic(obs, action))).mean()
        self.policy_adam.zero_grad()
        loss.backward()
        self.policy_adam.step()
        alpha_loss = (self.log_alpha.exp() * (-log_prob - self.target_entropy).detach()).mean()
        self.alpha_adam.zero_grad()
        alpha_loss.backward()
        self.alpha_adam.step()
