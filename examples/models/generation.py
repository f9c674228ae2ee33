"""Generate text with a model of transformers. The model's forward is captured; generate() stays Python."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import sot


def make() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, n_positions=64, vocab_size=100, bos_token_id=0, eos_token_id=1)
    return GPT2LMHeadModel(config).eval()


def main() -> None:
    ids = torch.tensor([[5, 17, 42]])
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 1, "attention_mask": torch.ones_like(ids)}
    expected = make().generate(ids, **options)
    model = sot.to_static(make(), backend="eager")
    assert torch.equal(model.generate(ids, **options), expected)
    found = sot.translation_of(model).explain()
    print(f"tokens: {expected[0].tolist()}")
    print(f"{len(found.graphs)} graphs for all lengths of the cache, {len(found.breaks)} breaks")


if __name__ == "__main__":
    main()
