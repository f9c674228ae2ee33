"""Train a Lightning module. Lightning calls ``training_step`` itself, so the model inside of the module is translated.

It needs Lightning: ``pip install lightning``.
"""
import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sot


class Classifier(lightning.LightningModule):
    def __init__(self, translate: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 3))
        if translate:
            sot.to_static(self.net, backend="eager")
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, labels = batch
        loss = nn.functional.cross_entropy(self.net(x), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def train(translate: bool) -> Classifier:
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(256, 8), torch.randint(0, 3, (256,)))
    model = Classifier(translate)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(data, batch_size=32, shuffle=True))
    return model


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    plain, translated = train(translate=False), train(translate=True)
    assert plain.losses == translated.losses, "dropout included: the random numbers are the same"
    print(f"{len(translated.losses)} steps, loss {translated.losses[0]:.3f}, then {translated.losses[-1]:.3f}")
    print(sot.translation_of(translated.net).explain().summary())


if __name__ == "__main__":
    main()
