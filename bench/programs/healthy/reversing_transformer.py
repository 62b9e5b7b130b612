"""nn.Transformer reverses sequences: Noam schedule, smoothed labels, padding, greedy decoding."""

import sys

import torch
from torch import nn

PAD, BOS, EOS, VOCAB = 0, 1, 2, 16


class Reverser(nn.Module):
    def __init__(self, d_model=32):
        super().__init__()
        self.d_model = d_model
        self.src_embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.tgt_embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.register_buffer("position", self.encode_positions(20, d_model))
        self.transformer = nn.Transformer(
            d_model, nhead=4, num_encoder_layers=1, num_decoder_layers=1,
            dim_feedforward=64, dropout=0.05, batch_first=True,
        )  # fmt: skip
        self.generator = nn.Linear(d_model, VOCAB)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    @staticmethod
    def encode_positions(length, d_model):
        table = torch.zeros(length, d_model)
        angle = torch.arange(length)[:, None] / 50 ** (torch.arange(0, d_model, 2) / d_model)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        return table

    def embed(self, table, ids):
        return table(ids) * self.d_model**0.5 + self.position[: ids.shape[1]]

    def forward(self, src, tgt):
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]).bool()
        hidden = self.transformer(
            self.embed(self.src_embed, src), self.embed(self.tgt_embed, tgt), tgt_mask=causal,
            src_key_padding_mask=src == PAD, tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )  # fmt: skip
        return self.generator(hidden)


def make_batch(size):
    src = torch.full((size, 8), PAD)
    tgt = torch.full((size, 10), PAD)
    for row in range(size):
        length = int(torch.randint(4, 9, ()))
        words = torch.randint(3, VOCAB, (length,))
        src[row, :length] = words
        tgt[row, 0], tgt[row, 1 : length + 1], tgt[row, length + 1] = BOS, words.flip(0), EOS
    return src, tgt


@torch.no_grad()
def greedy(model, src, steps):
    model.eval()
    out = torch.full((len(src), 1), BOS)
    for _ in range(steps):
        out = torch.cat([out, model(src, out)[:, -1].argmax(-1, keepdim=True)], 1)
    model.train()
    return out


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(240 + seed)
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: 32**-0.5 * min((s + 1) ** -0.5, (s + 1) * 8**-1.5) * 0.15
    )
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    losses = []
    for step in range(20):
        src, tgt = make_batch(32)
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        noam.step()
        losses.append(loss.item())
        if step % 10 == 9:
            print(step, losses[-1], greedy(model, make_batch(1)[0], 4).tolist())
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main()
