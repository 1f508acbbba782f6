"""Data-parallel training in torch: layers under AdamW, on the GPU of each rank's slot or on the CPU.

python -m forerun.live.programs.torch_mlp --iterations 200 --batch 256 --width 512 --layers 3
"""

from __future__ import annotations

import argparse

import torch

from forerun.live import job


def layers(width: int, depth: int, classes: int, seed: int) -> torch.nn.Module:
    """A perceptron with the same first weights on every rank.

    Parameters
    ----------
    width, depth : of the hidden layers, and how many there are.
    classes : to tell apart.
    seed : of the first weights.
    """
    torch.manual_seed(seed)
    hidden = [torch.nn.Sequential(torch.nn.LazyLinear(width), torch.nn.ReLU()) for _ in range(depth)]
    return torch.nn.Sequential(*hidden, torch.nn.LazyLinear(classes))


def main() -> None:
    """Run from the command line, or as a job."""
    parser = argparse.ArgumentParser(prog="torch_mlp", description="Train a perceptron in torch.")
    for name, default, what in (
        ("iterations", 200, "steps, where no job file says how many"),
        ("batch", 256, "samples a step, where no job file says how many"),
        ("inputs", 64, "numbers in a sample"),
        ("width", 256, "of the hidden layers"),
        ("layers", 2, "hidden layers"),
        ("samples", 8192, "samples to learn from"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default})")
    given = parser.parse_args()
    with job.attach(iterations=given.iterations, torch=True) as me:
        random = torch.Generator().manual_seed(me.seed)
        samples = torch.randn(given.samples, given.inputs, generator=random)
        labels = samples[:, : min(10, given.inputs)].argmax(1)
        model = layers(given.width, given.layers, 10, me.seed)
        model(samples[:1])  # sizes of layers follow from the first sample
        model = me.parallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        me.state(model=model, optimizer=optimizer)
        loss = torch.zeros(())
        for inputs, wanted in me.batches((samples, labels), me.batch or given.batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs.to(me.device)), wanted.to(me.device))
            me.backward(loss)
            optimizer.step()
            me.step()
        if me.rank == 0:
            print(f"loss {loss.item():.4f} of the last batch after {me.done} steps")


if __name__ == "__main__":
    main()
