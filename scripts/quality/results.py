"""Collects the rows of the page and spares what was measured already."""
import hashlib
import time

import numpy as np


def digest(values):
    """The same for the same numbers; -0 counts as 0."""
    total = hashlib.sha256()
    for name in sorted(values):
        total.update(name.encode())
        total.update(np.ascontiguousarray(values[name] + np.float32(0)))
    return total.hexdigest()


class Results:
    """Rows of the page. Values that were measured already are not measured again, and
    methods that give the same values of every matrix share a row. say(line) hears of each."""

    def __init__(self, models, say):
        self.models, self.say, self.rows, self.known = models, say, [], {}

    def add(self, row, values_of):
        """values_of(subject) -> (values, seconds)."""
        start, key = time.monotonic(), []
        row |= {"also": [], "figures": {}, "seconds": {}}
        for subject in self.models:
            values, row["seconds"][subject.label] = values_of(subject)
            key.append(digest(values))
            if key[-1] not in self.known:
                bad = [n for n, v in values.items() if not np.isfinite(v).all()]
                if bad:
                    raise SystemExit(f"quality: {row['method']}: values of {bad[0]} are not "
                                     "finite")
                self.known[key[-1]] = subject.measure(values)
            row["figures"][subject.label] = self.known[key[-1]]
        row["values"] = key
        self.say(f"{row['program']}: {row['method']} {row['search']}: "
                 f"{time.monotonic() - start:.0f} s")
        twin = next((r for r in self.rows if r["values"] == key), None)
        if twin:
            twin["also"].append(row)
        else:
            self.rows.append(row)
