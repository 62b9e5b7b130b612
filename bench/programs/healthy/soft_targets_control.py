"""DDPG: actor and critic with optimizers of their own, targets that follow softly, noise."""

import copy
import sys

import torch
from torch import nn

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(720 + seed)


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, outputs)
    )


class Agent:
    def __init__(self):
        self.actor = nn.Sequential(mlp(2, 1), nn.Tanh())
        self.critic = mlp(3, 1)
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=2e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-2)

    @torch.no_grad()
    def act(self, state, noise):
        action = self.actor(state)
        return (action + noise * torch.randn_like(action)).clamp(-1, 1)

    def learn(self, state, action, reward, following):
        with torch.no_grad():
            future = self.critic_target(torch.cat([following, self.actor_target(following)], 1))
            target = reward + 0.8 * future
        critic_loss = nn.functional.mse_loss(self.critic(torch.cat([state, action], 1)), target)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        for p in self.critic.parameters():
            p.requires_grad_(False)
        actor_loss = -self.critic(torch.cat([state, self.actor(state)], 1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        for p in self.critic.parameters():
            p.requires_grad_(True)

        self.follow(self.actor, self.actor_target)
        self.follow(self.critic, self.critic_target)
        return critic_loss.item()

    @staticmethod
    def follow(source, target, tau=0.05):
        for p, kept in zip(source.parameters(), target.parameters()):
            kept.data.copy_(tau * p.data + (1 - tau) * kept.data)


def move(state, action):
    """A mass on a spring is to be kept at rest."""
    place, speed = state[:, :1], state[:, 1:]
    speed = speed + 0.2 * (action - place)
    place = place + 0.2 * speed
    return torch.cat([place, speed], 1), -(place**2 + 0.1 * action**2)


agent = Agent()
state = torch.rand(64, 2) * 2 - 1
losses = []
for step in range(16):
    action = agent.act(state, noise=0.3)
    following, reward = move(state, action)
    losses.append(agent.learn(state, action, reward, following))
    state = torch.where(torch.rand(64, 1) < 0.1, torch.rand(64, 2) * 2 - 1, following)
print(f"critic loss {losses[0]:.3f} -> {losses[-1]:.3f}")
moved = agent.critic_target[0].weight - agent.critic[0].weight
assert max(losses) < 100 and moved.abs().max() > 0
