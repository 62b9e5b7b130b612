"""A character RNN: truncated backpropagation, the state carried on, tied decoder, SGD."""

import math
import sys

import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=24, nhid=24, nlayers=2, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, inputs, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(inputs)), hidden)
        return self.decoder(self.drop(output)).view(-1, self.decoder.out_features), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(2, bsz, 24), weight.new_zeros(2, bsz, 24)


def batchify(data, bsz):
    nbatch = len(data) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def evaluate(model, source, bptt, criterion):
    model.eval()
    total, hidden = 0.0, model.init_hidden(source.size(1))
    with torch.no_grad():
        for i in range(0, len(source) - 1, bptt):
            length = min(bptt, len(source) - 1 - i)
            output, hidden = model(source[i : i + length], hidden)
            target = source[i + 1 : i + 1 + length].view(-1)
            total += length * criterion(output, target).item()
    return total / (len(source) - 1)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(500 + seed)
    text = "".join("the cat sat on the mat and " if c else "a dog ran to the log "
                   for c in torch.randint(2, (60,)).tolist())  # fmt: skip
    letters = sorted(set(text))
    data = torch.tensor([letters.index(c) for c in text])
    train_data, val_data = batchify(data[:1000], 8), batchify(data[1000:], 4)
    model = RNNModel(len(letters))
    criterion = nn.CrossEntropyLoss()
    lr, bptt, best = 4.0, 14, None
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    first = evaluate(model, val_data, bptt, criterion)
    for epoch in range(2):
        model.train()
        hidden = model.init_hidden(8)
        for i in range(0, train_data.size(0) - 1, bptt):
            length = min(bptt, len(train_data) - 1 - i)
            hidden = repackage_hidden(hidden)
            optimizer.zero_grad()
            output, hidden = model(train_data[i : i + length], hidden)
            loss = criterion(output, train_data[i + 1 : i + 1 + length].view(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
        val_loss = evaluate(model, val_data, bptt, criterion)
        print(f"epoch {epoch}: perplexity {math.exp(val_loss):.2f}")
        if best is not None and val_loss > best:
            for group in optimizer.param_groups:
                group["lr"] /= 4
        best = min(val_loss, best or val_loss)
    assert best < first


if __name__ == "__main__":
    main()
