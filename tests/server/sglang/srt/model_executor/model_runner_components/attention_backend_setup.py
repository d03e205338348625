"""Backends, from 0.5.17 on."""

from sglang.srt.layers.attention.flashinfer_backend import FlashInferAttnBackend


def build_attention_backends(runner):
    runner.attn_backend = FlashInferAttnBackend()
