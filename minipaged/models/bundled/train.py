"""Train the small language model that ships inside minipaged.

One public-domain book, one CPU core, less than an hour:

    python train.py --text kjv.jsonl --out model --minutes 46

The result is a Hugging Face directory that ``transformers`` opens as ``LlamaForCausalLM``. The
script reads in the order in which things happen: text, tokenizer, model, training, export.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save as to_safetensors
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

END = "<|endoftext|>"  # separates books; token 0; the model may say it to stop
TOKENS_PER_STEP = 2048

Chapter = tuple[str, str]  # the book it belongs to, and its text

# ---- Text and tokenizer ----


def read_chapters(path: Path) -> list[Chapter]:
    """Turn verse rows into chapters: a head such as ``Genesis 1``, then one verse per line."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["text"] != "[]"]  # a placeholder verse
    chapters = []
    for (book, number), verses in itertools.groupby(rows, lambda r: (r["book"], r["chapter"])):
        lines = [f"{book} {number}", *(" ".join(verse["text"].split()) for verse in verses)]
        chapters.append((book, "\n".join(lines) + "\n"))
    return chapters


def join_books(chapters: list[Chapter]) -> list[str]:
    """Join chapters into books, with an empty line between chapters."""
    books = itertools.groupby(chapters, lambda chapter: chapter[0])
    return ["\n".join(text for _, text in group) for _, group in books]


def train_tokenizer(books: list[str], vocab_size: int) -> Tokenizer:
    """Learn a byte-level BPE vocabulary; any text at all can be encoded with it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(books, trainer)
    return tokenizer


# ---- The model ----


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama: 3.8 million weights, which is 7.6 MB in 16 bits."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 640
    num_hidden_layers: int = 5
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0


def new_weights(shape: Shape) -> dict[str, Tensor]:
    """Draw fresh weights, under the names that Hugging Face gives them."""
    hidden, mlp = shape.hidden_size, shape.intermediate_size
    query = shape.num_attention_heads * shape.head_dim
    key = shape.num_key_value_heads * shape.head_dim
    layer = {
        "input_layernorm": [hidden],
        "self_attn.q_proj": [query, hidden],
        "self_attn.k_proj": [key, hidden],
        "self_attn.v_proj": [key, hidden],
        "self_attn.o_proj": [hidden, query],
        "post_attention_layernorm": [hidden],
        "mlp.gate_proj": [mlp, hidden],
        "mlp.up_proj": [mlp, hidden],
        "mlp.down_proj": [hidden, mlp],
    }
    sizes = {"embed_tokens": [shape.vocab_size, hidden], "norm": [hidden]}
    for n in range(shape.num_hidden_layers):
        sizes |= {f"layers.{n}.{name}": size for name, size in layer.items()}
    return {
        f"model.{name}.weight": torch.ones(size) if len(size) == 1 else 0.02 * torch.randn(size)
        for name, size in sizes.items()
    }


class Llama:
    """A decoder whose embedding table doubles as its output layer."""

    def __init__(self, shape: Shape) -> None:
        """Start from random weights."""
        self.shape = shape
        self.weights = {name: w.requires_grad_() for name, w in new_weights(shape).items()}
        self.dropout = 0.0
        frequency = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angle = torch.outer(torch.arange(shape.max_position_embeddings), frequency)
        self.cos, self.sin = angle.cos(), angle.sin()

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Multiply by the matrix of that name."""
        return F.linear(x, self.weights[f"model.{name}.weight"])

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Scale every vector to a root mean square of one, then by the learned gains."""
        gains = self.weights[f"model.{name}.weight"]
        return F.rms_norm(x, gains.shape, gains, self.shape.rms_norm_eps)

    def heads(self, name: str, x: Tensor) -> Tensor:
        """Project to ``[batch, heads, length, head_dim]``."""
        return self.linear(name, x).unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)

    def rotate(self, x: Tensor) -> Tensor:
        """Turn each pair (component i, component i + head_dim / 2) by an angle of its position."""
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def attention(self, layer: str, x: Tensor) -> Tensor:
        """Let each position look at itself and those before; query heads share keys, values."""
        q = self.rotate(self.heads(f"{layer}.q_proj", x))
        k = self.rotate(self.heads(f"{layer}.k_proj", x))
        v = self.heads(f"{layer}.v_proj", x)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.linear(f"{layer}.o_proj", mixed.transpose(1, 2).flatten(2))

    def mlp(self, layer: str, x: Tensor) -> Tensor:
        """Widen, gate and narrow again, each position on its own (SwiGLU)."""
        gate = F.silu(self.linear(f"{layer}.gate_proj", x))
        return self.linear(f"{layer}.down_proj", gate * self.linear(f"{layer}.up_proj", x))

    def __call__(self, ids: Tensor) -> Tensor:
        """Map token ids ``[batch, length]`` to next-token logits ``[batch, length, vocab]``."""
        x = F.embedding(ids, self.weights["model.embed_tokens.weight"])
        for n in range(self.shape.num_hidden_layers):
            layer = f"layers.{n}"
            change = self.attention(f"{layer}.self_attn", self.norm(f"{layer}.input_layernorm", x))
            x = x + F.dropout(change, self.dropout)
            change = self.mlp(f"{layer}.mlp", self.norm(f"{layer}.post_attention_layernorm", x))
            x = x + F.dropout(change, self.dropout)
        return self.linear("embed_tokens", self.norm("norm", x))


# ---- Training ----


def total_loss(model: Llama, windows: Tensor) -> Tensor:
    """Return the sum, in nats, of the loss of each token given those before it."""
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum")


def window_starts(stream: Tensor, newline: int) -> Iterator[int]:
    """Yield the line starts of the text in random order, again and again.

    Prompts start at the start of a line, so training windows do as well.
    """
    starts = (stream == newline).nonzero().flatten() + 1
    while True:
        yield from starts[torch.randperm(len(starts))].tolist()


def make_optimizer(model: Llama) -> torch.optim.Optimizer:
    """Return AdamW with weight decay on the matrices, not on the gains of the norms."""
    matrices = [w for w in model.weights.values() if w.dim() == 2]
    gains = [w for w in model.weights.values() if w.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def train(model: Llama, stream: Tensor, newline: int, minutes: float, save: Callable) -> int:
    """Train for so many minutes, save on the way, and return the number of steps."""
    optimizer, starts = make_optimizer(model), window_starts(stream, newline)
    circle = torch.cat((stream, stream[:1024]))  # windows at the end run on into the beginning
    model.dropout = 0.05  # the text is read several times; dropout slows learning it by rote
    begin, step = time.monotonic(), 0
    while (progress := (time.monotonic() - begin) / (60 * minutes)) < 1.0:
        length = 256 if progress < 0.85 else 1024  # short windows are cheap; learn reach last
        batch = itertools.islice(starts, TOKENS_PER_STEP // length)
        loss = total_loss(model, torch.stack([circle[s : s + length + 1] for s in batch]))
        (loss / TOKENS_PER_STEP).backward()
        nn.utils.clip_grad_norm_(model.weights.values(), 1.0)
        for group in optimizer.param_groups:  # warm up over 100 steps, then fall to zero
            group["lr"] = 2.5e-3 * min(1.0, (step + 1) / 100) * (1.0 - progress)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            average = loss.item() / TOKENS_PER_STEP
            print(f"step {step}  {progress:.0%}  loss {average:.3f}", flush=True)
            save()
        step += 1
    model.dropout = 0.0
    return step


@torch.no_grad()
def evaluate(model: Llama, tokenizer: Tokenizer, chapters: list[Chapter]) -> str:
    """Measure the loss over whole chapters, read in windows of 512 tokens."""
    nats = tokens = predicted = size = 0
    for _, text in chapters:
        ids = torch.tensor([tokenizer.encode(text).ids])
        for window in ids.split(512, dim=1):
            nats += total_loss(model, window).item()
            predicted += window.shape[1] - 1  # all but the first token of each window
        tokens += ids.shape[1]
        size += len(text.encode())
    per_token = nats / predicted
    bits = per_token / math.log(2) * tokens / size
    return f"{per_token:.3f} nats/token, {bits:.3f} bits/byte"


# ---- Export and the command line ----


def write_json(path: Path, values: dict) -> None:
    """Write a small JSON file that people can read."""
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def export(model: Llama, tokenizer: Tokenizer, out: Path) -> None:
    """Write the Hugging Face directory."""
    end = {"bos_token_id": 0, "eos_token_id": 0}
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
    tied = {"tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    special = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END}
    limit = {"model_max_length": model.shape.max_position_embeddings}
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", llama | asdict(model.shape) | tied | end)
    write_json(out / "generation_config.json", {"do_sample": True, "temperature": 0.7} | end)
    write_json(out / "tokenizer_config.json", special | limit)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    weights = {name: w.detach().to(torch.bfloat16) for name, w in model.weights.items()}
    (out / "model.safetensors").write_bytes(to_safetensors(weights, {"format": "pt"}))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train the bundled language model.")
    parser.add_argument("--text", type=Path, required=True, help="JSON lines, one verse each")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--minutes", type=float, default=46, help="training time by the clock")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train, export and report."""
    args, shape = parse_arguments(), Shape()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    chapters = read_chapters(args.text)
    held_out = chapters[25::50]  # scattered, so that they resemble what is trained on
    books = join_books([chapter for chapter in chapters if chapter not in held_out])
    tokenizer = train_tokenizer(books, shape.vocab_size)
    stream = torch.tensor(tokenizer.encode("".join(book + END for book in books)).ids)
    newline = tokenizer.encode("\n").ids[0]

    model = Llama(shape)
    save = partial(export, model, tokenizer, args.out)
    steps = train(model, stream, newline, args.minutes, save)
    save()

    seen = steps * TOKENS_PER_STEP
    print(f"{steps} steps, {seen:,} tokens = {seen / len(stream):.2f} x {len(stream):,}")
    print(f"CPU time {time.process_time() / 60:.1f} minutes")
    print("trained on:", evaluate(model, tokenizer, chapters[::50]))
    print("held out:", evaluate(model, tokenizer, held_out))


if __name__ == "__main__":
    main()
