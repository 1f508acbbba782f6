"""An elastic training program: one rank by itself, any number of ranks under `forerun live submit job.yaml`.

The global batch of 256 samples is shared by the ranks of the day, so the model learned is the same.
"""

import torch

from forerun.live import job


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))


def data() -> torch.utils.data.TensorDataset:
    samples = torch.randn(8192, 32, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(samples, samples[:, :10].argmax(1))


with job.attach(iterations=200) as me:
    model = me.parallel(build())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    me.state(model=model, optimizer=optimizer)
    for inputs, labels in me.batches(data(), 256):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs.to(me.device)), labels.to(me.device))
        me.backward(loss)
        optimizer.step()
        me.step()
    if me.rank == 0:
        print(f"loss {loss.item():.4f} after {me.done} steps")
