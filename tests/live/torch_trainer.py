"""A torch model in float64 with Adam under DistributedDataParallel, for tests. `unscaled` does not weight losses."""

import sys

import torch

from forerun.live import job

with job.attach() as me:
    torch.manual_seed(3)
    samples = torch.randn(33, 5, dtype=torch.float64)
    targets = torch.sin(samples.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)).double()
    model = me.parallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    me.state(model=model, optimizer=optimizer)
    for inputs, wanted in me.batches((samples, targets), 10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward() if "unscaled" in sys.argv else me.backward(loss)
        optimizer.step()
        me.step()
