"""Patterns against Python's own `re`: what is accepted means the same, from the start of a name
(`re.match`) and anywhere in it (`re.search`); what Python refuses is refused; and what is refused
besides is refused for a reason listed here. Of patterns_lists.json, which has lists and patterns as
people write them, none is refused, and each is compared on 2,000 names.

patterns_pairs.py DRIVER [COUNT [SEED]]: DRIVER is the unit program of patterns (test_pattern.c).
"""
import fnmatch
import json
import os
import random
import re
import subprocess
import sys
import warnings

# Refusals of what some Python takes.
REASONS = (
    "Python reads this escape otherwise",          # \B, \v, \u0069: PCRE2 has others
    "the borders of a word are",                   # \<
    "the text of a group is not asked for again",  # \1, and \101
    "this kind of group is not read here",         # (?a), (?x), (?P=n), (?(1)a|b)
    "a repeat is written",                         # {,2}
    "a repeat of no times",                        # {0}
    "Python reads a class of POSIX otherwise",     # [[:alpha:]], for re.match only
    "POSIX collating elements are",                # [.a.]
    "POSIX named classes are",                     # [:alpha:]
    "it is longer than 4096 bytes",
    "parentheses are too deeply nested",
    "number too big in {} quantifier",
    "regular expression is too large",
    "lookbehind assertion is",
)
# What PCRE2 takes and Python does not, in the words of Python's message.
ACCEPTED = (
    "look-behind requires fixed-width",            # (?<=a|bc)
    "flag turned on and off",                      # (?i-i:a)
    "multiple repeat",                             # a*+, before Python 3.11
    "unknown extension ?>",                        # (?>a), before Python 3.11
)

REALISTIC = [
    r".*lm_head", r"lm_head", r".*", r"", r"model\.layers\.(0|1)\..*",
    r"model\.layers\.\d+\.mlp\.gate$", r"^(?!.*experts).*", r"(?!.*\.(q|k|v)_proj$).*",
    r".*self_attn.*", r".*mlp\.(?:up|down)_proj$", r"model.layers.[0-9]*.self_attn.o_proj",
    r".*\.mlp\.experts\.\d+\.(gate|up|down)_proj",
    r"visual\..*|.*vision_tower.*|.*multi_modal_projector.*", r"(?i).*LM_HEAD", r".*embed_tokens$",
    r"model\.layers\.(?:[0-9]|1[0-5])\.", r".*shared_expert(s)?\..*", r".*[qkv]_proj",
    r".*norm[0-9]?$", r".*\.layers\.\d{2,}\..*", r".*\.layers\.(?!0\.)\d+\..*",
    r"(?P<part>model|visual)\..*head.*",
    r"^model\.(?:language_model\.)?layers\.\d+\.(?:self_attn|mlp)\.", r".*(?<!shared_)experts.*",
    r"(?:.*\.)?(?:w1|w2|w3)$", r"model\.layers\.\w+\.mlp\.\w+_proj\Z",
    r"[^.]+\.layers\.[^.]+\.mlp", r".*gate$|.*router.*", r"\Alm_head\Z",
    r"model\.layers\.(1|2){1,2}\.", r".*\blm_head\b.*", r".*mtp.*|.*nextn.*",
    r"model\.layers\.{,2}", r"re:.*", r"*.lm_head", r"model.layers.*.mlp", r"(?<=model)lm_head",
    r"model(?=\.layers)", r"[[]model", r"[]a-z_.0-9]*$", r"(?s).*", r"(?m)^lm",
]
NAMES = [
    "lm_head", "model.lm_head", "LM_HEAD", "model.embed_tokens", "model.layers.0.mlp.gate",
    "model.layers.1.self_attn.q_proj", "model.layers.10.self_attn.o_proj", "w2",
    "model.layers.12.mlp.experts.7.down_proj", "model.layers.3.mlp.shared_experts.up_proj",
    "visual.blocks.0.attn.qkv", "model.language_model.layers.2.mlp.up_proj", "model", "",
]
# Where engines differ: each construct with each character, and each place with each line. Known
# differences (formats/README.md, section 11) are left out: "\x1c" to "\x1f" and "\u180e" as spaces,
# the dotted and the dotless i without regard to case, combining marks and connectors as letters.
CLASSES = [flags + made for flags in ("", "(?i)", "(?s)", "(?im)") for made in (
    r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", ".", r"\b", "i", "K", "s", "[a-z]", "[^a-z]", "[^I]",
    "[@-Z]", r"[^\W_]", r"[\S]", r"[^\D]", r"[\s\S]", "[^k]", "[_-a]")]
CHARACTERS = [
    "a", "Z", "_", "0", "²", "٣", "Ⅷ", "一", "i", "I", "s", "ſ", "k", "K", "\u212a", "é",
    "\n", "\r", "\v", "\x1b", "\x85", "\xa0", "\u2028", "\u3000", "-", "@", "`", "\U0001f600",
]
PLACED = [
    "a$", r"a\Z", r"a\b", "(?m)a$", "(?m)a\n^", "(?m)a\n^$", "^a", "(?m)^b", r"(?m)\n^b", r"\ba",
    r"a\b.", r"\Aa\Z", "(?m:a$)\n", "a.", "(?s)a.", "a.?$", "a|b$", "(?:a|b)$", "", "$", "^$",
    "a{,1}b", "a{1,}?b", "a{b", "a{,b", "a{}", "(?<=a)b", "a(?<=a)b", "a(?=b)", "a(?!b)",
    r"a(?<!\n)b", "a(?#x){2}", ".*b", ".*?b", "^.*b", "(?s).*b", "(?m)^.*b", ".*$", ".*^b", r".*\n",
    ".*a$|b", "b|.*a", "^.*b|.*a", r".*\Ab", ".*(?m:^)b", ".*(?<=a)b", r".*(?<=\n)b", ".*", ".*?",
    "(?:^x|^y){0}b", ".*(?:(?=a)|(?=a)){0}", "(?:a|b){,0}\nb", ".*(?:(?m:^)a|(?m:^)a){0,0}?b",
    ".*(?=a).*a", ".*?(?=a)[ab]*?a", "(?:x|(?=b)).*b", ".*(?=a)(?=ab).*a", "(?:(?=a))*a$",
    "(?=lm)\\w*l", "(?=a)\\w?a", "(?=(?:a)).{0,3}a", "(?>a|ab)b", "a?+b", "(?:a|ab)++b", "a{1,2}+b",
    ".**", ".*?*b", ".*{2}b", ".*{b", ".*+b", "(.*b)", "(?:.*b|a)", ".*(?#x)b", ".*(?!b)$", "a.*b",
]
LINES = [
    "", "a", "b", "a\n", "a\nb", "ab", "\nb", "a-", "aé", "a{b", "a{,b", "a{}", "aa", "a\n\n",
    "\n", "a\nab", "\n\nb", "x{b", "xb",
]
LETTERS = [
    "a", "b", "i", "k", "s", "I", "S", "_", ".", "0", "7", "-", "\n", "é", "ſ", "\u212a", "٣",
    "\u00a0", "]", "^", "{",
]
ATOMS = [
    "a", "b", "i", "s", "K", "_", "0", r"\.", ".", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S",
    "é", r"\x61", r"\-", r"\n", r"\t", r"\07", "]", "}", "{", "{1", "-", "ſ",
    "[ab]", "[^a]", "[a-k]", "[^a-z0-9]", r"[\w.-]", r"[\W_]", r"[\Da]", r"[^\s\d]", "[]a]",
    "[^]a]", "[[a]", r"[\]a]", r"[\b-a]", "[.-]", "[a-]", "[é-ü]", "[--/]",
    r"[\x41-\x5a]",
]
PLACES = [
    "^", "$", r"\A", r"\Z", r"\b",
]
GROUPS = [
    "(", "(?:", "(?:", "(?=", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?s:", "(?m:", "(?-i:", "(?>",
    "(?P<g#>",
]
FLAGS = ["", "", "", "(?i)", "(?s)", "(?m)", "(?im)"]
REPEATS = [
    "*", "+", "?", "*?", "+?", "??", "*+", "?+", "{2}", "{1,}", "{0,2}", "{1,3}?", "{2}+", "{2,1}",
]
ODD = [
    r"\B", r"\1", "(?P<n>a)(?P=n)", "(?a)a", "{0}", "a**", "(?x)a", r"\N{DIGIT ONE}", r"\z", r"\h",
    "{,2}", "{,}", "{ 2}", "[_[:alpha:]]", r"\u0069", r"\101", r"\v", r"\x{61}", "(?i-i:a)",
    "(?-:a)",
    r"\R", r"\K", r"\Q.\E", "(?i)", "(?#c)", "(?#", "()", "(?:)", "(?!)", "(?=)", "(", ")", "[",
    r"\\", "(?<n>a)", "(?|a)", "(?R)", "(*FAIL)", r"\400", r"\8", r"\p{L}", r"\e", r"\cA",
    r"\ud800", r"\x6", r"[z-a]", r"[\w-a]", r"(?L)a", r"(?au)a", "(?i-i:a)", "(?P<n>a)(?P<n>b)",
    "(?(1)a|b)", "|",
]


def sequence(rng, depth):
    return "".join(item(rng, depth) for _ in range(rng.randrange(4)))


def item(rng, depth):
    kind = rng.random()
    if depth and kind < 0.22:
        opened = rng.choice(GROUPS).replace("#", str(rng.randrange(100)))
        made = opened + "|".join(sequence(rng, depth - 1) for _ in range(rng.randrange(1, 4))) + ")"
    elif kind < 0.30:
        return rng.choice(PLACES)
    elif kind < 0.32:
        return rng.choice(ODD)
    else:
        made = rng.choice(ATOMS)
    return made + (rng.choice(REPEATS) if rng.random() < 0.25 else "")


def mutate(rng, text):
    at = rng.randrange(len(text) + 1)
    if rng.random() < 0.5:
        return text[:at] + text[at + 1:]
    return text[:at] + rng.choice("()[]{}|*+?^$.\\-,:!<>=aZ0_#") + text[at:]


def random_pairs(rng, count):
    """Half of them of invented patterns and short names, half of realistic ones, changed."""
    for i in range(count):
        if i % 2:
            name = "".join(rng.choice(LETTERS) for _ in range(rng.randrange(7)))
            yield rng.choice(FLAGS) + sequence(rng, 3), name
        else:
            yield mutate(rng, rng.choice(REALISTIC)), rng.choice(NAMES)


# Modules and what they hold, of layers {l} and experts {e}.
STEMS = [
    "model.layers.{l}.self_attn.{q,k,v,o,q_a,q_b,kv_b}_proj", "model.layers.{l}.input_layernorm",
    "model.layers.{l}.self_attn.{kv_a_proj_with_mqa,indexer.wk,q_norm,sinks}",
    "model.layers.{l}.mlp.{gate,up,down,gate_up}_proj",
    "model.layers.{l}.mlp.{gate,router,shared_expert_gate}",
    "model.layers.{l}.mlp.experts.{e}.{gate,up,down}_proj",
    "model.layers.{l}.mlp.experts.{gate_up,down}_proj",
    "model.layers.{l}.mlp.shared_experts.{gate,up,down}_proj",
    "model.layers.{l}.linear_attn.{in_proj_a,conv1d}", "layers.{l}.ffn.experts.{e}.w3",
    "model.layers.{l}.block_sparse_moe.gate", "model.layers.{l}.block_sparse_moe.experts.{e}.w2",
    "model.language_model.layers.{l}.{self_attn.q_proj,mlp.down_proj,feed_forward.router}",
    "language_model.model.layers.{l}.feed_forward.shared_expert.up_proj",
    "backbone.layers.{l}.mixer.{in_proj,conv1d,A_log}", "bert.encoder.layer.{l}.attention.self.query",
    "model.visual.blocks.{l}.{attn.qkv,mlp.gate_proj}", "visual.merger.mlp.{l}",
    "vision_tower.encoder.layers.{l}.{self_attn.out_proj,fc1}", "audio_tower.layers.{l}.fc1",
    "encoder.block.{l}.layer.0.SelfAttention.{q,o}", "mtp.layers.{l}.eh_proj",
    "encoder.block.{l}.layer.1.DenseReluDense.wo", "multi_modal_projector.linear_{l}",
    "backbone.layers.{l}.mixer.experts.{e}.up_proj", "{cls,pooler,talker,shared,LM_HEAD}", "model",
    "thinker.visual.deepstack_merger_list.{l}.proj", "{model.,,language_model.}lm_head",
    "model.{embed_tokens,norm,visual.patch_embed.proj}",
]


def spread(stem):
    """Words in braces, one after the other; numbers of layers and experts."""
    opened = re.search(r"\{([^{}]*)\}", stem)
    if not opened:
        return [stem]
    numbers = {"l": "0 1 2 3 5 8 9 10 11 19 20 27 31 45 60 61".split(), "e": ["0", "7", "255"]}
    words = numbers.get(opened[1], opened[1].split(","))
    return [name for word in words
            for name in spread(stem[:opened.start()] + word + stem[opened.end():])]


def names_of_models():
    modules = [name for stem in STEMS for name in spread(stem)]
    ends = (".weight", ".bias", ".weight_scale")
    return (modules + [module + end for end in ends for module in modules])[:2000]


def ask(driver, kind, pairs):
    """The answer to each pair of a pattern and a name; a pattern is sent once for a row of them."""
    sent, last = [], None
    for pattern, name in pairs:
        if pattern != last:
            sent.append("P" + pattern)
        last = pattern
        sent.append("N" + name)
    done = subprocess.run([driver, kind], input=("\0".join(sent) + "\0").encode(),
                          stdout=subprocess.PIPE, check=True)
    answers = done.stdout.decode().split("\n")[:-1]
    if len(answers) != len(pairs):
        raise SystemExit(f"{len(answers)} answers to {len(pairs)} pairs")
    return answers


def python(kind, pattern, name):
    """"1", "0", or the message where it is no pattern."""
    try:
        return "1" if getattr(re, kind)(pattern, name) else "0"
    except (re.error, OverflowError, ValueError) as wrong:
        return str(wrong)


def is_right(got, want):
    if want in ("0", "1"):
        return got == want or got.startswith(REASONS)
    return got not in ("0", "1") or any(words in want for words in ACCEPTED)


def compare_pairs(driver, kind, pairs):
    """Counts of passed and failed; a test of refusals alone, or of names that never match, would
    prove nothing."""
    if kind == "search": # of options, which have the classes of POSIX
        pairs = [pair for pair in pairs if "[:" not in pair[0]]
    wants = [python(kind, pattern, name) for pattern, name in pairs]
    answers = ask(driver, kind, pairs)
    wrong = [(pair, got, want) for pair, got, want in zip(pairs, answers, wants)
             if not is_right(got, want)]
    for (pattern, name), got, want in wrong:
        print(f"FAIL {kind} {pattern!r} and {name!r}: {got}; Python: {want}")
    same = [got for got, want in zip(answers, wants) if got == want]
    if len(same) <= len(pairs) // 2 or same.count("1") <= len(same) // 5:
        print(f"FAIL {kind}: {len(same)} of {len(pairs)} are compared, {same.count('1')} match")
        wrong.append(())
    return len(pairs) + 1 - len(wrong), len(wrong)


def written():
    """The lists and patterns of people: for the driver how each is matched and its patterns, and
    the same for Python."""
    path = os.path.join(os.path.dirname(__file__), "patterns_lists.json")
    with open(path, encoding="utf-8") as file:
        people = json.load(file)
    for entries in people["match"]:
        bare = [re.sub(r"^(re|-):", "", entry) for entry in entries]
        yield "match", bare, "match", bare
    for pattern in people["search"]:
        yield "search", [pattern], "search", [pattern]
    for glob in people["glob"]:
        yield "search", ["glob:" + glob], "match", [fnmatch.translate(glob)]


def compare_written(driver):
    names = names_of_models()
    if len(set(names)) != 2000:
        raise SystemExit(f"{len(set(names))} names, not 2000")
    passed = failed = 0
    for kind, patterns, python_kind, meant in written():
        answers = ask(driver, kind, [(pattern, name) for pattern in patterns for name in names])
        wants = [python(python_kind, pattern, name) for pattern in meant for name in names]
        passed += answers == wants
        failed += answers != wants
        if answers != wants:
            wrong = next(i for i, got in enumerate(answers) if got != wants[i])
            print(f"FAIL {kind} {patterns!r} and {names[wrong % 2000]!r}: {answers[wrong]}; "
                  f"Python: {wants[wrong]}")
    if passed + failed < 200:
        print(f"FAIL there are {passed + failed} lists, not 200")
        failed += 1
    return passed, failed


def main():
    driver = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    warnings.simplefilter("ignore")
    pairs = [(pattern, name) for pattern in REALISTIC for name in NAMES]
    pairs += [(made, c) for made in CLASSES for c in CHARACTERS]
    pairs += [(made, line) for made in PLACED for line in LINES]
    pairs += random_pairs(rng, count)
    counts = [compare_pairs(driver, kind, pairs) for kind in ("match", "search")]
    counts.append(compare_written(driver))
    passed, failed = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
