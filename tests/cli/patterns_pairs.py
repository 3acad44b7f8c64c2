"""Patterns of checkpoints against Python's own `re.match`: whatever is accepted means the same,
what Python refuses is refused, and what is refused besides is refused for a reason listed here.

patterns_pairs.py DRIVER [COUNT [SEED]]: DRIVER is the unit program of patterns, which reads pairs
of a pattern and a name, each ended by a NUL, and answers with a line for each: 1, 0, or why
the pattern is refused.
"""
import random
import re
import subprocess
import sys
import warnings

# Refusals of what some Python takes.
REASONS = (
    "versions of Python differ about",             # \B, possessive repeats, atomic groups
    "the text of a group is not asked for again",  # \1, (?P=n), (?(1)a|b)
    "the verbose form",
    "names of characters",                         # \N{DIGIT ONE}
    "letters beyond ASCII are not read without regard to case",
    "no character has this number",                # surrogates
    "a group's name has to consist of ASCII",
    "a group's name is there twice",               # also where a set or comment holds it
    "there are more than 65535 repeats",
    "there are more than 50 groups",
    "it is longer than 4096 bytes",
    "regular expression is too large",
    "lookbehind assertion is",
    "such flags stand at the start",               # before Python 3.11
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
# Where engines differ: each construct with each character, and each place with each line.
CLASSES = [flags + made for flags in ("", "(?a)", "(?i)", "(?ai)", "(?s)") for made in (
    r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", ".", r"\b", "i", "K", "s", "[a-z]", "[^a-z]", "[^I]",
    "[@-Z]", r"[^\W_]", r"[\S]", r"[^\D]", r"[\s\S]", "[^k]", "[_-a]")]
CHARACTERS = [
    "a", "Z", "_", "0", "²", "٣", "Ⅷ", "一", "i", "I", "ı", "İ", "s", "ſ", "k", "K", "\u212a", "é",
    "\n", "\r", "\v", "\x1b", "\x1c", "\x1f", "\x85", "\xa0", "\u180e", "\u2028", "\u3000",
    "\u0300", "\u203f", "-", "@", "`", "\U0001f600",
]
PLACED = [
    "a$", r"a\Z", r"a\b", "(?m)a$", "(?m)a\n^", "(?m)a\n^$", "^a", "(?m)^b", r"(?m)\n^b", r"\ba",
    r"a\b.", r"\Aa\Z", "(?m:a$)\n", "a.", "(?s)a.", "a.?$", "a|b$", "(?:a|b)$", "", "$", "^$",
    "a{,1}b", "a{1,}?b", "a{b", "a{,b", "a{}", "(?<=a)b", "a(?<=a)b", "a(?=b)", "a(?!b)",
    r"a(?<!\n)b", "a(?#x){2}", ".*b", ".*?b", "^.*b", "(?s).*b", "(?m)^.*b", ".*$", ".*^b", r".*\n",
    ".*a$|b", "b|.*a", "^.*b|.*a", r".*\Ab", ".*(?m:^)b", ".*(?<=a)b", r".*(?<=\n)b", ".*", ".*?",
    "(?:^x|^y){0}b", ".*(?:(?=a)|(?=a)){0}", "(?:a|b){,0}\nb", ".*(?:(?m:^)a|(?m:^)a){0,0}?b",
    ".*(?=a).*a", ".*?(?=a)[ab]*?a", "(?:x|(?=b)).*b", ".*(?=a)(?=ab).*a", "(?:(?=a))*a$",
    ".**", ".*?*b", ".*{2}b", ".*{b", ".*+b", "(.*b)", "(?:.*b|a)", ".*(?#x)b", ".*(?!b)$", "a.*b",
]
LINES = [
    "", "a", "b", "a\n", "a\nb", "ab", "\nb", "a-", "aé", "a{b", "a{,b", "a{}", "aa", "a\n\n",
    "\n", "a\nab", "\n\nb", "x{b", "xb",
]
LETTERS = [
    "a", "b", "i", "k", "s", "I", "S", "_", ".", "0", "7", "-", "\n", "é", "ı", "ſ", "\u212a", "٣",
    "\u00a0", "\x1c", "]", "^", "{",
]
ATOMS = [
    "a", "b", "i", "s", "K", "_", "0", r"\.", ".", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S",
    "é", r"\x61", r"\u0069", r"\-", r"\n", r"\t", r"\07", r"\101", "]", "}", "{", "{1", "-", "ſ",
    "[ab]", "[^a]", "[a-k]", "[^a-z0-9]", r"[\w.-]", r"[\W_]", r"[\Da]", r"[^\s\d]", "[]a]",
    "[^]a]", "[[a]", r"[\]a]", r"[\b-a]", "[.-]", "[a-]", "[é-ſ]", "[_[:alpha:]]", "[--/]",
    r"[\x41-\x5a]",
]
PLACES = [
    "^", "$", r"\A", r"\Z", r"\b",
]
GROUPS = [
    "(", "(?:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?s:", "(?m:", "(?a:", "(?-i:",
    "(?P<g#>",
]
FLAGS = ["", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?im)"]
REPEATS = [
    "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{,2}", "{0,2}", "{1,3}?", "{,}", "{0}",
    "{2,1}",
]
ODD = [
    r"\B", r"\1", "(?P<n>a)(?P=n)", "(?>a)", "a*+", "a**", "(?x)a", r"\N{DIGIT ONE}", r"\z", r"\h",
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


def ask(driver, pairs):
    sent = b"".join(text.encode() + b"\0" for pair in pairs for text in pair)
    done = subprocess.run([driver, "pairs"], input=sent, stdout=subprocess.PIPE, check=True)
    answers = done.stdout.decode().split("\n")[:-1]
    if len(answers) != len(pairs):
        raise SystemExit(f"{len(answers)} answers to {len(pairs)} pairs")
    return answers


def python(pattern, name):
    """"1", "0", or None where it is no pattern."""
    try:
        return "1" if re.match(pattern, name) else "0"
    except (re.error, OverflowError, ValueError):
        return None


def main():
    driver = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    warnings.simplefilter("ignore")
    pairs = [(pattern, name) for pattern in REALISTIC for name in NAMES]
    pairs += [(made, c) for made in CLASSES for c in CHARACTERS]
    pairs += [(made, line) for made in PLACED for line in LINES]
    pairs += random_pairs(rng, count)
    passed = failed = compared = matched = 0
    for (pattern, name), got in zip(pairs, ask(driver, pairs)):
        want = python(pattern, name)
        if got in ("0", "1"):
            good = got == want
            compared += want is not None
            matched += want == "1"
        else:
            good = want is None or got.startswith(REASONS)
        passed += good
        failed += not good
        if not good:
            print(f"FAIL {pattern!r} and {name!r}: {got}; Python: {want or 'refused'}")
    # A test of refusals alone, or of names that never match, would prove nothing.
    many = compared > len(pairs) // 2 and matched > compared // 5
    passed += many
    failed += not many
    if not many:
        print(f"FAIL of {len(pairs)} pairs {compared} are compared, and {matched} match")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
