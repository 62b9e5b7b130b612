"""PPO: rollouts without gradients, advantages, several epochs of mini-batches over each rollout."""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, observations=5, actions=3, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)
        for layer, gain in ((self.body[0], 2**0.5), (self.actor, 0.01), (self.critic, 1.0)):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.constant_(layer.bias, 0.0)

    def forward(self, obs):
        hidden = self.body(obs)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


class Bandits:
    """Eight contextual bandits at once: the right arm is that of the greatest of three entries."""

    def __init__(self, count):
        self.count = count

    def observe(self):
        self.obs = torch.randn(self.count, 5)
        return self.obs

    def act(self, action):
        return (self.obs[:, :3].argmax(1) == action).float()


@torch.no_grad()
def rollout(model, env, length, gamma=0.5, lam=0.9):
    seen = {"obs": [], "action": [], "logp": [], "value": [], "reward": []}
    for _ in range(length):
        obs = env.observe()
        dist, value = model(obs)
        action = dist.sample()
        record = (obs, action, dist.log_prob(action), value, env.act(action))
        for part, entry in zip(seen.values(), record):
            part.append(entry)
    data = {name: torch.stack(part) for name, part in seen.items()}
    _, following = model(env.observe())
    advantage, gae = torch.zeros(length, env.count), torch.zeros(env.count)
    for t in reversed(range(length)):
        gae = data["reward"][t] + gamma * following - data["value"][t] + gamma * lam * gae
        following, advantage[t] = data["value"][t], gae
    data["advantage"], data["returns"] = advantage, advantage + data["value"]
    return {name: part.flatten(0, 1) for name, part in data.items()}


def update(model, optimizer, data, epochs=2, clip=0.2):
    for _ in range(epochs):
        for rows in torch.randperm(len(data["obs"])).chunk(2):
            dist, value = model(data["obs"][rows])
            ratio = (dist.log_prob(data["action"][rows]) - data["logp"][rows]).exp()
            advantage = data["advantage"][rows]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            value_loss = (value - data["returns"][rows]).pow(2)
            loss = (policy + 0.5 * value_loss - 0.01 * dist.entropy()).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int, nargs="?", default=0)
    torch.manual_seed(710 + parser.parse_args().seed)
    model, env, updates = ActorCritic(), Bandits(64), 5
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2, eps=1e-5)
    rewards = []
    for number in range(updates):
        optimizer.param_groups[0]["lr"] = 2e-2 * (1 - number / updates)
        data = rollout(model, env, 8)
        update(model, optimizer, data)
        rewards.append(data["reward"].mean().item())
        print(f"update {number}: reward {rewards[-1]:.2f}")
    assert rewards[-1] > rewards[0]


if __name__ == "__main__":
    main()
