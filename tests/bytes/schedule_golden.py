"""tilepack schedule, through the command line.

The tables of tests/golden/fp8 hold what DeepGEMM's own planners answered (May 2025:
plan.csv, June 2026: plan_newest.csv); every row must come out byte for byte. The
shapes read from checkpoints are compared with lists written down here.
Last line: `N passed, N failed`.
"""
import csv
import io
import json
import os
import random

import lib_path  # noqa: F401  pylint: disable=unused-import
import stfile
import tool

GOLDEN = os.path.join(tool.REPO, "tests", "golden", "fp8")
INPUTS = {
    "plan.csv": ["m", "n", "k", "num_groups", "num_sms", "is_grouped_contiguous",
                 "is_grouped_masked", "is_fp32_out", "is_wgrad"],
    "plan_newest.csv": ["arch", "gemm_type", "kernel", "m", "n", "k", "num_groups", "num_sms",
                        "cd_dtype", "with_accumulation"],
}
results = {"passed": 0, "failed": 0}


def check(name, good, detail=""):
    results["passed" if good else "failed"] += 1
    if not good:
        print(f"FAIL {name}: {detail}")


def table(name):
    with open(os.path.join(GOLDEN, name), encoding="ascii", newline="") as file:
        text = file.read()
    return text, list(csv.DictReader(io.StringIO(text)))


def planned(work, text, *options):
    path = work.at("cases.csv")
    with open(path, "w", encoding="ascii", newline="") as file:
        file.write(text)
    return tool.run("schedule", "--cases", path, *options, check=False)


def lines_that_differ(a, b):
    a, b = a.split("\n"), b.split("\n")
    different = [pair for pair in zip(a, b) if pair[0] != pair[1]]
    return f"{len(different)} rows, {len(a)} and {len(b)} lines; first {different[:1]}"


def whole_tables(work):
    """Every row, from the full table and from tables with only the inputs."""
    for name, inputs in INPUTS.items():
        text, rows = table(name)
        check(f"{name} has rows", len(rows) > 1500, len(rows))
        done = tool.run("schedule", "--cases", os.path.join(GOLDEN, name), check=False)
        check(f"{name} as it is", done.returncode == 0 and done.stdout == text,
              done.stderr or lines_that_differ(done.stdout, text))
        for turn in range(2):
            columns = list(inputs)
            if turn:
                random.Random(5).shuffle(columns)
            end = "\r\n\r\n" if turn else "\n"
            lines = [",".join(columns)] + [",".join(row[c] for c in columns) for row in rows]
            done = planned(work, end.join(lines) + end * turn)
            check(f"{name}, inputs only, turn {turn}",
                  done.returncode == 0 and done.stdout == text,
                  done.stderr or lines_that_differ(done.stdout, text))


def bad_tables(work):
    """Each is refused with exit status 3 and a message that says where."""
    head = ",".join(INPUTS["plan.csv"]) + "\n"
    newest = ",".join(INPUTS["plan_newest.csv"]) + "\n"
    good = "64,4096,7168,1,132,0,0,0,0\n"
    cases = [
        ("", "has no column 'm'"),
        ("\n\n", "has no column 'm'"),
        ("m,n,k\n1,2,3\n", "has no column 'num_groups'"),
        ("arch,gemm_type\n", "has no column 'kernel'"),
        (head + good + "64,4096,7168,1,132,0,0,0\n", "line 3 has 8 fields, the header has 9"),
        (head + "64,4096,7168,1,132,0,0,0,0,0\n", "line 2 has 10 fields"),
        (head + "0,4096,7168,1,132,0,0,0,0\n", "line 2, column m: '0'"),
        (head + "64,4096,-1,1,132,0,0,0,0\n", "line 2, column k: '-1'"),
        (head + "64,4096,2147483648,1,132,0,0,0,0\n", "line 2, column k: '2147483648'"),
        (head + "64,4096,99999999999999999999,1,132,0,0,0,0\n", "line 2, column k:"),
        (head + "64,4096,,1,132,0,0,0,0\n", "line 2, column k: ''"),
        (head + "64,4096, 7,1,132,0,0,0,0\n", "line 2, column k: ' 7'"),
        (head + "64,4096,7168,1,132,2,0,0,0\n", "column is_grouped_contiguous: '2' is not 0 or 1"),
        (newest + "8,normal,1d2d,1,2,3,1,132,bf16,0\n", "column arch: '8' is not 9 or 10"),
        (newest + "9,dense,1d2d,1,2,3,1,132,bf16,0\n", "column gemm_type: 'dense'"),
        (newest + "9,normal,2d,1,2,3,1,132,bf16,0\n", "column kernel: '2d'"),
        (newest + "9,normal,1d2d,1,2,3,1,132,f16,0\n", "column cd_dtype: 'f16'"),
        (newest + "10,normal,1d2d,1,2,3,1,132,bf16,0\n", "SM100 has 1D1D kernels only"),
        (head + "64," + "9" * 5000 + ",7168,1,132,0,0,0,0\n", "line 2, column n:"),
        ("x," * 5000 + "m\n", "has no column"),
    ]
    for text, message in cases:
        done = planned(work, text)
        check(f"bad table {text[:60]!r}",
              done.returncode == 3 and message in done.stderr and not done.stdout,
              f"exit {done.returncode}: {done.stderr}")
    done = planned(work, head + good, "--kernel", "deepgemm")
    check("kernel and table disagree", done.returncode == 2 and "deepgemm-2025" in done.stderr,
          done.stderr)
    done = planned(work, head + good, "--kernel", "deepgemm-2025")
    check("kernel and table agree", done.returncode == 0, done.stderr)
    done = planned(work, head)
    check("a table without rows", done.returncode == 0 and done.stdout.count("\n") == 1,
          done.stdout)
    done = tool.run("schedule", "--cases", work.at("missing.csv"), check=False)
    check("missing table", done.returncode == 5 and "missing.csv" in done.stderr, done.stderr)


def shapes_like_tables():
    """--shape gives what the tables say, dense and masked, for a sample of rows."""
    _, old = table("plan.csv")
    _, new = table("plan_newest.csv")
    old = [r for r in old if r["status"] == "ok" and r["num_groups"] == "1" and r["k"] != "0"
           and not any(int(r[c]) for c in r if c.startswith("is_") and c != "is_tma_multicast_on_a")]
    masked = [r for r in new if r["gemm_type"] == "m_masked" and r["arch"] == "9"
              and r["status"] == "ok"]
    new = [r for r in new if r["gemm_type"] == "normal" and r["cd_dtype"] == "bf16"
           and r["num_groups"] == "1" and r["status"] == "ok" and r["k"] != "0"
           and (r["arch"], r["kernel"]) in (("9", "1d2d"), ("10", "1d1d"))]
    pick = random.Random(6)
    for row in pick.sample(old, 20):
        plan = one_plan(row, "deepgemm-2025")
        check(f"2025 {row}", plan["sms"] == int(row["num_min_sms"])
              and plan["block_m"] == int(row["block_m"])
              and plan["block_n"] == int(row["block_n"])
              and plan["stages"] == int(row["num_stages"])
              and plan["smem"] == int(row["smem_size"])
              and plan["cluster_m"] * plan["cluster_n"] == int(row["num_tma_multicast"])
              and plan["multicast_on_a"] == bool(int(row["is_tma_multicast_on_a"])), plan)
    for row in pick.sample(new, 20) + pick.sample(masked, 10):
        plan = one_plan(row, "deepgemm")
        check(f"2026 {row}", all(plan[key] == int(row[column]) for key, column in [
            ("sms", "out_num_sms"), ("block_m", "block_m"), ("block_n", "block_n"),
            ("cluster_m", "cluster_m"), ("cluster_n", "cluster_n"), ("swap_ab", "swap_ab"),
            ("stages", "num_stages"), ("smem", "smem_size"), ("swizzle", "swizzle_cd_mode"),
            ("threads", "num_threads")]), plan)


def one_plan(row, kernel):
    gpu = "b200" if row.get("arch") == "10" else "h100"
    shape = f"{row['num_groups']},{row['n']},{row['k']}"
    groups = ["--groups", "masked"] if row.get("gemm_type") == "m_masked" else []
    done = tool.run("schedule", "--shape", shape, "--m", row["m"], "--sms", row["num_sms"],
                    "--gpu", gpu, "--kernel", kernel, "--json", *groups, check=False)
    answer = json.loads(done.stdout)
    assert answer["version"] == 1 and len(answer["schedules"]) == 1
    return answer["schedules"][0]["plan"]


def zeros(*shape):
    size = 2
    for n in shape:
        size *= n
    return stfile.Tensor("BF16", shape, bytes(size))


def moe_checkpoint(path):
    tensors = {"model.embed_tokens.weight": zeros(512, 256), "lm_head.weight": zeros(512, 256)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        tensors[at + "input_layernorm.weight"] = zeros(256)
        for name, n in (("q", 256), ("k", 128), ("v", 128)):
            tensors[at + f"self_attn.{name}_proj.weight"] = zeros(n, 256)
        tensors[at + "self_attn.o_proj.weight"] = zeros(256, 256)
        tensors[at + "mlp.gate.weight"] = zeros(3, 256)
        for expert in range(3):
            mlp = at + f"mlp.experts.{expert}."
            tensors[mlp + "gate_proj.weight"] = zeros(384, 256)
            tensors[mlp + "up_proj.weight"] = zeros(384, 256)
            tensors[mlp + "down_proj.weight"] = zeros(256, 384)
    stfile.save(path, tensors)


def summary(answer):
    return sorted((s["e"], s["n"], s["k"], s["cut"], s["weights"], s["groups"])
                  for s in answer["schedules"])


def checkpoints(work):
    path = work.at("model.safetensors")
    moe_checkpoint(path)
    plain = json.loads(tool.run("schedule", path, "--m", "128", "--json").stdout)
    check("shapes of a mixture of experts", summary(plain) == [
        (1, 128, 256, "none", 4, None), (1, 256, 256, "none", 4, None), (3, 256, 384, "none", 2, "contiguous"),
        (3, 384, 256, "none", 4, "contiguous")], summary(plain))
    default = json.loads(tool.run("schedule", path, "--json").stdout)
    check("rows of experts are padded as engines do, where none are named",
          all(s["legal"] for s in default["schedules"]) and
          {(s["e"], s["m"]) for s in default["schedules"]} ==
          {(1, 1), (1, 64), (1, 4096), (3, 128), (3, 4096)}, summary(default))
    names = sorted(s["example"] for s in plain["schedules"])
    check("an example of each", any(".experts.{e}." in n for n in names)
          and not any("embed" in n or "lm_head" in n or ".gate" == n[-5:] for n in names), names)
    cut = json.loads(tool.run("schedule", path, "--m", "128", "--tp", "2", "--json").stdout)
    check("cut for two ranks", summary(cut) == [
        (1, 64, 256, "n", 4, None), (1, 128, 256, "n", 2, None), (1, 256, 128, "k", 2, None),
        (3, 192, 256, "n", 4, "contiguous"), (3, 256, 192, "k", 2, "contiguous")], summary(cut))
    uneven = json.loads(tool.run("schedule", path, "--m", "128", "--tp", "5", "--json",
                                 check=False).stdout)
    check("slices that are not equal are illegal",
          all(not s["legal"] and any(c["id"] == "tp" and not c["pass"] for c in s["checks"])
              for s in uneven["schedules"]))
    masked = json.loads(tool.run("schedule", path, "--m", "5", "--groups", "masked", "--kernel",
                                 "deepgemm-2025", "--why", "--json").stdout)
    check("masked, with runners-up",
          all(s["groups"] == "masked" and len(s["runners_up"]) == 7 for s in masked["schedules"]))
    text = tool.run("schedule", path, "--m", "1,64", "--kernel", "w4a8-cutlass").stdout
    check("text", "3x384x256" in text and "(check f.8)" in text
          and "K % 256 = 128" in text
          and "3x384x256: model.layers.0.mlp.experts.{e}.gate_proj" in text, text)
    done = tool.run("schedule", path, "--m", "1", "--tp", "5", check=False)
    check("nothing that fits is status 1", done.returncode == 1 and "ILLEGAL" in done.stdout
          and "planned as DeepGEMM's FP8" in done.stderr, f"{done.returncode} {done.stderr}")
    for gpu in ("a100", "l40s", "4090"):
        done = tool.run("schedule", path, "--gpu", gpu, check=False)
        check(gpu, done.returncode == 1 and "nothing fits" in done.stderr, done.stderr)
    for gpu in ("b200", "b300"):
        check(gpu, tool.run("schedule", path, "--gpu", gpu, "--m", "64", "--json").stdout)
    tool.run("convert", path, "-o", work.at("fp4.safetensors"), "--to", "nvfp4-ct", "-q")
    done = tool.run("schedule", work.at("fp4.safetensors"), check=False)
    check("a format without a planner", done.returncode == 4 and "it is stored as nvfp4-ct" in
          done.stderr, f"{done.returncode} {done.stderr}")
    with open(work.at("mixed.json"), "w", encoding="ascii") as file:
        json.dump({"rules": [{"match": "experts", "to": "fp8-deepseek"},
                                           {"match": ".", "to": "nvfp4-ct"}]}, file)
    tool.run("convert", path, "-o", work.at("mixed.safetensors"), "--recipe", work.at("mixed.json"),
             "-q")
    done = tool.run("schedule", work.at("mixed.safetensors"), "--json", check=False)
    check("it is left out beside others, and named",
          done.returncode == 0 and "is stored as nvfp4-ct, for which no kernel is planned" in
          done.stderr and {s["e"] for s in json.loads(done.stdout)["schedules"]} == {3},
          f"{done.returncode} {done.stderr}")
    stfile.save(path, {"model.norm.weight": zeros(256)})
    done = tool.run("schedule", path, "--m", "1", check=False)
    check("nothing to plan", done.returncode == 4 and "model.safetensors" in done.stderr,
          f"{done.returncode} {done.stderr}")


def wrong_commands():
    for words, message in [
            (["--m", "1"], ""),
            (["--shape", "4096,7168", "--m", "0"], "--m '0'"),
            (["--shape", "4096,7168", "--m", "1,,2"], "--m '1,,2'"),
            (["--shape", "4096", "--m", "1"], "--shape '4096'"),
            (["--shape", "0,4096", "--m", "1"], "--shape '0,4096'"),
            (["--shape", "1,2,3,4", "--m", "1"], "--shape '1,2,3,4'"),
            (["--shape", "4096,7168", "--gpu", "h1000"], "unknown GPU 'h1000'"),
            (["--shape", "4096,7168", "--num-groups", "4"], "--groups"),
            (["--shape", "4096,7168", "--groups", "masked", "--kernel", "w4a8-cutlass"],
             "no masked form"),
            (["--cases", "x.csv", "--m", "1"], "--cases"),
    ]:
        done = tool.run("schedule", *words, check=False)
        check(f"refused: {words}", done.returncode == 2 and message in done.stderr
              and "hint:" in done.stderr, f"{done.returncode} {done.stderr}")


def main():
    with tool.Workdir() as work:
        whole_tables(work)
        bad_tables(work)
        shapes_like_tables()
        checkpoints(work)
        wrong_commands()
    print(f"{results['passed']} passed, {results['failed']} failed")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
