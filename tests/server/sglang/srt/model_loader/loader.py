"""Weights: one block a tensor."""

import torch

MIB = 1 << 20
NORM_BYTES = 16 << 10


class DefaultModelLoader:
    def load_model(self, model, layers, extra_mib):
        """Tensors of these layers, of the embedding and the head, and `extra_mib` that only this rank has."""
        parameters = self._initialize_model(model, layers)
        if extra_mib:
            parameters.append(torch.empty(extra_mib * MIB))
        self.load_weights_and_postprocess()
        return parameters

    def _initialize_model(self, model, layers):
        parameters = [torch.empty(model.embedding_mib * MIB) for _ in ("embed_tokens", "lm_head")]
        for _ in range(layers):
            parameters += [torch.empty(mib * MIB) for mib in model.layer_mib]
            parameters += [torch.empty(NORM_BYTES) for _ in ("input_layernorm", "post_attention_layernorm")]
        return parameters

    @staticmethod
    def load_weights_and_postprocess():
        torch.cuda.launch("copy")
