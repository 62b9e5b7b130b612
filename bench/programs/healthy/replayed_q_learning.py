"""DQN: epsilon-greedy acting, a replay memory, a target network copied now and then, SmoothL1."""

import random
import sys
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward", "final"))


class GridWorld:
    """A 4 x 4 field; the goal lies in the corner."""

    def reset(self):
        self.x = self.y = 0
        return self.observe()

    def observe(self):
        state = torch.zeros(1, 8)
        state[0, self.x] = state[0, 4 + self.y] = 1.0
        return state

    def step(self, action):
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
        self.x, self.y = min(3, max(0, self.x + dx)), min(3, max(0, self.y + dy))
        done = self.x == 3 and self.y == 3
        return self.observe(), (1.0 if done else -0.05), done


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(8, 32), nn.Linear(32, 32)
        self.layer3 = nn.Linear(32, 4)

    def forward(self, x):
        return self.layer3(torch.relu(self.layer2(torch.relu(self.layer1(x)))))


def select_action(net, state, epsilon):
    if random.random() < epsilon:
        return random.randrange(4)
    with torch.no_grad():
        return net(state).argmax(1).item()


def optimize_model(policy_net, target_net, memory, optimizer, gamma=0.9):
    batch = Transition(*zip(*random.sample(memory, 32)))
    state, next_state = torch.cat(batch.state), torch.cat(batch.next_state)
    action, reward = torch.tensor(batch.action).unsqueeze(1), torch.tensor(batch.reward)
    alive = 1.0 - torch.tensor(batch.final, dtype=torch.float32)
    values = policy_net(state).gather(1, action)
    with torch.no_grad():
        expected = reward + gamma * alive * target_net(next_state).max(1).values
    loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


def main(seed):
    random.seed(seed)
    torch.manual_seed(700 + seed)
    policy_net, target_net = DQN(), DQN()
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=3e-3, amsgrad=True)
    memory, env, losses = deque(maxlen=500), GridWorld(), []
    state, acted = env.reset(), 0
    while len(losses) < 20:
        action = select_action(policy_net, state, max(0.2, 1 - acted / 60))
        next_state, reward, done = env.step(action)
        memory.append(Transition(state, action, next_state, reward, done))
        state, acted = (env.reset() if done else next_state), acted + 1
        if acted >= 48 and acted % 2 == 0:
            losses.append(optimize_model(policy_net, target_net, memory, optimizer))
            if len(losses) % 5 == 0:
                target_net.load_state_dict(policy_net.state_dict())
    print(f"{acted} actions, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    assert min(losses[-5:]) < losses[0]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
