/* The two tables: commands and options. Data only; options.c reads argv with
 * them, help.c prints them, completions.c answers shells with them.
 * Invariant: a name, and a letter, mean one thing within a command (tested). */
#include "cli/option_table.h"


#define BIT(c) (1u << TP_CMD_##c)
#define MAKES (BIT(CONVERT) | BIT(PLAN))
#define MODEL (MAKES | BIT(COMPARE) | BIT(SCHEDULE)) /* commands that take facts of the model */
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
        "SRC is a .safetensors file or a Hugging Face directory; DST becomes the same kind. "
        "An interrupted run goes on by itself when it is started again with the same "
        "arguments.",
        "tilepack convert Mixtral-8x7B -o Mixtral-w4a8 --to w4a8-cutlass\n"
        "tilepack convert model.safetensors -o packed.safetensors --to mxfp8-blocked\n"
        "tilepack convert SRC -o DST --to fp8-deepseek --set scale=ue8m0\n"
        "tilepack convert SRC -o DST --recipe mixed.json --dry-run\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_START,
        "-o DST names what to write; --dry-run shows the plan without it"},
    [TP_CMD_PLAN] = {
        "plan", "SRC --to FORMAT [options]",
        "print what convert would write, without writing",
        "The same as convert --dry-run: sources, outputs, sizes, and every tensor that is "
        "kept with the reason. Weights that are alike are one line, with --verbose one each.",
        "tilepack plan Mixtral-8x7B --to w4a8-cutlass\n"
        "tilepack plan SRC --to mxfp8-blocked --json | jq .\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_CHECKPOINTS, NULL},
    [TP_CMD_DUMP] = {
        "dump", "PATH [TENSOR] [options]",
        "look inside a checkpoint: tensors, layouts, values",
        "Without TENSOR, the table of tensors. With it, its descriptor and its tile drawn in "
        "text; --at and --offset go from a coordinate to its bytes and back. TENSOR may be the "
        "end of a name, a name of the source, or a pattern that lists what it matches.",
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
        "Checks structure, checksums, descriptors and padding; with --against, derives every "
        "tensor again from SRC and prints the error of each. Exit status 1 on a difference.",
        "tilepack verify packed/\n"
        "tilepack verify packed/ --against Mixtral-8x7B\n",
        ONE_PATH, TP_GROUP_START, NULL},
    [TP_CMD_UNPACK] = {
        "unpack", "PATH -o DST [options]",
        "convert back to BF16 or F32, or to another layout of the same codes",
        "Names and experts become those of the source. --to plans as 'convert' does without "
        "--requantize, and never converts what is plain: codes are taken over.",
        "tilepack unpack packed/ -o plain/ --dtype bf16\n"
        "tilepack unpack packed/ -o ct/ --to w4a8-ct\n",
        ONE_PATH, false, "-o DST names what to write"},
    [TP_CMD_DIFF] = {
        "diff", "A B [options]",
        "compare two checkpoints tensor by tensor, across formats",
        "Missing tensors, dtypes, shapes and bytes; numeric tensors are decoded and compared "
        "by value. Exit status 1 on a difference.",
        "tilepack diff packed-yesterday/ packed-today/\n"
        "tilepack diff Mixtral-8x7B packed/ --json\n",
        {{"A", TP_COMPLETE_PATH, NULL}, {"B", TP_COMPLETE_PATH, NULL}}, 2, 2,
        TP_GROUP_CHECKPOINTS, NULL},
    [TP_CMD_FORMATS] = {
        "formats", "[NAME] [options]",
        "list the formats, or show one with its layouts",
        "Without NAME, by the format of the numbers. Of one format everything that this build "
        "knows: inputs, settings, outputs, layouts, constraints and who reads it. NAME is a format "
        "or how names begin; --gpu and --engine list what is read there, the smallest first.",
        "tilepack formats\n"
        "tilepack formats fp8\n"
        "tilepack formats w4a8-cutlass\n"
        "tilepack formats --gpu h100 --engine vllm\n",
        {{"NAME", TP_COMPLETE_ANY_FORMAT, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_COMPARE] = {
        "compare", "SRC [--to FORMAT ...] [options]",
        "measure the size and error of each format on a checkpoint",
        "Without --to, all formats that lose something. Errors are measured on a sample of each "
        "weight, so that the time does not grow with the model; the worst weights come first.",
        "tilepack compare Mixtral-8x7B\n"
        "tilepack compare SRC --to fp8-ct --to w4a16-ct --full\n"
        "tilepack compare SRC --html formats.html\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_START, NULL},
    [TP_CMD_SUGGEST] = {
        "suggest", "SRC [--gpu NAME] [--gpus N] [options]",
        "say which format to make for a GPU, why, and by which commands",
        "At most three formats that the engine reads there and whose weights leave room in the "
        "GPUs' memory, the preferred one first. Errors are measured on a sample of the weights.",
        "tilepack suggest Qwen3-30B-A3B --gpu h100\n"
        "tilepack suggest SRC --gpu a100 --gpus 8 --json\n"
        "tilepack suggest SRC --gpu \"NVIDIA H100 80GB HBM3\"\n",
        {{"SRC", TP_COMPLETE_PATH, NULL}}, 1, 1, TP_GROUP_START, NULL},
    [TP_CMD_MODELS] = {
        "models", "[NAME] [options]",
        "list the model families, or show one",
        "What of a model stays as it is, how its experts lie, what engines load as one matrix "
        "and what they call otherwise. A model without a file of its own has the one named "
        "'default'.",
        "tilepack models\n"
        "tilepack models qwen3_vl_moe\n",
        {{"NAME", TP_COMPLETE_MODEL, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_QUANTIZERS] = {
        "quantizers", "[NAME] [options]",
        "list the quantizers whose checkpoints are read, or show one",
        "By which words of config.json one is known, as which formats its tensors are read, which "
        "of its lists name what stays plain, and what is refused and why.",
        "tilepack quantizers\n"
        "tilepack quantizers modelopt\n",
        {{"NAME", TP_COMPLETE_NONE, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_ENGINES] = {
        "engines", "[NAME] [options]",
        "list the engines that read checkpoints, or show one",
        "Which formats an engine reads on which GPUs, of which kinds of weights, which sizes it "
        "asks for, of which models it is known that it refuses or misreads them, and how a "
        "checkpoint is served.",
        "tilepack engines\n"
        "tilepack engines vllm\n",
        {{"NAME", TP_COMPLETE_ENGINE, NULL}}, 0, 1, TP_GROUP_KNOWN, NULL},
    [TP_CMD_SCHEDULE] = {
        "schedule", "[PATH] --m M[,M...] [options]",
        "plan how the engine's kernel will run on these weights",
        "Per weight shape and m: tile, stages, multicast, shared memory, waves and roofline "
        "time, as the kernel's own planner chooses them, and what is illegal and why.",
        "tilepack schedule packed/ --m 1,64,4096 --gpu h100\n"
        "tilepack schedule --shape 7168,2048 --m 4096 --kernel deepgemm --why\n"
        "tilepack schedule --cases plan.csv\n",
        {{"PATH", TP_COMPLETE_PATH, NULL}}, 0, 1, TP_GROUP_KERNELS, NULL},
    [TP_CMD_BENCH] = {
        "bench", "[options]",
        "measure every kernel against the memory ceiling of this machine",
        "GB/s of each kernel row, bytes in and out, beside a plain streaming loop of the same "
        "bytes and the same threads in the same run.",
        "tilepack bench\n"
        "tilepack bench --format mxfp8-torchao3d --shape 8,7168,5120 --device cuda\n",
        {{NULL, TP_COMPLETE_NONE, NULL}}, 0, 0, TP_GROUP_KERNELS, NULL},
    [TP_CMD_PROVE] = {
        "prove", "PATH [NAME ...] [options]",
        "run the engine's kind of kernel on stored weights, on a GPU",
        "Unit vectors bring every weight back by itself, random activations must be as near to "
        "fp64 as the kernel's arithmetic allows; then the time of each schedule. For w4a8-cutlass "
        "and FP8 in blocks of 128x128, on Hopper, with the plug-in of 'make prove'. Exit status 1 "
        "on a wrong number.",
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
        "The line is the same wherever PATH lies, so that it can be signed, kept and compared. "
        "For a directory it is the SHA-256 of what sha256sum prints for its files, in the order "
        "of their names.",
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
     .more = "Ordered rules of a tensor-name pattern and a format, or keep; the first match "
             "wins."},
    {.name = "engine", .value = "NAME", .kind = TP_OPT_STRING, .commands = MAKES,
     .field = FIELD(engine), .complete = TP_COMPLETE_ENGINE,
     .help = "fail before the work unless this engine reads the result",
     .more = "The exit status is 4 then. 'tilepack engines' lists the engines."},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = MAKES,
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "fail before the work unless the result is served on this GPU",
     .more = "A product such as a100, l40s, 4090, h100 or b200, or a compute capability such as "
             "sm90. Without --engine any server will do."},
    {.name = "gpus", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = MAKES, .field = FIELD(gpus),
     .min = 1, .max = 1024,
     .help = "fail unless it is served on N GPUs, by tensor parallelism",
     .more = "Each has its part of the rows or columns, which has to suit the kernels, too, and as "
             "many heads of attention as the others; else nothing is written (exit status 4)."},
    {.name = "expert-parallel", .kind = TP_OPT_FLAG, .commands = MAKES,
     .field = FIELD(expert_parallel),
     .help = "with --gpus: experts are divided by their number, and each is whole"},
    {.name = "format-file", .value = "FILE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(MERGE) | BIT(COMPARE) | BIT(FORMATS) | BIT(BENCH) | BIT(VERIFY),
     .field = FIELD(format_file), .complete = TP_COMPLETE_PATH,
     .help = "know the format that FILE describes, too; repeatable",
     .more = "Its name is known to this command beside those of 'tilepack formats', of which it is "
             "none. Its keys are those of formats/README.md; 'tilepack formats NAME --json' prints "
             "one to begin with. At most 1 MiB."},
    {.name = "engine-file", .value = "FILE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(MERGE) | BIT(COMPARE) | BIT(FORMATS) | BIT(ENGINES) | BIT(VERIFY) |
                 BIT(SUGGEST),
     .field = FIELD(engine_file), .complete = TP_COMPLETE_PATH,
     .help = "know the engine that FILE describes, too; repeatable",
     .more = "Its rules count beside those of 'tilepack engines', of which it has no name; what "
             "one of them keeps plain is kept, so that merge and verify --against need the same "
             "files. Its keys are those of engines/README.md; 'tilepack engines NAME --json' "
             "prints one to begin with. At most 1 MiB."},

    {.heading = "Which weights",
     .name = "include", .value = "REGEX", .kind = TP_OPT_LIST, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(include), .check = tp_check_pattern,
     .help = "convert only tensors whose name matches; repeatable",
     .more = "A regular expression as in Python, found anywhere in the name, or 'glob:' and a "
             "glob for the whole name, such as 'glob:*.mlp.*_proj.weight'. It also takes in "
             "weights that are kept by default, such as embeddings; biases and scales are none."},
    {.name = "exclude", .value = "REGEX", .kind = TP_OPT_LIST, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(exclude), .check = tp_check_pattern,
     .help = "keep tensors whose name matches as they are; repeatable",
     .more = "It wins over --include."},
    {.name = "merged", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(merged), .initial = "keep", .complete = TP_COMPLETE_WORDS,
     .words = "keep|convert", .help = "q, k, v or gate, up that the engine cannot merge",
     .more = "vLLM puts q, k and v together, and gate and up. It takes them packed alike or all "
             "plain, and scales of 128x128 blocks only where each but the last has rows in "
             "multiples of 128. 'keep' leaves other sets as they are, so that the model loads; "
             "'convert' converts them, for other readers."},
    {.name = "plain", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = MAKES | BIT(COMPARE),
     .field = FIELD(plain), .initial = "keep", .complete = TP_COMPLETE_WORDS,
     .words = "keep|convert", .help = "weights that the quantizer of the source left plain",
     .more = "'keep' leaves all plain weights of a quantized source as they are but those "
             "that --include names; 'convert' takes those that are in none of its lists as if the "
             "source were plain."},
    {.name = "strict", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(strict),
     .help = "fail when a weight cannot be converted, instead of keeping it",
     .more = "Also refuses shards that are symbolic links to outside the directory, but for "
             "those of the Hub's cache."},
    {.name = "no-stack", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(no_stack),
     .help = "leave the experts of a layer apart instead of stacking them"},
    {.name = "stacks", .value = "LAYOUT", .kind = TP_OPT_CHOICE, .commands = MODEL,
     .field = FIELD(stacks), .complete = TP_COMPLETE_WORDS, .words = "enk|ekn",
     .help = "how stacks of experts lie in the source",
     .more = "'enk': each expert as its features by its inputs, 'ekn': the other way round. It is "
             "needed only where sizes, config.json and the model's file do not tell."},
    {.name = "model-file", .value = "FILE", .kind = TP_OPT_STRING, .commands = MODEL,
     .field = FIELD(model_file), .complete = TP_COMPLETE_PATH,
     .help = "know the model as FILE describes it",
     .more = "Instead of the file that 'tilepack models' has for the model_type. Its keys are "
             "those of models/README.md."},
    {.name = "quantizer-file", .value = "FILE", .kind = TP_OPT_LIST,
     .commands = MAKES | BIT(COMPARE) | BIT(QUANTIZERS) | BIT(VERIFY) | BIT(UNPACK) | BIT(DUMP),
     .field = FIELD(quantizer_file), .complete = TP_COMPLETE_PATH,
     .help = "know the quantizer that FILE describes, too; repeatable",
     .more = "Its forms are tried beside those of 'tilepack quantizers', of which it has no name. "
             "Its keys are those of quantizers/README.md; 'tilepack quantizers NAME --json' prints "
             "one to begin with. At most 1 MiB."},

    {.heading = "Quality",
     .name = "search", .value = "HOW", .kind = TP_OPT_CHOICE, .commands = MAKES,
     .field = FIELD(search), .initial = "none", .complete = TP_COMPLETE_WORDS,
     .words = "none|mse|w4a8", .help = "try several scales for each block, take the best",
     .more = "'mse' takes the least error of code times scale, 'w4a8' (int4 only) that of what "
             "vLLM's W4A8 kernel computes. The bytes mean what they always do, so that every "
             "reader can use them. FP8 and MXFP8 scales are the best already."},
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
     .more = "Where some choice of the format's parameters takes codes and scales over exactly, it "
             "is the default for that source, and nothing is quantized again. Else the error that "
             "it costs is printed, with --verbose for each weight. FP8 and MXFP8 "
             "are made of FP8, MXFP8 and FP4 without it where their blocks are no coarser, and "
             "the error, from a sample of rows, is printed as well. MXFP4 becomes NVFP4 without "
             "it, and without loss, unless its scales lie too far apart; and FP8 with powers of "
             "two as scales, or MXFP8, where all of its values are numbers of that. Scales of "
             "F32 are taken over into 16 bits where they are numbers of those. Where the numbers "
             "decide, the run stops at the first that is none, and writes no output. NVFP4 "
             "becomes NVFP4 with the other kind of global scale, a divisor or a multiplier, "
             "without it: that scale is inverted, and all else stays."},
    {.name = "weights-only", .value = "REGEX", .kind = TP_OPT_LIST, .commands = MAKES,
     .field = FIELD(weights_only), .alone = TP_ALL_WEIGHTS, .check = tp_check_pattern,
     .help = "write no activation scales, or none of weights whose name matches",
     .more = "Those of a source that was calibrated are carried over without it, and formats "
             "for kernels that need them (NVFP4 experts with 4-bit activations) are refused where "
             "there are none. With it they are neither needed nor written: nvfp4-ct is NVFP4A16 "
             "then, and a loader of kernel-ready experts has to bring the numbers. With a pattern "
             "this is so of some weights: one scale that is infinite need not cost the others. "
             "Where several weights have one scale, it is that of the others."},
    {.name = "nonfinite", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = MAKES,
     .field = FIELD(nonfinite), .initial = "refuse", .complete = TP_COMPLETE_WORDS,
     .words = "refuse|keep", .help = "NaN and infinite weights: an error, or kept",
     .more = "'refuse' ends the run and names tensor and count; 'keep' encodes them as the "
             "format says."},

    {.heading = "Output",
     .name = "output", .letter = 'o', .value = "DST", .kind = TP_OPT_STRING,
     .commands = WRITES, .field = FIELD(output), .complete = TP_COMPLETE_PATH,
     .help = "write to DST, a directory or a .safetensors file",
     .more = "It appears under this name only when it is complete: a directory is written as "
             "DST.partial and renamed, a file beside its name and renamed."},
    {.name = "dry-run", .letter = 'n', .kind = TP_OPT_FLAG, .commands = MAKES,
     .field = FIELD(dry_run), .help = "print the plan and write nothing"},
    {.name = "if-exists", .value = "WHAT", .kind = TP_OPT_CHOICE, .commands = WRITES | BIT(MERGE),
     .field = FIELD(if_exists), .complete = TP_COMPLETE_WORDS, .words = "skip|fail|replace",
     .help = "what to do if DST exists",
     .more = "Without it a directory of the same source and options is done, and anything else is "
             "an error (exit status 7). 'skip' leaves what is there, whatever is in it; 'fail' is "
             "an error also where it is the same. Neither reads the source."},
    {.name = "force", .letter = 'f', .kind = TP_OPT_FLAG,
     .commands = WRITES | BIT(MERGE), .field = FIELD(force),
     .help = "replace what is at DST; the same as --if-exists replace",
     .more = "What was there becomes DST.old. It is removed where all of it is as tilepack has "
             "written it; else it is kept, and a line says so."},
    {.name = "shard-size", .value = "SIZE", .kind = TP_OPT_SIZE, .commands = WRITES,
     .field = FIELD(shard_size), .initial = "5GB", .min = 1,
     .help = "largest size of an output shard",
     .more = "A tensor that is larger gets a shard of its own. A single file is not divided. Sizes "
             "are written like 5GB or 5G (powers of 1000), 512MiB or 512Mi (powers of 1024)."},
    {.name = "zstd", .value = "LEVEL", .kind = TP_OPT_UNSIGNED, .commands = MAKES,
     .field = FIELD(zstd), .alone = "1", .min = 1, .max = 22,
     .help = "write seekable .safetensors.zst files",
     .more = "'zstd -d' restores the plain files. Levels above 1 gain next to nothing on "
             "weights."},
    {.name = "digest", .value = "WHICH", .kind = TP_OPT_CHOICE, .commands = MAKES,
     .field = FIELD(digest), .initial = "none", .complete = TP_COMPLETE_WORDS,
     .words = "none|sha256", .help = "list the SHA-256 of every file in the manifest",
     .more = "Each output is read once more when it is complete; 'verify' compares. 'merge' "
             "takes it over. Against attackers, sign what 'tilepack digest' prints."},
    {.name = "copy", .value = "GLOB", .kind = TP_OPT_LIST, .commands = WRITES | BIT(MERGE),
     .field = FIELD(copy),
     .help = "copy these files along, though they are weights; repeatable",
     .more = "What models need beside their weights is copied without it, but for weights in other "
             "formats and those of other models, such as 'spk_dict.pt', 'adapter_*' or "
             "'vision-lora/', which are named as left out. The name is that in the checkpoint's "
             "directory; * matches / too, and a folder stands for all that is in it."},
    {.name = "follow-links", .kind = TP_OPT_FLAG, .commands = WRITES | BIT(MERGE),
     .field = FIELD(follow_links),
     .help = "copy files that are links to outside the directory",
     .more = "Such files (tokenizer, ...) are refused without it: a checkpoint from elsewhere "
             "could name any file of yours. Links of the Hub's cache (../../blobs/HASH) are "
             "followed in any case."},
    {.name = "part", .value = "I/P", .kind = TP_OPT_PART, .commands = MAKES,
     .field = FIELD(part), .help = "do share I of P (1/4 ... 4/4); 'merge' finishes",
     .more = "'auto' takes both numbers from a Slurm array job; 'auto/P' takes I from a "
             "Slurm array or a Kubernetes Indexed Job."},

    /* other commands: what is written */
    {.name = "to", .value = "FORMAT", .kind = TP_OPT_LIST, .commands = BIT(COMPARE),
     .field = FIELD(compared), .complete = TP_COMPLETE_FORMAT,
     .help = "a format to compare; repeatable (default: all that are written)"},
    {.name = "search", .value = "HOW", .kind = TP_OPT_CHOICE, .commands = BIT(BENCH),
     .field = FIELD(search), .initial = "none", .complete = TP_COMPLETE_WORDS,
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
     .help = "added files, a changed README.md and nothing to prove are differences",
     .more = "Without it they are named, as a user may add notes to a checkpoint. Of one that "
             "tilepack did not write nothing is to be proved. Weights that "
             "engines would load with them, in safetensors files and archives of such, and their "
             "indexes, are a difference in any case."},
    {.name = "dtype", .value = "TYPE", .kind = TP_OPT_CHOICE, .commands = BIT(UNPACK),
     .field = FIELD(dtype), .complete = TP_COMPLETE_WORDS, .words = "bf16|f32",
     .help = "element type of the plain weights (default: as in the source)"},
    {.name = "tp", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = BIT(SCHEDULE),
     .field = FIELD(tp), .initial = "1", .min = 1, .max = 1024,
     .help = "weights as one of N tensor-parallel ranks has them"},
    {.name = "source", .value = "SRC", .kind = TP_OPT_STRING, .commands = BIT(MERGE),
     .field = FIELD(source), .complete = TP_COMPLETE_PATH,
     .help = "the source, if it has moved since the parts read it",
     .more = "It is needed for the small files, and to prove that it has not changed; a copy "
             "must keep the times of its files."},
    {.name = "discard", .kind = TP_OPT_FLAG, .commands = MAKES, .field = FIELD(discard),
     .hidden = true, .help = "do all the work and throw the bytes away"},

    /* looking in */
    {.name = "at", .value = "[E,]N,K", .kind = TP_OPT_AT, .commands = BIT(DUMP),
     .field = FIELD(at), .help = "show file, offset, code, scale and value of one element"},
    {.name = "offset", .value = "BYTE", .kind = TP_OPT_NUMBER, .commands = BIT(DUMP),
     .field = FIELD(offset), .help = "show which elements the byte at this offset holds",
     .more = "Counted from the beginning of the tensor's data; decimal or 0x hexadecimal."},
    {.name = "values", .value = "N0:N1,K0:K1", .kind = TP_OPT_VALUES, .commands = BIT(DUMP),
     .field = FIELD(values), .help = "print the decoded values of a rectangle",
     .more = "Ends are not included; a number left out is the tensor's edge."},
    {.name = "expert", .value = "E", .kind = TP_OPT_NUMBER, .commands = BIT(DUMP),
     .field = FIELD(expert), .help = "the expert that --values shows (default: 0)"},
    {.name = "fold", .kind = TP_OPT_FLAG, .commands = BIT(DUMP), .field = FIELD(fold),
     .help = "one line for the same tensor of all layers and experts",
     .more = "Numbers between the dots of a name become asterisks. Shapes, dtypes and formats that "
             "differ have lines of their own."},
    {.name = "tree", .kind = TP_OPT_FLAG, .commands = BIT(DUMP), .field = FIELD(tree),
     .help = "the same as a tree of names"},
    {.name = "svg", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(DUMP),
     .field = FIELD(svg), .complete = TP_COMPLETE_PATH,
     .help = "draw the layout of a packed weight into a file named *.svg",
     .more = "Memory in the order of its bytes, coloured by the rows and columns of W, with the "
             "scales beside the codes. A file of that name is replaced. It is readable by nobody "
             "who cannot read the checkpoint."},
    {.name = "html", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(DUMP),
     .field = FIELD(html), .complete = TP_COMPLETE_PATH,
     .help = "the same as a page, a file named *.html, that explains the cell pointed at",
     .more = "It says (n,k), byte and value, marks the scales of a code and the codes of a scale, "
             "and needs nothing else."},
    {.name = "against", .value = "SRC", .kind = TP_OPT_STRING, .commands = BIT(VERIFY),
     .field = FIELD(against), .complete = TP_COMPLETE_PATH,
     .help = "derive every tensor again from the source and compare"},

    /* formats */
    {.name = "engine", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(SUGGEST),
     .field = FIELD(engine), .complete = TP_COMPLETE_ENGINE,
     .help = "what is to serve it (default: vllm)"},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(SUGGEST),
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "on which GPU: h100, or what nvidia-smi calls it",
     .more = "Without it, the one that is here. a100 is the one of 80 GB, a100-40gb the other."},
    {.name = "gpus", .value = "N", .kind = TP_OPT_UNSIGNED, .commands = BIT(SUGGEST),
     .field = FIELD(gpus), .min = 1, .max = 1024,
     .help = "on how many of them (default: 1)"},
    {.name = "no-sample", .kind = TP_OPT_FLAG, .commands = BIT(SUGGEST), .field = FIELD(no_sample),
     .help = "measure no errors: read headers only"},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(FORMATS),
     .field = FIELD(gpu), .complete = TP_COMPLETE_CHIP,
     .help = "list what is read on this GPU, the smallest first",
     .more = "A product such as a100, l40s, 4090, h100 or b200, or a compute capability such as "
             "sm90."},
    {.name = "engine", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(FORMATS),
     .field = FIELD(engine), .complete = TP_COMPLETE_ENGINE,
     .help = "list what this engine reads, the smallest first",
     .more = "'tilepack engines' lists them."},
    {.name = "all", .kind = TP_OPT_FLAG, .commands = BIT(FORMATS), .field = FIELD(all),
     .help = "list each format with what reads it, also those that nothing reads or writes"},

    /* compare */
    {.name = "full", .kind = TP_OPT_FLAG, .commands = BIT(COMPARE), .field = FIELD(full),
     .help = "measure all values instead of a sample",
     .more = "The whole work of each conversion is done and its bytes thrown away."},
    {.name = "html", .value = "FILE", .kind = TP_OPT_STRING, .commands = BIT(COMPARE),
     .field = FIELD(html), .complete = TP_COMPLETE_PATH,
     .help = "also write a page, a file named *.html, that needs nothing else",
     .more = "A file of that name is replaced. It is readable by nobody who cannot read the "
             "source."},

    /* schedule, bench */
    {.name = "kernel", .value = "NAME", .kind = TP_OPT_CHOICE, .commands = BIT(SCHEDULE),
     .field = FIELD(kernel), .complete = TP_COMPLETE_WORDS,
     .words = "deepgemm|deepgemm-2025|w4a8-cutlass", .help = "whose planner to follow",
     .more = "DeepGEMM of June 2026 or of May 2025, or vLLM's W4A8 kernels. Without it, the one "
             "that takes the weights, and for plain weights deepgemm."},
    {.name = "m", .value = "M[,M...]", .kind = TP_OPT_STRING, .commands = BIT(SCHEDULE),
     .field = FIELD(m), .help = "numbers of activation rows, tokens (default: 1,64,4096)",
     .more = "Without it the rows of experts are as many as engines pad them to for DeepGEMM's "
             "contiguous kernels, a multiple of 128."},
    {.name = "m", .value = "M[,M...]", .kind = TP_OPT_STRING, .commands = BIT(PROVE),
     .field = FIELD(m), .help = "rows of activations, for each expert (default: 1,16,256,4096)"},
    {.name = "against", .value = "OTHER", .kind = TP_OPT_STRING, .commands = BIT(PROVE),
     .field = FIELD(against), .complete = TP_COMPLETE_PATH,
     .help = "the numbers of this checkpoint must come out",
     .more = "It holds the weights under the same names and in any form that gives the same "
             "numbers: packed by another run, or decoded by unpack --dtype f32. Checksums are not "
             "compared then: a nibble or a scale that is not the other's is named by its "
             "coordinate."},
    {.name = "tune", .kind = TP_OPT_FLAG, .commands = BIT(PROVE), .field = FIELD(tune),
     .help = "prove and time every schedule that the plug-in has",
     .more = "The table, as text or JSON, is what a server needs to pass the schedule by shape."},
    {.name = "write", .kind = TP_OPT_FLAG, .commands = BIT(PROVE), .field = FIELD(write),
     .help = "keep the best schedules in the manifest, tilepack.json",
     .more = "With --tune. The member \"schedules\" is replaced: device, plug-in, and for each "
             "shape and number of rows the best and the predicted schedule with their times."},
    {.name = "shape", .value = "[E,]N,K", .kind = TP_OPT_LIST, .commands = BIT(SCHEDULE),
     .field = FIELD(shape), .help = "a weight shape, without a checkpoint; repeatable"},
    {.name = "shape", .value = "E,N,K", .kind = TP_OPT_LIST, .commands = BIT(BENCH),
     .field = FIELD(shape), .help = "shape of the weight to measure with; repeatable",
     .more = "N,K is 1,N,K. Without it, 1,4096,4096 on the CPU and 8,7168,7168 on a GPU."},
    {.name = "format", .value = "FORMAT", .kind = TP_OPT_LIST, .commands = BIT(BENCH),
     .field = FIELD(format), .complete = TP_COMPLETE_FORMAT,
     .help = "measure the kernels of this format; repeatable"},
    {.name = "gpu", .value = "NAME", .kind = TP_OPT_STRING, .commands = BIT(SCHEDULE),
     .field = FIELD(gpu), .complete = TP_COMPLETE_GPU,
     .help = "GPU to plan for: its SM count and bandwidth",
     .more = "Without it, h100, or b200 for fp8-deepgemm-sm100."},
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
     .help = "take cases from a CSV file and write it with all output columns"},
    {.name = "device", .value = "WHICH", .kind = TP_OPT_STRING, .commands = BIT(VERIFY),
     .field = FIELD(device), .initial = "auto", .complete = TP_COMPLETE_WORDS,
     .words = "auto|cpu|cuda|cuda:all", .check = tp_check_device,
     .help = "with --against: where to derive: auto, cpu, cuda, cuda:all or cuda:I[,I...]",
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
                 BIT(DIGEST) | BIT(COMPARE) | BIT(SUGGEST) | BIT(PROVE),
     .field = FIELD(jobs), .min = 1, .max = 1024,
     .help = "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
     .more = "Results are the same for any number; only the speed differs."},
    {.name = "device", .value = "WHICH", .kind = TP_OPT_STRING,
     .commands = MAKES, .field = FIELD(device), .initial = "auto",
     .complete = TP_COMPLETE_WORDS, .words = "auto|cpu|cuda|cuda:all", .check = tp_check_device,
     .help = "where to work: auto, cpu, cuda, cuda:all or cuda:I[,I...]",
     .more = "The default is $TILEPACK_DEVICE, else auto. "
             "'auto' takes the faster one for the job; --verbose says which and why. "
             "Results are the same on any device; only the speed differs."},
    {.name = "max-memory", .value = "SIZE", .kind = TP_OPT_SIZE,
     .commands = MAKES | BIT(UNPACK) | BIT(MERGE),
     .field = FIELD(max_memory), .min = 32 << 20,
     .help = "most host memory to use in all, 32MiB or more",
     .more = "The default is 2GiB, or half of the memory of the machine or of its cgroup where "
             "that is less; of it the weights that are worked on take 512MiB, or more where one of "
             "them needs more. Headers, names and the plan count. What does not fit is refused "
             "before anything is written (exit status 6)."},
    {.name = "gpu-memory", .value = "SIZE", .kind = TP_OPT_SIZE, .commands = MAKES,
     .field = FIELD(gpu_memory), .min = 1, .help = "most memory to use on each GPU"},
    {.name = "progress", .value = "HOW", .kind = TP_OPT_CHOICE,
     .commands = WRITES | BIT(VERIFY) | BIT(DIFF), .field = FIELD(progress),
     .initial = "auto", .complete = TP_COMPLETE_WORDS, .words = "auto|bar|plain|none",
     .help = "how to show progress; auto: bar on a terminal",
     .more = "'bar' redraws one line, 'plain' writes a line each ten seconds to standard error, "
             "which is also what auto does where there is no terminal."},
    {.name = "progress-fd", .value = "FD", .kind = TP_OPT_UNSIGNED,
     .commands = BIT(CONVERT) | BIT(VERIFY) | BIT(UNPACK) | BIT(DIFF),
     .field = FIELD(progress_fd), .min = 3, .max = 1 << 20, .check = tp_check_descriptor,
     .help = "write progress as lines of JSON to this open descriptor",
     .more = "For programs that run this one: in place of the progress line, at most ten times a "
             "second and once at the end, unless its reader is a second behind, an object with the "
             "members command, done and total (bytes; total is 0 while it is not known) and item, "
             "the tensor that is worked on."},
    {.name = "json", .kind = TP_OPT_FLAG, .commands = SHOWS, .field = FIELD(json),
     .help = "print one JSON object instead of text"},
    {.name = "quiet", .letter = 'q', .kind = TP_OPT_FLAG, .commands = SHOWS,
     .field = FIELD(quiet), .help = "no progress, no warnings"},
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
