"""What all writers quantize: two layers of a Llama, with rows of different sizes, and tokens."""
import os
import warnings

warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"


def saved(path):
    """The model and a tokenizer, which writers want though their rows are tokens already."""
    import tokenizers
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(14)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=256,
        tie_word_embeddings=False)).to(torch.bfloat16)
    with torch.no_grad():
        for values in made.parameters():
            if values.dim() > 1:
                values *= torch.exp(0.25 * torch.randn(values.shape[0], 1)).to(values.dtype)
    made.save_pretrained(path)
    words = {f"t{i}": i for i in range(512)}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t0")),
        pad_token="t0", eos_token="t1").save_pretrained(path)
    return path


def loaded(path):
    import torch
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()


def tokens(rows=4, columns=64):
    import torch

    return torch.randint(0, 512, (rows, columns), generator=torch.Generator().manual_seed(3))
