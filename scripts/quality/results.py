"""Collects the rows of the page and spares what was measured already, in this run or before."""
import hashlib
import json
import os
import re
import time

import numpy as np


def digest(values):
    """The same for the same numbers; -0 counts as 0."""
    total = hashlib.sha256()
    for name in sorted(values):
        total.update(name.encode())
        total.update(np.ascontiguousarray(values[name] + np.float32(0)))
    return total.hexdigest()


def title(row):
    """What --again is matched with."""
    return f"{row['program']} {row['method']} {row['search']}".rstrip()


class Results:
    """Rows of the page. Values that were measured already are not measured again, and
    methods that give the same values of every matrix share a row. say(line) hears of each.

    path: a file that remembers every row, so that a later run measures what is new and what
    the expression `again` finds in its title; None: nothing is remembered."""

    def __init__(self, models, say, path=None, again=None):
        self.models, self.say, self.rows, self.known = models, say, [], {}
        self.path, self.kept, self.spared = path, {}, 0
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.kept = {title(r): r for r in json.load(f)
                             if again is None or not re.search(again, title(r))}

    def add(self, row, values_of):
        """values_of(subject) -> (values, seconds)."""
        old = self.kept.get(title(row))
        if old:
            row |= {key: old[key] for key in ("figures", "seconds", "values", "took")}
            self.spared += old["took"]
            self.known |= zip(old["values"], old["figures"].values())
            self.say(f"{title(row)}: as before")
        else:
            self.measure(row, values_of)
            self.kept[title(row)] = row.copy()
            self.remember()
        row["also"] = []
        twin = next((r for r in self.rows if r["values"] == row["values"]), None)
        if twin:
            twin["also"].append(row)
        else:
            self.rows.append(row)

    def measure(self, row, values_of):
        start = time.monotonic()
        row |= {"figures": {}, "seconds": {}, "values": []}
        for subject in self.models:
            values, row["seconds"][subject.label] = values_of(subject)
            key = digest(values)
            row["values"].append(key)
            if key not in self.known:
                bad = [n for n, v in values.items() if not np.isfinite(v).all()]
                if bad:
                    raise SystemExit(f"quality: {row['method']}: values of {bad[0]} are not "
                                     "finite")
                self.known[key] = subject.measure(values)
            row["figures"][subject.label] = self.known[key]
        row["took"] = time.monotonic() - start
        self.say(f"{row['program']}: {row['method']} {row['search']}: {row['took']:.0f} s")

    def remember(self):
        if self.path:
            with open(self.path + ".new", "w", encoding="utf-8") as f:
                json.dump(list(self.kept.values()), f, indent=1)
            os.replace(self.path + ".new", self.path)
