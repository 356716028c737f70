"""Writes the model folder from a checkpoint: bf16 weights, config and generation config.

The tokenizer files come from `train_tokenizer.py`. With --random the weights are untrained. With
--golden DIR also writes a reference file (input_ids, fp32 logits computed from the bf16 weights).
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import HybridModel, load_config

HERE = Path(__file__).parent
GENERATION = {
    "_from_model_config": False,
    "bos_token_id": 0,
    "do_sample": True,
    "eos_token_id": [2, 0],
    "pad_token_id": 0,
    "temperature": 0.3,
    "top_p": 0.95,
}


GOLDEN_TEXT = """<|im_start|>user
The code of amber is 4821. My name is Tom.<|im_end|>
<|im_start|>assistant
I will remember that.<|im_end|>
<|im_start|>user
Tell me a verse.<|im_end|>
<|im_start|>assistant
And God said, Let there be light: and there was light. And God saw the light, that it was good: \
and God divided the light from the darkness.<|im_end|>
<|im_start|>user
What is the code of amber?<|im_end|>
<|im_start|>assistant
The code of amber is 4821.<|im_end|>
"""


def averaged_weights(checkpoint):
    """The moving average kept by train.py, or random weights if there is no checkpoint."""
    if checkpoint:
        return torch.load(checkpoint, map_location="cpu", weights_only=True)["average"]
    torch.manual_seed(0)
    return HybridModel(load_config(HERE / "config.json")).state_dict()


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def load_exported(folder):
    """The exported model in fp32."""
    model = HybridModel(load_config(folder / "config.json")).eval()
    model.load_state_dict(
        {name: t.float() for name, t in load_file(folder / "model.safetensors").items()}
    )
    return model


@torch.no_grad()
def write_golden(folder, golden, text):
    """config.json, model.safetensors and golden.safetensors, as check_golden.py reads them."""
    from tokenizers import Tokenizer

    golden.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(folder / name, golden / name)
    ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids])
    save_file(
        {"input_ids": ids, "logits": load_exported(folder)(ids)}, golden / "golden.safetensors"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", type=Path)
    source.add_argument("--random", action="store_true")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer*.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--golden", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if args.tokenizer.resolve() != args.out.resolve():
            shutil.copyfile(args.tokenizer / name, args.out / name)
    shutil.copyfile(HERE / "config.json", args.out / "config.json")
    write_json(args.out / "generation_config.json", GENERATION)
    tensors = {
        name: t.to(torch.bfloat16).contiguous()
        for name, t in averaged_weights(args.checkpoint).items()
    }
    partial = args.out / "model.safetensors.part"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.rename(args.out / "model.safetensors")
    if args.golden:
        write_golden(args.out, args.golden, GOLDEN_TEXT)
    print(f"{sum(t.numel() for t in tensors.values())} parameters in {len(tensors)} tensors")


if __name__ == "__main__":
    main()
