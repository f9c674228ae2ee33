"""Damaged and forged archives, and what ``sot.load`` makes of them.

    python tests/deploy/damaged_archives.py [10000 [SEED]]

Archives are loaded in a forked process that an audit hook watches and that ends after 20 seconds. Allowed are a model
and LoadError. What loads is called once; there any exception is allowed.
"""
from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import LoadError
from sot.deploy.provenance import HASHES

SECONDS = 20
STRANGE = (None, True, -1, 0, 1 << 62, 1 << 70, 1.5, float("nan"), "", "x", "../../x", "a'b\"c\\", "\0",
           "__import__('os').system('true')", "torch.hub.load",
           "torch.ops.aten.from_file.default", [], {}, [[]], {"as_int": -5}, {"as_string": "'"},
           {"__enum__": True, "fqn": "this:x", "name": "y"})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.calls = nn.Linear(4, 3), 0
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x, how="floor"):
        self.calls += 1
        y = torch.div(self.head(x) * self.scale, 2.0, rounding_mode=how)
        return {"y": y, "more": [x.sum(), None, 3], "n": x.shape[0]}


def saved(folder):
    return sot.save(Net().eval(), Path(folder) / "model", input_spec=[InputSpec(("n", 4)), "floor"])


def parts_of(file):
    with zipfile.ZipFile(file) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write_sealed(file, parts):
    """An archive of these parts, with the hashes that they have."""
    root = next(iter(parts)).partition("/")[0]
    parts = {name: data for name, data in parts.items() if not name.endswith(HASHES)}
    hashes = {name.partition("/")[2]: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {**parts, f"{root}/{HASHES}": json.dumps(hashes, sort_keys=True).encode()}.items():
            archive.writestr(name, data)


# ---- mutations --------------------------------------------------------------------------------------------
def harmed_bytes(data, r):
    """Bits flipped, a piece cut out, doubled, moved or overwritten; or the end cut off."""
    data = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8))):
        if not data:
            break
        at, length = r.randrange(len(data)), r.choice((1, 4, 16, 200))
        kind = r.randrange(6)
        if kind < 2:
            data[at] ^= 1 << r.randrange(8)
        elif kind == 2:
            del data[at:at + length]
        elif kind == 3:
            data[at:at] = data[at:at + length]
        elif kind == 4:
            data[at:at + length] = r.randbytes(length)
        else:
            del data[at:]
    return bytes(data)


def places(value, found):
    """Every dict and list of a JSON value that holds something."""
    if isinstance(value, dict | list) and value:
        found.append(value)
        for part in value.values() if isinstance(value, dict) else value:
            places(part, found)
    return found


def harmed_json(data, r):
    value = json.loads(data)
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        found = places(value, [])
        if not found:
            break
        where, other = r.choice(found), r.choice(found)
        key = r.choice([*where] if isinstance(where, dict) else range(len(where)))
        kind = r.randrange(6)
        if kind < 2:
            where[key] = r.choice(STRANGE)
        elif kind == 2:
            del where[key]
        elif kind == 3:     # another part of the same text
            part = r.choice([*other.values()] if isinstance(other, dict) else other)
            where[key] = json.loads(json.dumps(part))
        elif kind == 4 and isinstance(where, dict):
            where[str(r.choice(STRANGE))] = where.pop(key)
        elif kind == 5 and type(where[key]) in (int, float):
            where[key] = where[key] * r.choice((-1, 2, 10**6, 10**15)) + r.choice((0, 1))
        elif kind == 5 and isinstance(where[key], str):
            where[key] = harmed_bytes(where[key].encode(), r).decode(errors="replace")
        else:
            where[key] = [where[key]] * r.choice((2, 50))
    text = json.dumps(value)
    return (r.choice(("[" * 100_000, "{\"a\":" * 5000)) if r.randrange(200) == 0 else text).encode()


def swapped(parts, r):
    """Two parts change places, one is renamed, left out, emptied or doubled under another name."""
    names = [*parts]
    one, other = r.sample(names, 2)
    kind = r.randrange(5)
    parts = dict(parts)
    if kind == 0:
        parts[one], parts[other] = parts[other], parts[one]
    elif kind == 1:
        del parts[one]
    elif kind == 2:
        parts[one] = b""
    elif kind == 3:
        parts[harmed_bytes(one.encode(), r).decode(errors="replace") or "x"] = parts.pop(one)
    else:
        parts[one.rpartition("/")[0] + "/" + other.rpartition("/")[2]] = parts[one]
    return parts


def mutate(original, file, r):
    """Write a mutated archive; in words, what was done."""
    kind = r.choice(("bytes", "part", "json", "json", "json", "swap"))
    if kind == "bytes":
        file.write_bytes(harmed_bytes(original.read_bytes(), r))
        return kind
    parts = parts_of(original)
    if kind == "swap":
        write_sealed(file, swapped(parts, r))
        return kind
    texts = [name for name in parts if name.endswith(".json")]
    name = r.choice(texts if kind == "json" else [*parts])
    parts[name] = (harmed_json if kind == "json" else harmed_bytes)(parts[name], r)
    write_sealed(file, parts)
    return f"{kind} of {name}"


# ---- what comes of it -------------------------------------------------------------------------------------
WATCHED = ("os.system", "subprocess.Popen", "os.exec", "os.fork", "os.remove", "os.rename", "socket.connect",
           "pickle.find_class", "shutil.rmtree", "ctypes.dlopen")


def outcome(file):
    """What loading and calling does, in this process: "loaded", "refused" or a complaint."""
    try:
        model = sot.load(file)
    except LoadError as e:
        return "refused" if str(e) else "LoadError without a text"
    except BaseException as e:
        return f"COMPLAINT {type(e).__name__}: {e}"
    try:
        model(torch.ones(2, 4), "floor")
        return "loaded"
    except Exception as e:
        return f"loaded, raises {type(e).__name__}"


def run(original, folder, numbers, seed, report):
    """Load the archives of these numbers in one forked process after the other: a new one where one has died."""
    numbers, counts = [*numbers], {}
    file = Path(folder) / "mutated.pt2"
    log = Path(folder) / "log"
    while numbers:
        log.write_text("")
        child = os.fork()
        if child == 0:
            watched_child(original, file, log, numbers, seed)
        status = os.waitpid(child, 0)[1]
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        ended = [line for line in lines if "outcome" in line]
        if len(ended) < len(numbers):
            what = "hangs" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else f"dies ({status})"
            ended.append({**lines[-1], "outcome": f"COMPLAINT {what}"})
        for line in ended:
            kind = line["outcome"] if line["outcome"].startswith(("loaded", "refused")) else "COMPLAINT"
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "COMPLAINT":
                report(f"{line['number']} ({line['what']}): {line['outcome'][:300]}")
        del numbers[:len(ended)]
    return counts


def watched_child(original, file, log, numbers, seed):
    did = []
    sys.addaudithook(lambda event, args: did.append(f"{event} {args}") if event.startswith(WATCHED) else None)
    sys.stdout = sys.stderr = open(os.devnull, "w")
    os.dup2(sys.stderr.fileno(), 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with log.open("a") as out:
        for number in numbers:
            what = mutate(original, file, random.Random(f"{seed} {number}"))
            print(json.dumps({"number": number, "what": what}), file=out, flush=True)
            did.clear()
            signal.alarm(SECONDS)
            found = outcome(file)
            signal.alarm(0)
            if did:
                found = f"COMPLAINT it did {did[:3]}"
            print(json.dumps({"number": number, "what": what, "outcome": found}), file=out, flush=True)
    os._exit(0)


def main():
    given = [int(text) for text in sys.argv[1:]]
    count, seed = [*given, *(10_000, 1)[len(given):]]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        original = saved(folder)
        sot.load(original)      # what torch imports for it
        counts = {}
        for start in range(0, count, 100):
            for kind, n in run(original, folder, range(start, min(start + 100, count)), seed,
                               lambda text: print(text, flush=True)).items():
                counts[kind] = counts.get(kind, 0) + n
        print(counts)
    return "COMPLAINT" in counts


if __name__ == "__main__":
    sys.exit(main())
