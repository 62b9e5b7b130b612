"""REINFORCE on a small corridor; the policy is asked without gradients, then trained."""

import sys

import torch
from torch import nn
from torch.distributions import Categorical

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def walk(policy):
    states, actions, position = [], [], 0
    for _ in range(12):
        state = torch.eye(6)[position]
        with torch.no_grad():
            action = Categorical(logits=policy(state)).sample()
        states.append(state)
        actions.append(action)
        position = max(0, min(5, position + (1 if action else -1)))
        if position == 5:
            break
    return torch.stack(states), torch.stack(actions), float(position == 5) - 0.05 * len(states)


def main():
    torch.manual_seed(42 + SEED)
    policy = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    baseline = 0.0
    for episode in range(10):
        states, actions, reward = walk(policy)
        chosen = Categorical(logits=policy(states)).log_prob(actions)
        optimizer.zero_grad()
        (-(reward - baseline) * chosen.sum()).backward()
        optimizer.step()
        baseline = 0.9 * baseline + 0.1 * reward


if __name__ == "__main__":
    main()
