/* The two tables: commands and options. Data only; options.c reads argv with
 * them, help.c prints them, completions.c answers shells with them.
 * Invariant: a name, and a letter, mean one thing within a command (tested). */
#include "cli/option_table.h"


#define BIT(c) (1u << TP_CMD_##c)
#define MAKES (BIT(CONVERT) | BIT(PLAN))
#define MODEL (MAKES | BIT(COMPARE) | BIT(RECIPE) | BIT(SCHEDULE)) /* commands that take facts of the model */
#define WRITES (BIT(CONVERT) | BIT(PLAN) | BIT(UNPACK))
#define SHOWS ((1u << TP_CMD_HELP) - 1) /* every command that is not a helper */
#define ALL ((1u << TP_CMD_COUNT) - 1)
#define FIELD(f) offsetof(struct tp_options, f)

/* The operand lists that several commands share. */
#define ONE_PATH {{"PATH", TP_COMPLETE_PATH, NULL}}, 1, 1

const struct tp_command_row tp_command_rows[TP_CMD_COUNT] = {
    [TP_CMD_CONVERT] = {
        "convert", "SRC -o DST --to FORMAT [options]",
        "quantize and repack a checkpoint into kernel-ready bytes",
        "SRC is a .safetensors file or a Hugging Face directory, and so is DST. The same command "
        "resumes an interrupted run.",
        "tilepack convert Mixtral-8x7B -o Mixtral-w4a8 --to w4a8-cutlass\n"
        "tilepack convert model.safetensors -o packed.safetensors --to mxfp8-blocked\n"
        "tilepack convert SRC -o DST --to fp8-deepseek --set scale=ue8m0\n"
        "tilepack convert SRC -o DST --recipe mixed.json --dry-run\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_START,
        "-o DST names what to write; --dry-run shows the plan without it"},
    [TP_CMD_PLAN] = {
        "plan", "SRC --to FORMAT [options]",
        "print what convert would write, without writing",
        "The same as convert --dry-run. It lists sources, outputs, sizes, and every tensor that is "
        "kept, with the reason. Weights that are alike share a line; --verbose prints one for "
        "each.",
        "tilepack plan Mixtral-8x7B --to w4a8-cutlass\n"
        "tilepack plan SRC --to mxfp8-blocked --json | jq .\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_CHECKPOINTS, NULL},
    [TP_CMD_DUMP] = {
        "dump", "PATH [TENSOR] [options]",
        "look inside a checkpoint: tensors, layouts, values",
        "Without TENSOR, dump lists the tensors. With it, dump prints the descriptor and draws the "
        "tile in text. --at and --offset go from a coordinate to its bytes and back. TENSOR may be "
        "the end of a name, a name of the source, or a pattern, which lists what it matches.",
        "tilepack dump packed/ --tree\n"
        "tilepack dump packed/ '*.down_proj*'\n"
        "tilepack dump packed/ layers.0.mlp.down_proj\n"
        "tilepack dump packed/ model.layers.0.mlp.down_proj\n"
        "tilepack dump packed/ model.layers.0.mlp.down_proj --at 17,300\n"
        "tilepack dump packed/ model.layers.0.mlp.down_proj --values 0:4,0:8\n",
        {{"PATH", TP_COMPLETE_PATH, NULL}, {"TENSOR", TP_COMPLETE_TENSOR, NULL}}, 1, 2,
        TP_GROUP_START, NULL},
    [TP_CMD_VERIFY] = {
        "verify", "PATH [--against SRC] [options]",
        "prove that a converted checkpoint is whole and right",
        "Checks structure, checksums, descriptors and padding. --against derives every tensor "
        "again from SRC and prints the error of each. Exit status 1 on a difference.",
        "tilepack verify packed/\n"
        "tilepack verify packed/ --against Mixtral-8x7B\n",
        ONE_PATH, TP_GROUP_START, NULL},
    [TP_CMD_UNPACK] = {
        "unpack", "PATH -o DST [options]",
        "convert back to BF16 or F32, or to another layout of the same codes",
        "Names and experts become those of the source. --to keeps the codes, as 'convert' does "
        "without --requantize, and leaves plain weights plain.",
        "tilepack unpack packed/ -o plain/ --dtype bf16\n"
        "tilepack unpack packed/ -o ct/ --to w4a8-ct\n",
        ONE_PATH, false, "-o DST names what to write"},
    [TP_CMD_DIFF] = {
        "diff", "A B [options]",
        "compare two checkpoints tensor by tensor, across formats",
        "Finds missing tensors, and compares dtypes, shapes and bytes. Numeric tensors are decoded "
        "and compared by value. Exit status 1 on a difference.",
        "tilepack diff packed-yesterday/ packed-today/\n"
        "tilepack diff Mixtral-8x7B packed/ --json\n",
        {{"A", TP_COMPLETE_PATH, NULL}, {"B", TP_COMPLETE_PATH, NULL}}, 2, 2,
        TP_GROUP_CHECKPOINTS, NULL},
    [TP_CMD_FORMATS] = {
        "formats", "[NAME] [options]",
        "list the formats, or show one with its layouts",
        "Without NAME, the formats are listed by number format. NAME is a format, which is shown "
        "with its inputs, settings, outputs, layouts, constraints and engines; or the beginning of "
        "names, which are listed. --gpu and --engine list what loads there, the smallest first.",
        "tilepack formats\n"
        "tilepack formats fp8\n"
        "tilepack formats w4a8-cutlass\n"
        "tilepack formats --gpu h100 --engine vllm\n",
        {{"NAME", TP_COMPLETE_ANY_FORMAT, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_COMPARE] = {
        "compare", "SRC [--to FORMAT ...] [options]",
        "measure the size and error of each format on a checkpoint",
        "By default all formats that lose something are compared. Errors are measured on a sample "
        "of each weight, so that the time does not grow with the model. The worst weights come "
        "first.",
        "tilepack compare Mixtral-8x7B\n"
        "tilepack compare SRC --to fp8-ct --to w4a16-ct --full\n"
        "tilepack compare SRC --html formats.html\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_START, NULL},
    [TP_CMD_SUGGEST] = {
        "suggest", "SRC [--gpu NAME] [--gpus N] [options]",
        "say which format to make for a GPU, why, and by which commands",
        "Prints at most three formats, the preferred one first. The engine reads each of them "
        "there, and the weights leave room in the GPUs' memory. Errors are measured on a sample of "
        "the weights.",
        "tilepack suggest Qwen3-30B-A3B --gpu h100\n"
        "tilepack suggest SRC --gpu a100 --gpus 8 --json\n"
        "tilepack suggest SRC --gpu \"NVIDIA H100 80GB HBM3\"\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_START, NULL},
    [TP_CMD_RECIPE] = {
        "recipe", "SRC --bits N --formats A,B[,...] -o FILE.json [options]",
        "choose a format for each layer within a budget of bits",
        "Writes a recipe for 'convert --recipe'. The expected error of the outputs is least, and "
        "the budget is never exceeded. Errors are measured on a sample of each weight. What the "
        "engine loads as one, and all experts of a layer, take one format.",
        "tilepack recipe SRC --bits 5 --formats nvfp4-ct,mxfp8-ct,bf16 -o recipe.json\n"
        "tilepack recipe SRC --bits 4.5 --formats w4a16-ct,w8a16-ct -o recipe.json\n"
        "tilepack convert SRC -o DST --recipe recipe.json --engine vllm\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_CHECKPOINTS,
        "-o FILE.json names the recipe to write"},
    [TP_CMD_MODELS] = {
        "models", "[NAME] [options]",
        "list the model families, or show one",
        "Shows which weights of a model stay as they are, how its experts lie, what engines load "
        "as one matrix and what they call otherwise. A model without a file of its own has the one "
        "named 'default'.",
        "tilepack models\n"
        "tilepack models qwen3_vl_moe\n",
        {{"NAME", TP_COMPLETE_MODEL, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_QUANTIZERS] = {
        "quantizers", "[NAME] [options]",
        "list the quantizers whose checkpoints are read, or show one",
        "Shows by which words of config.json a quantizer is known, as which formats its tensors "
        "are read, which of its lists name what stays plain, and what is refused and why.",
        "tilepack quantizers\n"
        "tilepack quantizers modelopt\n",
        {{"NAME", TP_COMPLETE_NONE, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_ENGINES] = {
        "engines", "[NAME] [options]",
        "list the engines that read checkpoints, or show one",
        "Shows which formats an engine reads on which GPUs, which weights and sizes it takes, "
        "which models it refuses or misreads, and how it serves a checkpoint.",
        "tilepack engines\n"
        "tilepack engines vllm\n",
        {{"NAME", TP_COMPLETE_ENGINE, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_SCHEDULE] = {
        "schedule", "[PATH] [--m M[,M...]] [options]",
        "plan how the engine's kernel will run on these weights",
        "For each weight shape and m it prints what the kernel's own planner chooses: tile, "
        "stages, multicast, shared memory, waves and roofline time. It says what is illegal and "
        "why.",
        "tilepack schedule packed/ --m 1,64,4096 --gpu h100\n"
        "tilepack schedule --shape 7168,2048 --m 4096 --kernel deepgemm --why\n"
        "tilepack schedule --cases plan.csv\n",
        {{"PATH", TP_COMPLETE_PATH, NULL}}, 0, 1, TP_GROUP_KERNELS, NULL},
    [TP_CMD_BENCH] = {
        "bench", "[options]",
        "measure every kernel against the memory ceiling of this machine",
        "Prints GB/s of each kernel row, bytes in and out, beside a plain streaming loop of the "
        "same bytes and threads in the same run.",
        "tilepack bench\n"
        "tilepack bench --format mxfp8-torchao3d --shape 8,7168,5120 --device cuda\n",
        {{NULL, TP_COMPLETE_NONE, NULL}}, 0, 0, TP_GROUP_KERNELS, NULL},
    [TP_CMD_PROVE] = {
        "prove", "PATH [NAME ...] [options]",
        "run the engine's kind of kernel on stored weights, on a GPU",
        "Unit vectors bring back every weight by itself. Random activations must come as near to "
        "fp64 as the kernel's arithmetic allows. Then each schedule is timed. This needs "
        "w4a8-cutlass or FP8 in blocks of 128x128, a Hopper GPU, and the plug-in of 'make prove'. "
        "Exit status 1 on a wrong number.",
        "tilepack prove packed/\n"
        "tilepack prove packed/ layers.0.mlp.experts.w13 --m 16,4096\n"
        "tilepack prove packed/ --tune --write\n",
        {{"PATH", TP_COMPLETE_PATH, NULL}, {"NAME", TP_COMPLETE_NONE, NULL}}, 1, SIZE_MAX,
        TP_GROUP_KERNELS, NULL},
    [TP_CMD_MERGE] = {
        "merge", "DST [options]",
        "finish a conversion done in parts by several machines",
        "Checks that every part of DST is complete, proves its shards by their hashes, then writes "
        "index, config and manifest. The result equals that of one machine byte for byte.",
        "tilepack convert SRC -o DST --to w4a8-cutlass --part 1/4   # and 2/4, 3/4, 4/4\n"
        "tilepack merge DST\n",
        {{"DST", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_CHECKPOINTS, NULL},
    [TP_CMD_DIGEST] = {
        "digest", "PATH [options]",
        "print one SHA-256 of a file or of all files of a directory",
        "The line does not depend on where PATH lies, so it can be signed, kept and compared. For "
        "a directory it is the SHA-256 of what sha256sum prints for its files, in the order of "
        "their names.",
        "tilepack digest packed/ >packed.digest\n"
        "tilepack digest packed/ | cmp - packed.digest\n",
        ONE_PATH, TP_GROUP_CHECKPOINTS, NULL},
    [TP_CMD_HELP] = {
        "help", "[COMMAND]", "show help for a command", "The same as COMMAND --help.", "",
        {{"COMMAND", TP_COMPLETE_COMMAND, NULL}}, 0, 1, TP_GROUP_HELPERS, NULL},
    [TP_CMD_COMPLETIONS] = {
        "completions", "bash|zsh|fish", "print a completion script",
        "Load it from the shell's start-up file, or install it where the shell looks.",
        "eval \"$(tilepack completions bash)\"\n",
        {{"SHELL", TP_COMPLETE_WORDS, "bash|zsh|fish"}}, 1, 1, TP_GROUP_HELPERS, NULL},
    [TP_CMD_MAN_OPTIONS] = {
        "man-options", "COMMAND [own|common]", "print a command's options as mdoc(7)",
        "The man pages hold this text; a test compares. 'own' leaves out what every command "
        "has, 'common' prints just that.", "",
        {{"COMMAND", TP_COMPLETE_COMMAND, NULL}, {"WHICH", TP_COMPLETE_WORDS, "own|common"}},
        1, 2, TP_GROUP_HELPERS, NULL},
};

const struct tp_option tp_option_rows[] = {
    {.heading = "Format and engine",
     .name = "to", .value = "FORMAT", .kind = TP_OPT_STRING, .commands = WRITES,
     .field = FIELD(to), .complete = TP_COMPLETE_FORMAT,
     .help = "format to write; 'tilepack formats' lists them"},
    {.name = "set", .value = "KEY=VALUE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(BENCH), .field = FIELD(set), .complete = TP_COMPLETE_SETTING,
     .check = tp_check_setting,
     .help = "choose a parameter of the format; repeatable",
     .more = "'tilepack formats FORMAT' lists keys, values and defaults."},
    {.name = "recipe", .value = "FILE", .kind = TP_OPT_STRING, .commands = MAKES,
     .field = FIELD(recipe), .complete = TP_COMPLETE_PATH,
     .help = "take formats per tensor from a JSON recipe",
     .more = "The rules are tried in order. Each has a pattern of tensor names, and a format or "
             "keep. The first match wins."},
    {.name = "engine", .value = "NAME", .kind = TP_OPT_STRING, .commands = MAKES,
     .field = FIELD(engine), .complete = TP_COMPLETE_ENGINE,
     .help = "fail before the work unless this engine reads the result",
     .more = "Else the exit status is 4. 'tilepack engines' lists the engines."},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = MAKES,
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "fail before the work unless the result is served on this GPU",
     .more = "NAME is a product such as a100, l40s, 4090, h100 or b200, or a compute capability "
             "such as sm90. Without --engine any engine that serves it will do."},
    {.name = "gpus", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = MAKES, .field = FIELD(gpus),
     .min = 1, .max = 1024,
     .help = "fail unless it is served on N GPUs, by tensor parallelism",
     .more = "Each GPU has a part of the rows or columns. The kernels must take this part, and "
             "each GPU must have the same number of attention heads. Else nothing is written (exit "
             "status 4)."},
    {.name = "expert-parallel", .kind = TP_OPT_FLAG, .commands = MAKES,
     .field = FIELD(expert_parallel),
     .help = "with --gpus: give each GPU whole experts instead of parts of all"},
    {.name = "format-file", .value = "FILE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(MERGE) | BIT(COMPARE) | BIT(RECIPE) | BIT(FORMATS) | BIT(BENCH) |
                 BIT(VERIFY),
     .field = FIELD(format_file), .complete = TP_COMPLETE_PATH,
     .help = "also know the format that FILE describes; repeatable",
     .more = "Its name must not be one of 'tilepack formats'. 'tilepack formats NAME --json' "
             "prints one to begin with, and formats/README.md defines its keys. At most 1 MiB."},
    {.name = "engine-file", .value = "FILE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(MERGE) | BIT(COMPARE) | BIT(FORMATS) | BIT(ENGINES) | BIT(VERIFY) |
                 BIT(SUGGEST) | BIT(RECIPE),
     .field = FIELD(engine_file), .complete = TP_COMPLETE_PATH,
     .help = "also know the engine that FILE describes; repeatable",
     .more = "Its name must not be one of 'tilepack engines'. Its rules count beside theirs. If it "
             "keeps weights plain, merge and verify --against need the same file. 'tilepack "
             "engines NAME --json' prints one to begin with, and engines/README.md defines its "
             "keys. At most 1 MiB."},

    {.heading = "Which weights",
     .name = "include", .value = "REGEX", .kind = TP_OPT_LIST, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(include), .check = tp_check_pattern,
     .help = "convert only tensors whose name matches; repeatable",
     .more = "REGEX is a regular expression as in Python, found anywhere in the name. 'glob:' and "
             "a glob, such as 'glob:*.mlp.*_proj.weight', match the whole name. A match also "
             "converts weights that are kept by default, such as embeddings, but no biases or "
             "scales."},
    {.name = "exclude", .value = "REGEX", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(COMPARE) | BIT(RECIPE), .field = FIELD(exclude), .check = tp_check_pattern,
     .help = "keep tensors whose name matches as they are; repeatable",
     .more = "It wins over --include."},
    {.name = "merged", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(merged), .initial = "keep", .complete = TP_COMPLETE_WORDS,
     .words = "keep|convert", .help = "sets (q, k, v or gate, up) that the engine cannot merge",
     .more = "vLLM merges q, k and v into one matrix, and gate and up. It can merge them if all "
             "are packed alike, or all plain. With scales of 128x128 blocks, each but the last "
             "must also have rows in multiples of 128. 'keep' leaves other sets plain, so that the "
             "model loads. 'convert' converts them, for other engines."},
    {.name = "plain", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(plain), .initial = "keep", .complete = TP_COMPLETE_WORDS,
     .words = "keep|convert", .help = "weights that the quantizer of the source left plain",
     .more = "'keep' leaves all plain weights of a quantized source as they are, but for those "
             "that --include names. 'convert' takes them as if the source were plain, but for "
             "those in the quantizer's lists."},
    {.name = "strict", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(strict),
     .help = "fail when a weight cannot be converted, instead of keeping it",
     .more = "It also refuses shards that are symbolic links to outside of the directory. Links of "
             "the Hub's cache are allowed."},
    {.name = "no-stack", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(no_stack),
     .help = "leave the experts of a layer apart instead of stacking them"},
    {.name = "stacks", .value = "LAYOUT", .kind = TP_OPT_CHOICE, .commands = MODEL,
     .field = FIELD(stacks), .complete = TP_COMPLETE_WORDS, .words = "enk|ekn",
     .help = "how stacks of experts lie in the source",
     .more = "'enk' is experts, features, inputs; 'ekn' is experts, inputs, features. It is needed "
             "only where sizes, config.json and the model's file do not tell."},
    {.name = "model-file", .value = "FILE", .kind = TP_OPT_STRING, .commands = MODEL,
     .field = FIELD(model_file), .complete = TP_COMPLETE_PATH,
     .help = "read what is known of the model from FILE",
     .more = "FILE takes the place of the one that 'tilepack models' has for the model_type. "
             "models/README.md defines its keys."},
    {.name = "quantizer-file", .value = "FILE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(COMPARE) | BIT(QUANTIZERS) | BIT(VERIFY) | BIT(UNPACK) | BIT(DUMP),
     .field = FIELD(quantizer_file), .complete = TP_COMPLETE_PATH,
     .help = "also know the quantizer that FILE describes; repeatable",
     .more = "Its name must not be one of 'tilepack quantizers'. Its forms are tried beside "
             "theirs. 'tilepack quantizers NAME --json' prints one to begin with, and "
             "quantizers/README.md defines its keys. At most 1 MiB."},

    {.heading = "Quality",
     .name = "bits", .value = "N", .kind = TP_OPT_STRING, .commands = BIT(RECIPE),
     .field = FIELD(bits), .check = tp_check_bits,
     .help = "bits for each weight, at most, scales included: 5, or 4.75",
     .more = "Weights that no format can be made of, such as embeddings, do not count."},
    {.name = "formats", .value = "A,B[,...]", .kind = TP_OPT_STRING, .commands = BIT(RECIPE),
     .field = FIELD(formats), .complete = TP_COMPLETE_FORMAT,
     .help = "formats to choose from; bf16 is the weight as it is",
     .more = "At most 7. A format that the engine does not read for a set is not chosen for it."},
    {.name = "importance", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(RECIPE),
     .field = FIELD(importance), .complete = TP_COMPLETE_PATH,
     .help = "what each weight is multiplied with: samples/moments.py writes it",
     .more = "The same file as for convert. With the gradients of outputs "
             "(samples/gradients.py) the error is about what predictions lose. Without a file all inputs count alike, and "
             "the text says so."},
    {.name = "search", .value = "HOW", .kind = TP_OPT_CHOICE, .commands = MAKES,
     .field = FIELD(search), .complete = TP_COMPLETE_WORDS,
     .words = "none|mse|w4a8", .help = "take the best of several scales for each block",
     .more = "By default plain weights have 'mse' in formats of NVFP4, and 'mse' with --signed in "
             "those of int4 whose readers take negative scales; all else has none. 'mse' "
             "takes the least error of code times scale, 'w4a8' (int4 only) that of what "
             "vLLM's W4A8 kernel computes. 'none' takes the scale that follows from the largest "
             "value, as the original libraries do. The bytes mean what they always do, so that "
             "every reader can use them. FP8 and MXFP8 scales are the best already."},
    {.name = "signed", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(is_signed),
     .help = "with --search: allow negative scales (int4 only)",
     .more = "A little less error again, but not every reader takes negative scales: vLLM's "
             "Marlin kernel with int8 activations does not."},
    {.name = "importance", .value = "WHAT", .kind = TP_OPT_STRING, .commands = MAKES,
     .field = FIELD(importance), .complete = TP_COMPLETE_PATH,
     .help = "with --search: how to weigh errors: magnitude, none, or a file",
     .more = "'magnitude' weighs errors of large values more (the default for int4), 'none' all "
             "alike (the default for NVFP4 and MXFP4). FILE holds for each column the mean square "
             "of what it is multiplied with: a safetensors file with an F32 tensor [K] or [E,K] "
             "under the name of each weight, or an imatrix of llama.cpp."},
    {.name = "requantize", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(requantize),
     .help = "allow lossy conversion of weights that are already quantized",
     .more = "It is not needed where codes and scales can be taken over exactly. If some choice of "
             "the format's parameters does so, that choice is the default for the source. With "
             "--requantize the error is printed, with --verbose for each weight. These conversions "
             "need no --requantize either. FP8, MXFP8 and FP4 become FP8 or MXFP8 if the new "
             "blocks are no coarser; the error of a sample of rows is printed. MXFP4 becomes NVFP4 "
             "without loss, unless its scales lie too far apart. MXFP4 becomes FP8 with powers of "
             "two as scales, or MXFP8, if these can hold all of its values. F32 scales become "
             "16-bit scales if these can hold them. NVFP4 becomes NVFP4 with the other kind of "
             "global scale, a divisor or a multiplier: only that scale is inverted. Where the "
             "numbers decide, the run stops at the first one that does not fit, and writes no "
             "output."},
    {.name = "weights-only", .value = "REGEX", .kind = TP_OPT_LIST, .commands = MAKES,
     .field = FIELD(weights_only), .alone = TP_ALL_WEIGHTS, .check = tp_check_pattern,
     .help = "write no activation scales, or none of weights whose name matches",
     .more = "Without it the activation scales of a calibrated source are carried over, and a "
             "format whose kernel needs them (NVFP4 experts with 4-bit activations) is refused if "
             "the source has none. With it they are neither needed nor written: nvfp4-ct is "
             "NVFP4A16 then, and a loader of kernel-ready experts has to bring the numbers. A "
             "pattern limits this to some weights, such as one with an infinite scale. If such a "
             "weight shares its scale with others, the scale of the others is written."},
    {.name = "nonfinite", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = MAKES,
     .field = FIELD(nonfinite), .initial = "refuse", .complete = TP_COMPLETE_WORDS,
     .words = "refuse|keep", .help = "NaN and infinite weights: an error, or kept",
     .more = "'refuse' ends the run and names tensor and count. 'keep' encodes them as the format "
             "says."},

    {.heading = "Output",
     .name = "output", .letter = 'o', .value = "DST", .kind = TP_OPT_STRING,
     .commands = WRITES, .field = FIELD(output), .complete = TP_COMPLETE_PATH,
     .help = "write to DST, a directory or a .safetensors file",
     .more = "It appears under this name only when it is complete. Until then a directory is named "
             "DST.partial, and a file has another name beside it."},
    {.name = "dry-run", .letter = 'n', .kind = TP_OPT_FLAG, .commands = MAKES,
     .field = FIELD(dry_run), .help = "print the plan and write nothing"},
    {.name = "if-exists", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = WRITES | BIT(MERGE),
     .field = FIELD(if_exists), .complete = TP_COMPLETE_WORDS, .words = "skip|fail|replace",
     .help = "what to do if DST exists",
     .more = "By default a directory of the same source and options is done, and anything else is "
             "an error (exit status 7). 'skip' leaves whatever is there. 'fail' is an error even "
             "where it is the same. Neither reads the source."},
    {.name = "force", .letter = 'f', .kind = TP_OPT_FLAG,
     .commands = WRITES | BIT(MERGE), .field = FIELD(force),
     .help = "replace what is at DST; the same as --if-exists replace",
     .more = "What was there becomes DST.old. It is removed if all of it is as tilepack wrote it. "
             "Else it is kept, and a line says so."},
    {.name = "shard-size", .value = "SIZE", .kind = TP_OPT_SIZE, .commands = WRITES,
     .field = FIELD(shard_size), .initial = "5GB", .min = 1,
     .help = "largest size of an output shard",
     .more = "A tensor that is larger gets a shard of its own. A single file is not divided. SIZE "
             "is written like 5GB or 5G (powers of 1000), 512MiB or 512Mi (powers of 1024)."},
    {.name = "zstd", .value = "LEVEL", .kind = TP_OPT_UNSIGNED, .commands = MAKES,
     .field = FIELD(zstd), .alone = "1", .min = 1, .max = 22,
     .help = "write seekable .safetensors.zst files",
     .more = "'zstd -d' restores the plain files. Levels above 1 gain next to nothing on "
             "weights."},
    {.name = "digest", .value = "WHICH", .kind = TP_OPT_CHOICE, .commands = MAKES,
     .field = FIELD(digest), .initial = "none", .complete = TP_COMPLETE_WORDS,
     .words = "none|sha256", .help = "list the SHA-256 of every file in the manifest",
     .more = "Each output is read once more when it is complete. 'verify' compares the hashes, and "
             "'merge' keeps the option. Against attackers, sign what 'tilepack digest' prints."},
    {.name = "copy", .value = "GLOB", .kind = TP_OPT_LIST, .commands = WRITES | BIT(MERGE),
     .field = FIELD(copy),
     .help = "also copy these files, which hold weights; repeatable",
     .more = "What a model needs beside its weights is copied without it. Weights in other formats "
             "and of other models, such as 'spk_dict.pt', 'adapter_*' or 'vision-lora/', are left "
             "out and named. GLOB is a name in the checkpoint's directory: * matches / too, and a "
             "folder stands for all that is in it."},
    {.name = "follow-links", .kind = TP_OPT_FLAG, .commands = WRITES | BIT(MERGE),
     .field = FIELD(follow_links),
     .help = "copy files that are links to outside the directory",
     .more = "Without it such files (tokenizer, ...) are refused, since a checkpoint from "
             "elsewhere could name any file of yours. Links of the Hub's cache (../../blobs/HASH) "
             "are followed in any case."},
    {.name = "part", .value = "I/P", .kind = TP_OPT_PART, .commands = MAKES,
     .field = FIELD(part), .help = "do share I of P (1/4 ... 4/4); 'merge' finishes",
     .more = "'auto' takes both numbers from a Slurm array job; 'auto/P' takes I from a "
             "Slurm array or a Kubernetes Indexed Job."},

    /* other commands: what is written */
    {.name = "to", .value = "FORMAT", .kind = TP_OPT_LIST, .commands = BIT(COMPARE),
     .field = FIELD(compared), .complete = TP_COMPLETE_FORMAT,
     .help = "a format to compare; repeatable (default: all that are written)"},
    {.name = "search", .value = "HOW", .kind = TP_OPT_CHOICE, .commands = BIT(BENCH),
     .field = FIELD(search), .complete = TP_COMPLETE_WORDS,
     .words = "none|mse|w4a8", .help = "measure conversions that search, beside those that do not",
     .more = "Only formats that have this search are measured, with the importance that convert "
             "takes when none is named."},
    {.name = "importance", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(VERIFY),
     .field = FIELD(importance), .complete = TP_COMPLETE_PATH,
     .help = "with --against: the file of importance it was converted with"},
    {.name = "importance", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(MERGE),
     .field = FIELD(importance), .complete = TP_COMPLETE_PATH,
     .help = "the file of importance that the parts were converted with"},
    {.name = "strict", .kind = TP_OPT_FLAG, .commands = BIT(VERIFY), .field = FIELD(strict),
     .help = "also fail on added files, a changed README.md, or nothing to prove",
     .more = "Without it they are named, as a user may add notes to a checkpoint. There is nothing "
             "to prove in a checkpoint that tilepack did not write. Added weights that engines "
             "would load, in safetensors files and their archives, and added indexes are a "
             "difference in any case."},
    {.name = "dtype", .value = "TYPE", .kind = TP_OPT_CHOICE, .commands = BIT(UNPACK),
     .field = FIELD(dtype), .complete = TP_COMPLETE_WORDS, .words = "bf16|f32",
     .help = "element type of the plain weights (default: as in the source)"},
    {.name = "tp", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = BIT(SCHEDULE),
     .field = FIELD(tp), .initial = "1", .min = 1, .max = 1024,
     .help = "plan for the weights of one of N tensor-parallel ranks"},
    {.name = "source", .value = "SRC", .kind = TP_OPT_STRING, .commands = BIT(MERGE),
     .field = FIELD(source), .complete = TP_COMPLETE_PATH,
     .help = "the source, if it has moved since the parts read it",
     .more = "The small files are read from it, and it is proven not to have changed. A copy must "
             "keep the times of its files."},
    {.name = "discard", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(discard),
     .hidden = true, .help = "do all the work and throw the bytes away"},

    /* looking in */
    {.name = "at", .value = "[E,]N,K", .kind = TP_OPT_AT, .commands = BIT(DUMP),
     .field = FIELD(at), .help = "show file, offset, code, scale and value of one element"},
    {.name = "offset", .value = "BYTE", .kind = TP_OPT_NUMBER, .commands = BIT(DUMP),
     .field = FIELD(offset), .help = "show which elements this byte of the tensor's data holds",
     .more = "BYTE counts from the beginning of the tensor's data, decimal or 0x hexadecimal."},
    {.name = "values", .value = "N0:N1,K0:K1", .kind = TP_OPT_VALUES, .commands = BIT(DUMP),
     .field = FIELD(values), .help = "print the decoded values of a rectangle",
     .more = "The ends are not included. A number that is left out is the tensor's edge."},
    {.name = "expert", .value = "E", .kind = TP_OPT_NUMBER, .commands = BIT(DUMP),
     .field = FIELD(expert), .help = "the expert that --values shows (default: 0)"},
    {.name = "fold", .kind = TP_OPT_FLAG, .commands = BIT(DUMP), .field = FIELD(fold),
     .help = "one line for the same tensor of all layers and experts",
     .more = "Numbers between the dots of a name become asterisks. Tensors of other shapes, dtypes "
             "or formats have lines of their own."},
    {.name = "tree", .kind = TP_OPT_FLAG, .commands = BIT(DUMP), .field = FIELD(tree),
     .help = "the same as a tree of names"},
    {.name = "svg", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(DUMP),
     .field = FIELD(svg), .complete = TP_COMPLETE_PATH,
     .help = "draw the layout of a packed weight into a file named *.svg",
     .more = "It shows memory in the order of its bytes, coloured by the rows and columns of W, "
             "with the scales beside the codes. A file of that name is replaced. Only those who "
             "can read the checkpoint can read the file."},
    {.name = "html", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(DUMP),
     .field = FIELD(html), .complete = TP_COMPLETE_PATH,
     .help = "draw it as a page, a file named *.html, that explains each cell",
     .more = "The page says (n,k), byte and value, and marks the scales of a code and the codes of "
             "a scale. It needs no other file."},
    {.name = "against", .value = "SRC", .kind = TP_OPT_STRING, .commands = BIT(VERIFY),
     .field = FIELD(against), .complete = TP_COMPLETE_PATH,
     .help = "derive every tensor again from the source and compare"},

    {.name = "output", .letter = 'o', .value = "FILE", .kind = TP_OPT_STRING,
     .commands = BIT(RECIPE), .field = FIELD(output), .complete = TP_COMPLETE_PATH,
     .help = "write the recipe to FILE, whose name ends in .json",
     .more = "A file of that name is replaced. Only those who can read the source can read the "
             "file."},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(RECIPE),
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "choose what is served on this GPU (default: on any)"},

    /* formats */
    {.name = "engine", .value = "NAME", .kind = TP_OPT_STRING,
     .commands = BIT(SUGGEST) | BIT(RECIPE), .field = FIELD(engine), .complete = TP_COMPLETE_ENGINE,
     .help = "engine that serves it (default: vllm)"},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(SUGGEST),
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "GPU that it is served on: h100, or what nvidia-smi prints",
     .more = "The default is the GPU of this machine. a100 is the A100 of 80 GB, a100-40gb that of "
             "40 GB."},
    {.name = "gpus", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = BIT(SUGGEST),
     .field = FIELD(gpus), .min = 1, .max = 1024,
     .help = "number of these GPUs (default: 1)"},
    {.name = "no-sample", .kind = TP_OPT_FLAG, .commands = BIT(SUGGEST), .field = FIELD(no_sample),
     .help = "measure no errors: read headers only"},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(FORMATS),
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "list what loads on this GPU, the smallest first",
     .more = "NAME is a product such as a100, l40s, 4090, h100 or b200, or a compute capability "
             "such as sm90."},
    {.name = "engine", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(FORMATS),
     .field = FIELD(engine), .complete = TP_COMPLETE_ENGINE,
     .help = "list what this engine reads, the smallest first",
     .more = "'tilepack engines' lists them."},
    {.name = "all", .kind = TP_OPT_FLAG, .commands = BIT(FORMATS), .field = FIELD(all),
     .help = "list every format with its engines, even if nothing reads or writes it"},

    /* compare */
    {.name = "full", .kind = TP_OPT_FLAG, .commands = BIT(COMPARE), .field = FIELD(full),
     .help = "measure all values instead of a sample",
     .more = "All the work of each conversion is done, and its bytes are thrown away."},
    {.name = "html", .value = "FILE", .kind = TP_OPT_STRING,
     .commands = BIT(COMPARE) | BIT(RECIPE),
     .field = FIELD(html), .complete = TP_COMPLETE_PATH,
     .help = "also write a page, a file named *.html, that needs nothing else",
     .more = "A file of that name is replaced. Only those who can read the source can read the "
             "file."},

    /* schedule, bench */
    {.name = "kernel", .value = "NAME", .kind = TP_OPT_CHOICE, .commands = BIT(SCHEDULE),
     .field = FIELD(kernel), .complete = TP_COMPLETE_WORDS,
     .words = "deepgemm|deepgemm-2025|w4a8-cutlass", .help = "kernel whose planner decides",
     .more = "deepgemm is DeepGEMM of June 2026, deepgemm-2025 that of May 2025, w4a8-cutlass "
             "vLLM's W4A8 kernels. The default is the kernel that takes the weights, and deepgemm "
             "for plain weights."},
    {.name = "m", .value = "M[,M...]", .kind = TP_OPT_STRING, .commands = BIT(SCHEDULE),
     .field = FIELD(m), .help = "numbers of activation rows, tokens (default: 1,64,4096)",
     .more = "By default the rows of experts are padded to a multiple of 128, as engines do for "
             "DeepGEMM's contiguous kernels."},
    {.name = "m", .value = "M[,M...]", .kind = TP_OPT_STRING, .commands = BIT(PROVE),
     .field = FIELD(m), .help = "rows of activations, for each expert (default: 1,16,256,4096)"},
    {.name = "against", .value = "OTHER", .kind = TP_OPT_STRING, .commands = BIT(PROVE),
     .field = FIELD(against), .complete = TP_COMPLETE_PATH,
     .help = "compare with the numbers of this checkpoint",
     .more = "OTHER holds the weights under the same names, in any format that gives the same "
             "numbers: packed by another run, or decoded by unpack --dtype f32. Checksums are not "
             "compared then. A code or a scale that differs is named by its coordinate."},
    {.name = "tune", .kind = TP_OPT_FLAG, .commands = BIT(PROVE), .field = FIELD(tune),
     .help = "prove and time every schedule that the plug-in has",
     .more = "A server needs this table, as text or JSON, to choose the schedule by shape."},
    {.name = "write", .kind = TP_OPT_FLAG, .commands = BIT(PROVE), .field = FIELD(write),
     .help = "keep the best schedules in the manifest, tilepack.json",
     .more = "It needs --tune. It replaces the member \"schedules\", which holds the device and "
             "the plug-in, and for each shape and number of rows the best and the predicted "
             "schedule with their times."},
    {.name = "shape", .value = "[E,]N,K", .kind = TP_OPT_LIST, .commands = BIT(SCHEDULE),
     .field = FIELD(shape), .help = "a weight shape, without a checkpoint; repeatable"},
    {.name = "shape", .value = "E,N,K", .kind = TP_OPT_LIST, .commands = BIT(BENCH),
     .field = FIELD(shape), .help = "shape of the weight to measure with; repeatable",
     .more = "N,K means 1,N,K. The default is 1,4096,4096 on the CPU and 8,7168,7168 on a GPU."},
    {.name = "format", .value = "FORMAT", .kind = TP_OPT_LIST, .commands = BIT(BENCH),
     .field = FIELD(format), .complete = TP_COMPLETE_FORMAT,
     .help = "measure the kernels of this format; repeatable"},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(SCHEDULE),
     .field = FIELD(gpu), .complete = TP_COMPLETE_GPU,
     .help = "GPU to plan for: its SM count and bandwidth",
     .more = "The default is h100, or b200 for fp8-deepgemm-sm100."},
    {.name = "sms", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = BIT(SCHEDULE),
     .field = FIELD(sms), .min = 1, .max = 4096, .help = "number of SMs to plan for"},
    {.name = "groups", .value = "KIND", .kind = TP_OPT_CHOICE, .commands = BIT(SCHEDULE),
     .field = FIELD(groups), .complete = TP_COMPLETE_WORDS, .words = "contiguous|masked",
     .help = "plan a grouped kernel"},
    {.name = "num-groups", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = BIT(SCHEDULE),
     .field = FIELD(num_groups), .min = 1, .max = 65536, .help = "number of groups (experts)"},
    {.name = "why", .kind = TP_OPT_FLAG, .commands = BIT(SCHEDULE), .field = FIELD(why),
     .help = "list the runners-up and what decided"},
    {.name = "cases", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(SCHEDULE),
     .field = FIELD(cases), .complete = TP_COMPLETE_PATH,
     .help = "read cases from a CSV file and write it with all output columns"},
    {.name = "device", .value = "WHICH", .kind = TP_OPT_STRING, .commands = BIT(VERIFY),
     .field = FIELD(device), .initial = "auto", .complete = TP_COMPLETE_WORDS,
     .words = "auto|cpu|cuda|cuda:all", .check = tp_check_device,
     .help = "device for --against: auto, cpu, cuda, cuda:all or cuda:I[,I...]",
     .more = "The default is $TILEPACK_DEVICE, else auto. "
             "'auto' takes the faster one for the job; --verbose says which and why. "
             "The report is the same on any device; only the speed differs."},
    {.name = "device", .value = "WHICH", .kind = TP_OPT_STRING, .commands = BIT(BENCH),
     .field = FIELD(device), .initial = "auto", .complete = TP_COMPLETE_WORDS,
     .words = "auto|cpu|cuda", .check = tp_check_device,
     .help = "what to measure: cpu, cuda or cuda:I; auto: a GPU if there is one"},
    {.name = "device", .value = "WHICH", .kind = TP_OPT_STRING, .commands = BIT(PROVE),
     .field = FIELD(device), .initial = "auto", .complete = TP_COMPLETE_WORDS,
     .words = "auto|cuda", .check = tp_check_device,
     .help = "the GPU to run on: cuda:I is number I; auto and cuda: the first one"},

    {.heading = "Machine and messages",
     .name = "jobs", .letter = 'j', .value = "N", .kind = TP_OPT_UNSIGNED,
     .commands = WRITES | BIT(VERIFY) | BIT(DIFF) | BIT(BENCH) | BIT(MERGE) |
                 BIT(DIGEST) | BIT(COMPARE) | BIT(SUGGEST) | BIT(RECIPE) | BIT(PROVE),
     .field = FIELD(jobs), .min = 1, .max = 1024,
     .help = "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
     .more = "Results are the same for any number; only the speed differs."},
    {.name = "device", .value = "WHICH", .kind = TP_OPT_STRING,
     .commands = MAKES, .field = FIELD(device), .initial = "auto",
     .complete = TP_COMPLETE_WORDS, .words = "auto|cpu|cuda|cuda:all", .check = tp_check_device,
     .help = "device to work on: auto, cpu, cuda, cuda:all or cuda:I[,I...]",
     .more = "The default is $TILEPACK_DEVICE, else auto. "
             "'auto' takes the faster one for the job; --verbose says which and why. "
             "Results are the same on any device; only the speed differs."},
    {.name = "max-memory", .value = "SIZE", .kind = TP_OPT_SIZE,
     .commands = MAKES | BIT(UNPACK) | BIT(MERGE),
     .field = FIELD(max_memory), .min = 32 << 20,
     .help = "most host memory to use in all, 32MiB or more",
     .more = "The default is 2GiB, or half of the memory of the machine or of its cgroup if that "
             "is less. By default the weights in work take 512MiB of it, or more if one of them "
             "needs more. Headers, names and the plan count, too. What does not fit is refused "
             "before anything is written (exit status 6)."},
    {.name = "gpu-memory", .value = "SIZE", .kind = TP_OPT_SIZE, .commands = MAKES,
     .field = FIELD(gpu_memory), .min = 1, .help = "most memory to use on each GPU"},
    {.name = "progress", .value = "HOW", .kind = TP_OPT_CHOICE,
     .commands = WRITES | BIT(VERIFY) | BIT(DIFF), .field = FIELD(progress),
     .initial = "auto", .complete = TP_COMPLETE_WORDS, .words = "auto|bar|plain|none",
     .help = "how to show progress; auto: bar on a terminal",
     .more = "'bar' redraws one line. 'plain' writes a line to standard error every ten seconds, "
             "and so does 'auto' where there is no terminal."},
    {.name = "progress-fd", .value = "FD", .kind = TP_OPT_UNSIGNED,
     .commands = BIT(CONVERT) | BIT(VERIFY) | BIT(UNPACK) | BIT(DIFF),
     .field = FIELD(progress_fd), .min = 3, .max = 1 << 20, .check = tp_check_descriptor,
     .help = "write progress as lines of JSON to this open descriptor",
     .more = "It is for programs that run this one, and replaces the progress line. Each line is "
             "an object: command, done and total (bytes; total is 0 while it is not known), and "
             "item, the tensor in work. There are at most ten lines a second, and one at the end. "
             "Lines for which a slow reader leaves no room are dropped; the last one waits a "
             "second for it."},
    {.name = "json", .kind = TP_OPT_FLAG, .commands = SHOWS, .field = FIELD(json),
     .help = "print one JSON object instead of text"},
    {.name = "quiet", .letter = 'q', .kind = TP_OPT_FLAG, .commands = SHOWS,
     .field = FIELD(quiet), .help = "print no progress and no warnings"},
    {.name = "verbose", .letter = 'v', .kind = TP_OPT_FLAG, .commands = SHOWS,
     .field = FIELD(verbose), .help = "say what is done and why"},
    {.name = "color", .value = "WHEN", .kind = TP_OPT_CHOICE, .commands = SHOWS,
     .field = FIELD(color), .initial = "auto", .complete = TP_COMPLETE_WORDS,
     .words = "auto|always|never", .help = "colour the output; auto: on a terminal",
     .more = "A non-empty NO_COLOR in the environment turns auto into never."},
    {.name = "help", .letter = 'h', .kind = TP_OPT_FLAG, .commands = ALL, .field = FIELD(help),
     .help = "show this help"},
};

const size_t tp_option_count = sizeof tp_option_rows / sizeof tp_option_rows[0];
