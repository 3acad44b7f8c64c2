"""A quantizer of others, in a process of its own: its environment is not that of the rest.

The child (peer_llama.py, peer_torch.py) prints the list of its methods as one line of JSON.
Then it answers each line {"method", "checkpoint", "importance", "out"} with a line: it reads
the matrices that the importance file names from the checkpoint, quantizes them, writes the
values, float32, to the file `out`, and says how many seconds the quantizing took.
A child that cannot do something ends; the parent raises Ended then.
"""
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


# ---- the child --------------------------------------------------------------------------

def serve(methods, load, save, threads=1):
    """methods {name: (program, bits for each weight, function of (matrix, importance) ->
    values)}; load(path) -> {name: tensor}, save({name: tensor}, path). So many matrices are
    quantized at the same time. Ends with stdin."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like a reply

    def say(value):
        print(json.dumps(value), file=reply, flush=True)

    pool = ThreadPoolExecutor(threads)
    say([{"method": name, "program": program, "bits": bits}
         for name, (program, bits, _) in methods.items()])
    for line in sys.stdin:
        task = json.loads(line)
        matrices, importance = load(task["checkpoint"]), load(task["importance"])
        quantize = methods[task["method"]][2]
        start = time.monotonic()
        values = dict(zip(importance, pool.map(
            lambda name: quantize(matrices[name], importance[name]), importance)))
        seconds = time.monotonic() - start
        save(values, task["out"])
        say({"seconds": seconds})


# ---- the parent -------------------------------------------------------------------------

class Ended(Exception):
    """The child ended before it had answered; its stderr says why."""


class Peer:
    def __init__(self, python, script, *args):
        self.child = subprocess.Popen([python, script, *args], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.methods = self.read()

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            raise Ended(f"{os.path.basename(self.child.args[1])} ended with status "
                        f"{self.child.wait()}")
        return json.loads(line)

    def quantize(self, method, checkpoint, importance, out):
        """Seconds; the values are in the file `out` then."""
        print(json.dumps({"method": method, "checkpoint": checkpoint, "importance": importance,
                          "out": out}), file=self.child.stdin, flush=True)
        return self.read()["seconds"]

    def close(self):
        self.child.stdin.close()
        self.child.wait()
