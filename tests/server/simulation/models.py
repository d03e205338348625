"""Models by name: shapes of one rank's share, whatever the number of ranks."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Model:
    """Sizes of one rank's tensors in MiB, and what a token takes in its KV cache."""

    architecture: str
    layers: int
    layer_mib: tuple
    embedding_mib: int
    kv_heads: int
    head_dim: int
    hidden: int

    def cell_bytes(self, layers):
        """Bytes of one token in the cache: K and V of each layer, two bytes a number."""
        return self.kv_heads * self.head_dim * 2 * 2 * layers

    def layer_kv_bytes(self, tokens):
        """Bytes of K, or of V, in one layer."""
        return self.kv_heads * self.head_dim * 2 * tokens


MODELS = {
    # Starts and serves in a moment, on any GPU.
    "sim/small": Model("LlamaForCausalLM", 4, (6, 14, 7), 24, 2, 128, 4096),
    # 72 GiB a rank: eight of them fill the machine of the founding case.
    "sim/large": Model("DeepseekV3ForCausalLM", 40, (310, 1020, 504, 6), 200, 1, 128, 7168),
    # EAGLE heads for these.
    "sim/small-eagle": Model("LlamaForCausalLMEagle", 1, (6, 14, 7), 24, 1, 64, 4096),
    "sim/large-eagle": Model("DeepseekV3ForCausalLMNextN", 1, (310, 1020, 504, 6), 200, 1, 128, 7168),
}
