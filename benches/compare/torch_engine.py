"""Decoding, or log-probs with their backward pass, with transformers on torch CPU.

The counterpart of engine.rs: the same shapes, options and JSON lines.

    pip install torch transformers==5.24.0
    python torch_engine.py --what update --rows 8 --prompt-len 384 --answer-len 128
"""

import argparse
import json
import os
import resource
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

a = argparse.ArgumentParser()
a.add_argument("--what", choices=["decode", "update"], required=True)
a.add_argument("--rows", type=int, default=8)
a.add_argument("--prompt-len", type=int, default=128)
a.add_argument("--answer-len", type=int, default=128)
a.add_argument("--shared", action="store_true")
a.add_argument("--layers", type=int, default=30)
a.add_argument("--vocab", type=int, default=49152)
a.add_argument("--repeat", type=int, default=6)
o = a.parse_args()

torch.set_num_threads(os.cpu_count())
torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=o.layers, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=o.vocab, tie_word_embeddings=True, max_position_embeddings=16384,
        rope_theta=100000.0, bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )
)
prompts = torch.randint(3, o.vocab, (1 if o.shared else o.rows, o.prompt_len)).expand(o.rows, -1)


def decode():
    with torch.no_grad():
        out = model.generate(
            prompts, do_sample=True, top_k=0, max_new_tokens=o.answer_len, min_new_tokens=o.answer_len,
            attention_mask=torch.ones_like(prompts),
        )
    return (out.shape[1] - o.prompt_len) * o.rows


def update():
    ids = torch.cat([prompts, torch.randint(3, o.vocab, (o.rows, o.answer_len))], 1)
    logits = model(ids[:, :-1], logits_to_keep=o.answer_len).logits
    answers = ids[:, -o.answer_len:]
    log_probs = logits.log_softmax(-1).gather(-1, answers[..., None])[..., 0]
    advantages = 1 - torch.arange(o.rows)[:, None] * 0.25
    loss = -(torch.exp(log_probs - log_probs.detach()) * advantages).mean()
    loss.backward()
    model.zero_grad()
    return ids.numel()


for _ in range(o.repeat):
    start = time.perf_counter()
    tokens = {"decode": decode, "update": update}[o.what]()
    seconds = time.perf_counter() - start
    print(json.dumps({
        "seconds": round(seconds, 3), "tokens": tokens, "tokens_per_s": round(tokens / seconds, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }), flush=True)
