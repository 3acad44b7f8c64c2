/* Names that files of outputs have. Knows no directory. */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/sink/compress.h"
#include "pack/source/index.h"

#include <stdio.h>
#include <string.h>

/* Names of files that published checkpoints have. */
static const char *const usual[] = {
    "config.json", "generation_config.json", "tokenizer_config.json", "preprocessor_config.json",
    "processor_config.json", "video_preprocessor_config.json", "adapter_config.json",
    "hf_quant_config.json", "quantize_config.json", "quant_config.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "scheduler_config.json",
    "audio_config.json", "vision_config.json", "text_config.json", "params.json",
    "model_index.json", "modules.json", /* of sentence-transformers */
    "recipe.yaml", /* of llm-compressor */
    "tokenizer.json", "tokenizer.model", "tokenizer.model.v3", "tekken.json", "spiece.model",
    "sentencepiece.bpe.model", "tiktoken.model", "tokenizer.tiktoken", "qwen.tiktoken",
    "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json", "special_tokens_map.json",
    "chat_template.json", "chat_template.jinja",
    "README", "README.md", "README.txt", "LICENSE", "LICENSE.md", "LICENSE.txt", "LICENSE.pdf",
    "NOTICE", "NOTICE.md", "NOTICE.txt", "USE_POLICY", "USE_POLICY.md", ".gitattributes",
};

/* Model code: how its names begin, with the model's behind it. */
static const char *const code_of[] = {"configuration_", "modeling_", "tokenization_", "processing_",
                                      "image_processing_"};

bool tp_commit_is_usual(const char *name)
{
    if (tp_word_of(name, usual, TP_COUNT(usual)) >= 0)
        return true;
    for (size_t i = 0; i < TP_COUNT(code_of); i++)
        if (tp_begins_with(name, code_of[i]) && tp_ends_with(name, ".py"))
            return true;
    return false;
}

bool tp_commit_is_shard(const char *name)
{
    char again[80];
    unsigned number, count;
    const char *base = tp_stem_of(name);
    const char *end = tp_ends_with(name, TP_ZST_SUFFIX) ? TP_ZST_SUFFIX : "";
    const char *dash = strchr(name, '-');
    if (!dash || sscanf(dash, "-%u-of-%u", &number, &count) != 2)
        snprintf(again, sizeof again, "%s.safetensors%s", base, end);
    else if (number && number <= count)
        snprintf(again, sizeof again, "%s-%05u-of-%05u.safetensors%s", base, number, count, end);
    else
        return false;
    return strcmp(again, name) == 0;
}

bool tp_commit_is_index(const char *name)
{
    const char *base = tp_stem_of(name);
    return tp_begins_with(name, base) && strcmp(name + strlen(base), TP_INDEX_END) == 0;
}
