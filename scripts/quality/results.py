"""Rows of one model, and what was measured already, in this run or before."""
import hashlib
import json
import os
import re

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
    """The file `path` remembers every row, so that a later run measures what is new and what the
    expression `again` finds in its title. Values that were measured already share their figures.
    say(line) hears of each row; make_subject() makes the model when the first one needs it. Rows of
    another number of windows are forgotten."""

    def __init__(self, path, make_subject, say, again=None, windows=None):
        self.path, self.make_subject, self.say, self.made = path, make_subject, say, None
        self.rows, self.facts = {}, {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                old = json.load(f)
            if old["facts"].get("windows", windows) == windows:
                self.facts = old["facts"]
                self.rows = {title(r): r for r in old["rows"]
                             if again is None or not re.search(again, title(r))}

    @property
    def subject(self):
        if self.made is None:
            self.made = self.make_subject()
        return self.made

    def add(self, row, values_of):
        """values_of(subject) -> (values, seconds)."""
        if title(row) in self.rows:
            return
        values, row["seconds"] = values_of(self.subject)
        bad = [n for n, v in values.items() if not np.isfinite(v).all()]
        if bad:
            raise SystemExit(f"quality: {title(row)}: values of {bad[0]} are not finite")
        row["values"] = digest(values)
        twin = next((r for r in self.rows.values() if r["values"] == row["values"]), None)
        row["figures"] = twin["figures"] if twin else self.subject.measure(values)
        self.rows[title(row)] = row
        self.remember()
        self.say(f"{self.subject.label}: {title(row)}: KL {np.mean(row['figures']['kl']):.4f}, "
                 f"perplexity {row['figures']['perplexity']:.2f}, {row['seconds']:.1f} s")

    def remember(self):
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump({"facts": self.facts, "rows": list(self.rows.values())}, f)
        os.replace(self.path + ".new", self.path)
